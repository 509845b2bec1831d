package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// head returns the head of a component's state. It also returns the type of the event if
// the last change of the head was a repair by a person, or "".
func (p *plane) head(install, component string) (store.StateHead, string) {
	p.t.Helper()
	in, err := p.Install(p.ctx, org, install)
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := p.Store.State(p.ctx, in.ID, component)
	if err != nil {
		p.t.Fatal(err)
	}
	e, ok := r.V.Event(r.Version)
	if !ok {
		return r.V, ""
	}
	if e.Subject != string(in.ID)+"/"+component || e.Version != r.Version || e.Time.IsZero() {
		p.t.Errorf("the event is %+v", e)
	}
	return r.V, e.Type
}

// carol is a person who changes records.
var carol = fairlead.Actor{Token: "tok_2", Name: "carol"}

func TestPersonBreaksTheLockOfAnEndedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, j, h := p.applying("acme")
		p.lockAndSave(h, j, "lock-1", stateOne)
		taken := p.Now().UTC().Format("2006-01-02 15:04:05")
		p.sleep(5 * time.Second)
		err := p.BreakStateLock(p.ctx, org, "acme", "network", "lock-1")
		if fairlead.CodeOf(err) != "state-locked" || !strings.Contains(err.Error(), string(j.ID)) || !strings.Contains(err.Error(), taken) {
			t.Fatalf("while its job holds the lease: %v", err)
		}
		p.died(h)
		if err := p.BreakStateLock(p.ctx, org, "acme", "network", "lock-0"); fairlead.CodeOf(err) != "lock-changed" || !strings.Contains(err.Error(), "lock-1") {
			t.Errorf("with the id of another lock: %v", err)
		}
		if err := p.PutState(p.ctx, h, string(j.Install), "network", "lock-1", []byte(stateOne)); err != nil {
			t.Errorf("a state of the dead job, before: %v", err)
		}
		for range 2 { // the client repeats the request, because the first answer may be lost
			if err := p.BreakStateLock(control.As(p.ctx, carol), org, "acme", "network", "lock-1"); err != nil {
				t.Fatal(err)
			}
		}
		head, event := p.head("acme", "network")
		if b := head.Broken; head.Lock != nil || event != "fairlead.state.unlocked" || b == nil || b.ID != "lock-1" || b.Job != j.ID || b.At.IsZero() || b.Info != nil || b.By != carol {
			t.Errorf("event %q, broken lock %+v", event, b)
		}
		if err := p.PutState(p.ctx, h, string(j.Install), "network", "lock-1", []byte(stateOne)); fairlead.CodeOf(err) != "state-not-locked" {
			t.Errorf("a state of the dead job, after: %v", err)
		}
		if err := p.BreakStateLock(p.ctx, org, "acme", "network", ""); fairlead.CodeOf(err) != "state-not-locked" {
			t.Errorf("without an id: %v", err)
		}
		// A lock that the next job takes has no event, because a job takes it and not a
		// person.
		next, held := p.begin()
		p.must("lock", func() error {
			return p.LockState(p.ctx, held, string(next.Install), "network", "lock-2", lockInfo("lock-2"))
		})
		if _, event := p.head("acme", "network"); event != "" {
			t.Errorf("a job's lock has the event %q", event)
		}
	})
}

