package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
)

// notePlugin is a plugin that keeps a note in a file: an empty one, so the plan only has to see whether the file exists. Its saved
// plan has the password and does not compress.
const notePlugin = `#!/bin/sh
read -r request
field() { printf '%s' "$request" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
value() { printf '%s' "$request" | sed -n "s/.*\"$1\":{\"value\":\"\([^\"]*\)\".*/\1/p"; }
plan=$(field plan)
case $(field operation) in
plan | plan-destroy)
	file=$(value file)
	echo "looking for $file"
	action=create
	[ "$(field operation)" = plan ] || action=delete
	{ echo "$action $file $(value password)"; head -c 100000 /dev/urandom; } > "$plan"
	case $action-$(test -e "$file" && echo yes || echo no) in
	create-yes) echo '{"event":"output","name":"file","value":"'"$file"'"}' >&3; echo '{"event":"finished","no_op":true}' >&3 ;;
	delete-no) echo '{"event":"finished","no_op":true}' >&3 ;;
	*) echo '{"event":"change","change":{"address":"note","action":"'$action'","after":{"password":"'"$(value password)"'"}}}' >&3; echo '{"event":"finished"}' >&3 ;;
	esac ;;
*)
	action= file= password=
	read -r action file password < "$plan"
	echo '{"event":"mutating"}' >&3
	if [ "$action" = create ]; then
		: > "$file"
		echo '{"event":"output","name":"file","value":"'"$file"'"}' >&3
		echo '{"event":"output","name":"password","value":"'"$password"'"}' >&3
	else
		rm "$file"
	fi
	echo '{"event":"finished"}' >&3 ;;
esac
`

// withEvents returns the plugin with its events on file 3 and its log on standard error.
func withEvents(plugin string) map[string]string {
	head, rest, _ := strings.Cut(plugin, "\n")
	return map[string]string{"plugin": head + "\nexec 3>&1 >&2\n" + rest}
}

// noteSpec returns the spec of a plan of the note.
func noteSpec(s *plane.Plane, file, storage string) events.JobSpec {
	raw, _ := json.Marshal(file)
	return events.JobSpec{Plugin: "plugin", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: "note", Timeout: 120, Grace: 5,
		Artifact: s.PushOf("note", withEvents(notePlugin)), State: &events.StateRef{Storage: storage, Key: "ins_1/note", Path: "/runner/v1/state/ins_1/note"},
		Vars: map[string]events.SpecVar{"file": {Value: raw}, "password": {Value: json.RawMessage(`"` + password + `"`), Sensitive: true}}}
}

// after returns the spec of the operation that executes a plan.
func after(sp events.JobSpec, operation string, plan plane.Job) events.JobSpec {
	sp.Operation, sp.Plan = operation, &events.PlanRef{Job: fairlead.JobID(plan.ID), Digest: plan.Finish.Plan.Digest}
	return sp
}

// A component whose plugin is a program in its source is planned, applied, planned without changes, and destroyed. Its saved plans go
// where the install's states are.
func TestPluginProgramWithEachStorage(t *testing.T) {
	t.Parallel()
	for name, storage := range map[string]string{"local": "local", "http": "http", "http in parts": "http", "s3": "s3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o plane.Options
			var env []string
			in := func(sp events.JobSpec) events.JobSpec { return sp }
			switch name {
			case "http in parts":
				o.MaxBody = 16 << 10
			case "s3":
				o.Stack = true
				b := newBucket(t, "plans-of-programs", true)
				env = append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+tool(t))
				in = func(sp events.JobSpec) events.JobSpec { sp.State.In = b.in(); return sp }
				t.Cleanup(func() {
					if got := b.keys(); !slices.Equal(got, []string{"of/acme/plans/ins_1/note.tfstate"}) {
						t.Errorf("the bucket has %s", got)
					}
				})
			}
			s := plane.New(t, o)
			a := startAgent(t, s, "", env...)
			file := filepath.Join(t.TempDir(), "note")
			sp := in(noteSpec(s, file, storage))

			plan := succeeded(t, s.UntilFinished(s.Queue(sp)))
			if p := plan.Finish.Plan; p.NoOp || p.Changes.Add != 1 || plan.Finish.Mutated || !changes(p.ChangeSet, "note") || !hasLine(plan.Log, "looking for "+file) {
				t.Errorf("plan: %+v\n%s", plan.Finish, plan.Log)
			}
			if set, err := json.Marshal(plan.Finish.Plan); err != nil || strings.Contains(string(set), password) {
				t.Errorf("the change set has the password (%v): %s", err, set)
			}
			apply := succeeded(t, s.UntilFinished(s.Queue(after(sp, "apply", plan))))
			if _, err := os.Stat(file); err != nil || !apply.Finish.Mutated || string(apply.Finish.Outputs["file"].Value) != `"`+file+`"` || !apply.Finish.Outputs["password"].Sensitive {
				t.Errorf("apply: %+v, file %v", apply.Finish, err)
			}
			if again := succeeded(t, s.UntilFinished(s.Queue(sp))); !again.Finish.Plan.NoOp || string(again.Finish.Outputs["file"].Value) != `"`+file+`"` {
				t.Errorf("plan without changes: %+v", again.Finish)
			}
			sp.Operation = "plan-destroy"
			down := succeeded(t, s.UntilFinished(s.Queue(sp)))
			gone := succeeded(t, s.UntilFinished(s.Queue(after(sp, "destroy", down))))
			if _, err := os.Stat(file); err == nil || len(gone.Finish.Outputs) != 0 || !gone.Finish.Mutated {
				t.Errorf("destroy: %+v", gone.Finish)
			}
			if name == "http in parts" && (s.Asked(wire.StagePart) < 12 || s.Asked(wire.GetPart) < 12) {
				t.Errorf("the plans went in %d parts and came in %d", s.Asked(wire.StagePart), s.Asked(wire.GetPart))
			}
			s.Until("nothing left on disk", a.empty)
			if storage != "local" {
				nowhere(t, a.Data, password)
			}
		})
	}
}

// A person must see from the job that the plugin is at fault, and with what.
func TestPluginProgramThatBreaksTheProtocolIsReported(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "")
	sp := noteSpec(s, "x", "local")
	sp.Artifact = s.PushOf("note", map[string]string{"plugin": "#!/bin/sh\necho hello\n"})
	f := s.UntilFinished(s.Queue(sp)).Finish
	if f.Outcome != "failed" || f.Reason != "plugin-protocol" || !strings.Contains(f.Message, `"hello"`) || f.Mutated {
		t.Errorf("%+v", f)
	}
}
