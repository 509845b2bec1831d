package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

// places are storages between which the tests move a component's state.
func places(b bucket) map[string]events.StateRef {
	return map[string]events.StateRef{
		"local": {Storage: "local", Key: "ins_1/web"},
		"http":  {Storage: "http", Key: "ins_1/web", Path: "/runner/v1/state/ins_1/web"},
		"s3":    {Storage: "s3", Key: "ins_1/web", In: b.in()},
	}
}

func at(ref events.StateRef, sp events.JobSpec) events.JobSpec {
	sp.State = &ref
	return sp
}

// opensWith reports whether the control plane cannot read a state, and the steps of the agent find a text in it.
func opensWith(t *testing.T, a *agentProcess, stored []byte, text string) bool {
	t.Helper()
	o, err := statefile.Open(keysIn(t, a.Data), "web", stored)
	return err == nil && o.Own && strings.Contains(string(o.State), text) && !strings.Contains(string(stored), text)
}

func moveSpec(from, to events.StateRef) events.JobSpec {
	return events.JobSpec{Plugin: "terraform", Operation: "migrate-state", Install: "ins_1", InstallName: "acme", Timeout: 120, Grace: 5,
		Move: []events.MovedState{{Component: "web", From: from, To: to}}}
}

// A state is moved from the runner's disk to a bucket, to the control plane, and back to the disk, where an older copy has
// stayed. After each move, the next plan has no changes. All old copies remain. Repeating a move changes nothing.
func TestStateIsMoved(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			b := newBucket(t, "moved-"+strings.ToLower(strings.ReplaceAll(tool, "_", "-")), true)
			s := plane.New(t, plane.Options{Stack: true})
			a := startKeyed(t, s, append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+path)...)
			ref := s.Push(map[string]string{"main.tf": exampleModule})
			in := places(b)
			plan := succeeded(t, s.UntilFinished(s.Queue(at(in["local"], planSpec("", ref)))))
			succeeded(t, s.UntilFinished(s.Queue(at(in["local"], applySpec("apply", "", ref, plan)))))

			for _, move := range [][2]string{{"local", "s3"}, {"local", "s3"}, {"s3", "http"}, {"http", "local"}} {
				j := succeeded(t, s.UntilFinished(s.Queue(moveSpec(in[move[0]], in[move[1]]))))
				if j.Finish.Mutated || !strings.Contains(string(j.Log), "web: copied from ") || !strings.Contains(string(j.Log), "read back: lineage ") {
					t.Errorf("%s: %+v\n%s", move, j.Finish, j.Log)
				}
				again := succeeded(t, s.UntilFinished(s.Queue(at(in[move[1]], planSpec("", ref)))))
				if !again.Finish.Plan.NoOp || string(again.Finish.Outputs["name"].Value) != `"one"` {
					t.Errorf("after the move %s, the plan has changes: %+v", move, again.Finish)
				}
			}
			if !strings.Contains(b.read(stateObject), password) || !opensWith(t, a, s.State("ins_1", "web"), password) {
				t.Error("an old copy is gone")
			}
			s.Until("nothing left on disk", a.empty)
		})
	}
}

// A failed move has a reason, and both states stay as they were.
func TestFailedMoveChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBucket(t, "unmoved", true)
	s := plane.New(t, plane.Options{Stack: true})
	a := startAgent(t, s, "", append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+tool(t))...)
	in := places(b)
	file := filepath.Join(a.Data, "state/ins_1/web/terraform.tfstate")
	put := func(state string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ours = `{"version":4,"terraform_version":"1.9.0","serial":7,"lineage":"ours","outputs":{"x":{"value":"one","type":"string"}},"resources":[{"mode":"managed","type":"terraform_data","name":"x","provider":"provider[\"terraform.io/builtin/terraform\"]","instances":[{"schema_version":0,"attributes":{"id":"1","input":null,"output":null,"triggers_replace":null},"sensitive_attributes":[]}]}],"check_results":null}`
	move := func() plane.Job { return s.UntilFinished(s.Queue(moveSpec(in["local"], in["s3"]))) }
	for _, tt := range []struct {
		name, here, there, lock, reason string
	}{
		{"the target has another component's state", ours, strings.Replace(strings.Replace(ours, "ours", "theirs", 1), "one", "two", 1), "", "state-conflict"},
		{"the target has a newer state of the same install", ours, strings.Replace(strings.Replace(ours, `"serial":7`, `"serial":9`, 1), "one", "two", 1), "", "state-conflict"},
		{"the target is locked", ours, "", `{"ID":"0d0a7508-5424-9d9c-2d65-3e4765577c0b","Operation":"OperationTypeApply","Who":"ann@laptop","Version":"1.12.6","Created":"2026-11-21T08:42:51Z","Path":""}`, "state-locked"},
		{"only its module can read the state", `{"meta":{"key_provider.pbkdf2.k":"eA=="},"encrypted_data":"eA==","encryption_version":"v0","serial":7,"lineage":"ours"}`, "", "", "state-unreadable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, key := range b.keys() {
				b.remove(key)
			}
			put(tt.here)
			for key, content := range map[string]string{stateObject: tt.there, stateObject + ".tflock": tt.lock} {
				if content != "" {
					b.write(key, content)
				}
			}
			j := move()
			f := j.Finish
			if f.Outcome != "failed" || f.Reason != tt.reason || f.Mutated || !strings.Contains(f.Message, "the state of component web was not moved") || !strings.Contains(f.Message, "Nothing is lost") {
				t.Errorf("finished as %+v\n%s", *f, j.Log)
			}
			if now, err := os.ReadFile(file); err != nil || string(now) != tt.here {
				t.Errorf("the old state is now %s, %v", now, err)
			}
			if tt.there != "" && b.read(stateObject) != tt.there {
				t.Errorf("the target's state is now %s", b.read(stateObject))
			}
		})
	}
	t.Run("an interrupted copy is continued", func(t *testing.T) {
		for _, key := range b.keys() {
			b.remove(key)
		}
		put(ours)
		b.write(stateObject, strings.Replace(strings.Replace(ours, `"lineage":"ours"`, `"lineage":"of the first write"`, 1), `"serial":7`, `"serial":1`, 1))
		succeeded(t, move())
		if got := b.read(stateObject); !strings.Contains(got, `"ours"`) {
			t.Errorf("the copy is %s", got)
		}
	})
	t.Run("the empty state of a destroyed component is overwritten", func(t *testing.T) {
		put(ours)
		b.write(stateObject, `{"version":4,"terraform_version":"1.9.0","serial":12,"lineage":"of one destroyed","outputs":{},"resources":[]}`)
		succeeded(t, move())
		if got := b.read(stateObject); !strings.Contains(got, `"ours"`) {
			t.Errorf("the copy is %s", got)
		}
	})
	t.Run("without a state there is nothing to move", func(t *testing.T) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		for _, key := range b.keys() {
			b.remove(key)
		}
		if j := succeeded(t, move()); len(b.keys()) != 0 || !strings.Contains(string(j.Log), "there is no state in local") {
			t.Errorf("the bucket has %s\n%s", b.keys(), j.Log)
		}
	})
}