// After a job failed with the reason state-unsaved, a person pushes the state that the
// runner kept.
func TestUnsavedStateIsPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		id, j, h := p.applying("acme")
		p.lockAndSave(h, j, "lock-1", stateOne)
		newer := strings.Replace(stateOne, `"serial":7`, `"serial":9`, 1)
		push := func(state string) error {
			_, err := p.PushState(control.As(p.ctx, carol), org, "acme", "network", []byte(state))
			return err
		}
		if err := push(newer); fairlead.CodeOf(err) != "deployment-runs" {
			t.Errorf("while the deployment runs: %v", err)
		}
		p.must("end the log", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "state-unsaved", Message: "the tool could not save its state",
				Salvaged: &job.Salvaged{Path: "salvage/" + string(j.ID) + "-1/errored.tfstate", Whole: true}})
		})
		_, text := p.situation(id)
		if want := "fairlead install push-state acme network salvage/" + string(j.ID) + "-1/errored.tfstate"; !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
		for what, c := range map[string]struct {
			state string
			code  fairlead.Code
		}{
			"no state":                           {"{}", "invalid-state"},
			"no JSON":                            {"errored", "invalid-state"},
			"the state of another component":     {strings.Replace(newer, "aaaa", "bbbb", 1), "state-lineage"},
			"an older state":                     {strings.Replace(stateOne, `"serial":7`, `"serial":6`, 1), "state-older"},
			"another state with the same serial": {strings.Replace(stateOne, `"outputs":{}`, `"outputs":{"a":1}`, 1), "state-older"},
			"a too large state":                  {`{"lineage":"aaaa","serial":9,"x":"` + strings.Repeat("x", control.MaxState) + `"}`, "state-too-large"},
		} {
			if err := push(c.state); fairlead.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", what, err, c.code)
			}
		}
		if _, err := p.PushState(p.ctx, org, "acme", "nothing", []byte(newer)); fairlead.CodeOf(err) != "component-not-found" {
			t.Errorf("an unknown component: %v", err)
		}
		if err := push(`{"version":4,"serial":0,"lineage":""}`); fairlead.CodeOf(err) != "state-lineage" {
			t.Errorf("a state without a lineage: %v", err)
		}
		before, _ := p.head("acme", "network")
		if before.Lock == nil {
			t.Fatal("the dead job has no lock")
		}
		for range 2 { // the client repeats the request, because the first answer may be lost
			if err := push(newer); err != nil {
				t.Fatal(err)
			}
		}
		head, event := p.head("acme", "network")
		if head.Serial != 9 || head.Writes != before.Writes+1 || head.Lock != nil || event != "fairlead.state.pushed" || len(head.History) != len(before.History)+1 || head.Pushed == nil || head.Pushed.By != carol {
			t.Errorf("after the push, event %q: %+v", event, head)
		}
		again, err := p.RetryDeployment(p.ctx, org, id, "retry")
		if err != nil {
			t.Fatal(err)
		}
		next, held := p.begin()
		if got, err := p.GetState(p.ctx, held, string(next.Install), "network"); err != nil || string(got) != newer {
			t.Errorf("the next job reads %s, %v", got, err)
		}
		p.died(held)
		p.work()
		p.expect(again.ID, deployment.Succeeded, "network=applied cache=applied database=applied web=applied")
	})
}

// The control plane of an install with encrypted states has no state that it could open: the first encrypted state replaces
// all earlier ones, and a person cannot push one in clear.
func TestEncryptedStateReplacesAllInClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, j, h := p.applying("acme")
		keys, err := installkey.NewRing(strings.Repeat("SeedOfTheTests", 5), j.Install)
		if err != nil {
			t.Fatal(err)
		}
		sealed := func(serial string) string {
			b, err := statefile.Seal(keys, "network", []byte(strings.Replace(stateOne, `"serial":7`, `"serial":`+serial, 1)))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		put := func(state string) {
			t.Helper()
			if err := p.PutState(p.ctx, h, string(j.Install), "network", "lock-1", []byte(state)); err != nil {
				t.Fatal(err)
			}
		}
		blobs := func() (kept []string) {
			t.Helper()
			keys, err := p.Blobs.List(p.ctx, "state/")
			if err != nil {
				t.Fatal(err)
			}
			return keys
		}
		p.lockAndSave(h, j, "lock-1", stateOne)
		put(strings.Replace(stateOne, `"serial":7`, `"serial":8`, 1))
		if head, _ := p.head("acme", "network"); head.Key != "" || len(head.History) != 1 || len(blobs()) != 2 {
			t.Fatalf("in clear: %+v, %q", head, blobs())
		}
		put(sealed("9"))
		if head, _ := p.head("acme", "network"); head.Key != keys.Current().Public().ID() || head.Serial != 9 || len(head.History) != 0 || len(blobs()) != 1 {
			t.Errorf("after the first encrypted state: %+v, %q", head, blobs())
		}
		put(sealed("10"))
		if head, _ := p.head("acme", "network"); head.Serial != 10 || len(head.History) != 1 {
			t.Errorf("after the second encrypted state: %+v", head)
		}
		if err := p.DeleteState(p.ctx, h, string(j.Install), "network"); err != nil {
			t.Fatal(err)
		}
		put(sealed("11"))
		if head, _ := p.head("acme", "network"); len(head.History) != 2 {
			t.Errorf("a deleted state took the earlier ones with it: %+v", head)
		}
		p.must("end the log", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "state-unsaved", Message: "the tool could not save its state"})
		})
		newer := strings.Replace(stateOne, `"serial":7`, `"serial":12`, 1)
		if _, err := p.PushState(p.ctx, org, "acme", "network", []byte(newer)); fairlead.CodeOf(err) != fairlead.CodeStateInClear {
			t.Errorf("a person pushes a state in clear: %v", err)
		}
		if _, err := p.PushState(p.ctx, org, "acme", "network", []byte(sealed("11"))); fairlead.CodeOf(err) != fairlead.CodeStateOlder {
			t.Errorf("a person pushes an encrypted state with the same serial: %v", err)
		}
		if pushed, err := p.PushState(p.ctx, org, "acme", "network", []byte(sealed("12"))); err != nil || pushed.Serial != 12 {
			t.Errorf("a person pushes an encrypted state: %+v, %v", pushed, err)
		}
	})
}

// If a component has no state yet and its tool could not save the first state, this state
// may have no lineage. A person can push it nevertheless.
func TestFirstStateIsPushedWithoutLineage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		_, _, h := p.applying("acme")
		p.must("fail", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "state-unsaved"})
		})
		_, err := p.PushState(p.ctx, org, "acme", "network", []byte(`{"version":4,"serial":0,"lineage":"","resources":[]}`))
		if head, _ := p.head("acme", "network"); err != nil || head.Writes != 1 || head.Blob == "" {
			t.Errorf("%v, %+v", err, head)
		}
	})
}

func TestStateOnARunnersDiskIsNotPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.work()
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		p.work()
		p.must("make a runner", func() error { return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "disk", Storage: "local"}) })
		in, err := p.Store.Install(p.ctx, org, "acme")
		if err != nil {
			t.Fatal(err)
		}
		in.V.Bound = nil
		in.V.Runner = "disk"
		var tx store.Tx
		tx.PutInstall(in)
		if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
			t.Fatal(err)
		}
		_, err = p.PushState(p.ctx, org, "acme", "network", []byte(stateOne))
		if fairlead.CodeOf(err) != "state-on-runner" || !strings.Contains(err.Error(), "runner disk") {
			t.Errorf("the push returns %v", err)
		}
	})
}

// TestRescuesUnderEveryFault repairs a state by a removal of its lock, and by a push of a
// state. It runs both repairs with each fault at each engine call.
func TestRescuesUnderEveryFault(t *testing.T) {
	for _, way := range []string{"unlock", "push"} {
		t.Run(way, func(t *testing.T) {
			everyFault{least: 1}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
				p := newPlane(t, e)
				p.publish(shop)
				p.install("acme")
				id, j, h := p.applying("acme")
				p.lockAndSave(h, j, "lock-1", stateOne)
				p.died(h)
				p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, id); return err })
				before, _ := p.head("acme", "network")
				*armed = true
				err := p.try(func() error {
					if way == "unlock" {
						return p.BreakStateLock(p.ctx, org, "acme", "network", "lock-1")
					}
					_, err := p.PushState(p.ctx, org, "acme", "network", []byte(strings.Replace(stateOne, `"serial":7`, `"serial":8`, 1)))
					return err
				})
				*armed = false
				head, event := p.head("acme", "network")
				if err != nil || head.Lock != nil || event == "" || way == "push" && (head.Writes != before.Writes+1 || head.Serial != 8) {
					t.Errorf("%v, event %q, %+v", err, event, head)
				}
			})
		})
	}
}
