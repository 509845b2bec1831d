package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/proctree/proctreetest"
	"github.com/fairlead/fairlead/test/plane"
)

func landlockNeeded(t *testing.T) {
	t.Helper()
	if !confine.Supported() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: this kernel has no Landlock")
	}
}

// printed returns the value that a log has for a name: `name = value` of a plan's outputs,
// or `name: value` of a script.
func printed(log []byte, name string) string {
	m := regexp.MustCompile(`(?m)\b`+name+`(?:\s+=|:) (\w+)$`).FindAllSubmatch(log, -1)
	if len(m) == 0 {
		return ""
	}
	return string(m[len(m)-1][1])
}

// users are those that a runner is installed as.
func users(t *testing.T) map[string]uint32 {
	t.Helper()
	landlockNeeded(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can start agents as root and as another user")
	}
	return map[string]uint32{"root": 0, "without rights": unprivileged}
}

// A plan without an approval printed the agent's private key, and the states
// and plans of every other install, with nothing but HCL.
func TestPlanCannotReadKeyAndOtherStates(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, reads := range map[string]string{"wanted": "false", "off": "true"} { // off shows that the test looks
			t.Run(name+"/"+isolation, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAs(t, s, uid, "FAIRLEAD_ISOLATION="+isolation)
				other := spec("plan", "local", s.Push(map[string]string{"main.tf": exampleModule}))
				other.Vars, other.Install, other.State.Key = vars("other"), "ins_2", "ins_2/db"
				plan := succeeded(t, s.UntilFinished(s.Queue(other)))
				apply := applySpec("apply", "local", other.Artifact, plan)
				apply.Install, apply.State.Key = "ins_2", "ins_2/db"
				succeeded(t, s.UntilFinished(s.Queue(apply)))
				succeeded(t, s.UntilFinished(s.Queue(other))) // whose plan is kept, if it changes something
				other.Vars = vars("changed")
				succeeded(t, s.UntilFinished(s.Queue(other)))

				var module strings.Builder
				private := map[string]string{"key": "identity.key", "pinned": "identity.json", "state": "state/ins_2/db/terraform.tfstate", "saved": "plans/*/plan"}
				for name, pattern := range private {
					found := a.glob(pattern)
					if len(found) == 0 {
						t.Fatalf("there is no %s: the test looks for what is not there", pattern)
					}
					fmt.Fprintf(&module, "output %q { value = can(filebase64(%q)) }\n", name, found[0])
				}
				module.WriteString("output \"own\" { value = can(file(\"${path.module}/main.tf\")) }\noutput \"system\" { value = can(file(\"/etc/passwd\")) }\n")
				log := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", s.Push(map[string]string{"main.tf": module.String()}))))).Log
				for name := range private {
					if printed(log, name) != reads {
						t.Errorf("whether a plan reads the %s: %q, want %s", name, printed(log, name), reads)
					}
				}
				for _, name := range []string{"own", "system"} {
					if printed(log, name) != "true" {
						t.Errorf("a plan does not read the %s file:\n%s", name, log)
					}
				}
			})
		}
	}
}

// A module changed what every later job runs or believes: what is known of the
// tool, the providers, the keys that the runner has pinned. It could as well kill
// the agent.
func TestModuleCannotChangeLaterJobsOrAgent(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} {
			t.Run(name+"/"+isolation, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAs(t, s, uid, "FAIRLEAD_ISOLATION="+isolation, "FAIRLEAD_WRITABLE=/tmp")
				succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", s.Push(map[string]string{"main.tf": exampleModuleWithout}))))) // after which the tool is known
				known := a.glob("tools/*/version.json")
				if len(known) != 1 {
					t.Fatalf("what is known of tools: %q", known)
				}
				before, err := os.ReadFile(known[0])
				if err != nil {
					t.Fatal(err)
				}
				// Tries that change nothing where they succeed: the test goes on.
				script := fmt.Sprintf(`t() { n=$1; shift; if (eval "$*") >/dev/null 2>&1; then echo "$n: yes"; else echo "$n: no"; fi; }
t known ': >>%[1]s'
t cache 'mkdir -p %[2]s/plugin-cache/planted'
t replaced 'mv %[1]s %[1]s.old && mv %[1]s.old %[1]s'
t pinned ': >>%[2]s/identity.json'
t planted ': >%[2]s/tools/planted'
t agent 'kill -0 %[3]d'
t step 'kill -0 $(sed -n "s/^PPid:[[:space:]]*//p" /proc/$PPID/status)'
t home ': >$HOME/x'
t temporary ': >$TMPDIR/x'
t listed 'f=$(mktemp -p /tmp) && rm $f'
t device ': >/dev/null'
t outputs ': >/dev/stdout'
t child 'sleep 30 & kill $!'`, known[0], a.Data, a.cmd.Process.Pid)
				ref := s.Push(module(strings.ReplaceAll(script, "${", "$${")))
				plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
				log := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan)))).Log
				for _, name := range []string{"known", "cache", "replaced", "pinned", "planted", "agent", "step"} {
					if printed(log, name) != does {
						t.Errorf("whether a module gets at %s: %q, want %s", name, printed(log, name), does)
					}
				}
				for _, name := range []string{"home", "temporary", "listed", "device", "outputs", "child"} {
					if isolation == "wanted" && name == "listed" {
						continue // nothing new is made right in a folder that leads to the data folder
					}
					if printed(log, name) != "yes" {
						t.Errorf("a module has no %s any more:\n%s", name, log)
					}
				}
				if after, err := os.ReadFile(known[0]); err != nil || string(after) != string(before) {
					t.Errorf("what is known of the tool was changed: %v", err)
				}
			})
		}
	}
}

// What a vendor's executable can do, a module can, too: it is confined like one.
func TestScriptIsConfinedLikeAModule(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} { // off shows that the test tries
			t.Run(name+"/"+isolation, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAs(t, s, uid, "FAIRLEAD_ISOLATION="+isolation)
				module := spec("plan", "local", s.Push(map[string]string{"main.tf": exampleModule}))
				module.Vars = vars("other")
				plan := succeeded(t, s.UntilFinished(s.Queue(module)))
				succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", module.Artifact, plan))))
				script := fmt.Sprintf(`#!/bin/sh
t() { n=$1; shift; if (eval "$*") >/dev/null 2>&1; then echo "$n: yes"; else echo "$n: no"; fi; }
t key 'cat %[1]s/identity.key'
t state 'cat %[1]s/state/ins_1/web/terraform.tfstate'
t planted ': >%[1]s/tools/planted'
t agent 'kill -0 %[2]d'
t source 'cat ./run'
t home ': >$HOME/x'
t temporary ': >$TMPDIR/x'
t variables 'cat $FAIRLEAD_VARS'
echo '{"done": {"value": true}}' >$FAIRLEAD_OUTPUTS
`, a.Data, a.cmd.Process.Pid)
				run := events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: "seed", Timeout: 120, Grace: 5,
					Artifact: s.PushOf("seed", map[string]string{"run": script})}
				planned := succeeded(t, s.UntilFinished(s.Queue(run)))
				run.Operation, run.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
				applied := succeeded(t, s.UntilFinished(s.Queue(run)))
				for _, try := range []string{"key", "state", "planted", "agent"} {
					if got := printed(applied.Log, try); got != does {
						t.Errorf("whether a script gets at %s: %q, want %s", try, got, does)
					}
				}
				for _, try := range []string{"source", "home", "temporary", "variables"} {
					if printed(applied.Log, try) != "yes" {
						t.Errorf("a script has no %s:\n%s", try, applied.Log)
					}
				}
				if string(applied.Finish.Outputs["done"].Value) != "true" {
					t.Errorf("its outputs are %v", applied.Finish.Outputs)
				}
			})
		}
	}
}

const exampleModuleWithout = `output "nothing" { value = null }`

// What the operator lists, and what the variables name that are passed on, is
// there for modules; what is private is not, wherever it is.
func TestListedPathsAreReadable(t *testing.T) {
	landlockNeeded(t)
	s := plane.New(t, plane.Options{})
	top := t.TempDir()
	files := map[string]bool{"listed/config": true, "named/kubeconfig": true, "neither": false, "private/secret": false, "written/file": true}
	for name := range files {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(top, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in := func(name string) string { return filepath.Join(top, name) }
	startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t), "FAIRLEAD_PASS_ENV=GORACE,KUBECONFIG", "KUBECONFIG="+in("named/kubeconfig"),
		"FAIRLEAD_READABLE="+in("listed"), "FAIRLEAD_WRITABLE="+in("written")+","+in("private"), "FAIRLEAD_PRIVATE="+in("private"))
	var module strings.Builder
	for name := range files {
		fmt.Fprintf(&module, "output %q { value = can(file(%q)) }\n", filepath.Base(name), in(name))
	}
	log := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "http", s.Push(map[string]string{"main.tf": module.String()}))))).Log
	for name, want := range files {
		if got := printed(log, filepath.Base(name)); got != fmt.Sprint(want) {
			t.Errorf("whether %s is read: %q, want %v", name, got, want)
		}
	}
}

// An agent that is to keep its jobs apart does not begin where it cannot.
func TestIsolationSetting(t *testing.T) {
	for _, tc := range []struct {
		isolation string
		code      int
		says      string
	}{
		{"off", -1, "isolation=none"},
		{"required", -1, "isolation=landlock"},
		{"wanted", -1, "isolation=landlock"},
		{"always", 1, "FAIRLEAD_ISOLATION"},
	} {
		t.Run(tc.isolation, func(t *testing.T) {
			landlockNeeded(t)
			s := plane.New(t, plane.Options{})
			a := startAgent(t, s, "", "FAIRLEAD_ISOLATION="+tc.isolation)
			s.Until("the agent says how it is", func() bool { return strings.Contains(a.out.String(), tc.says) })
			if tc.code >= 0 {
				if code := a.exit(s); code != tc.code {
					t.Errorf("it ended with %d", code)
				}
				return
			}
			a.signal(syscall.SIGTERM)
			a.exit(s)
		})
	}
}

// A job that killed step and shim at once, or the step once its own processes
// had left the control group, outlived its own death below a later agent.
func TestJobCannotEscapeItsShimOrGroup(t *testing.T) {
	landlockNeeded(t)
	for place, tc := range map[string]struct {
		group func(testing.TB) proctree.Group // the agent's own
		tries []string
	}{
		"in a control group": {proctreetest.Group, []string{"step", "group"}},
		"below a shim":       {proctreetest.Barren, []string{"step", "above"}},
	} {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} { // off shows that the test tries
			t.Run(place+"/"+isolation, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				own := tc.group(t)
				startWith(t, s.URL(), "", t.TempDir(), beginIn(t, own),
					"FAIRLEAD_ENROLMENT_TOKEN="+s.EnrolmentToken(), "FAIRLEAD_TOFU="+tool(t), "FAIRLEAD_ISOLATION="+isolation)
				script := fmt.Sprintf(`t() { n=$1; shift; if (eval "$*") >/dev/null 2>&1; then echo "$n: yes"; else echo "$n: no"; fi; }
parent() { sed -n 's/^PPid:[[:space:]]*//p' /proc/$1/status; }
step=$(parent $PPID)
t step "kill -0 $step"
t above "kill -0 $(parent $step)"
t group 'echo 0 >%s'`, filepath.Join(string(own), "cgroup.procs"))
				ref := s.Push(module(script))
				plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
				log := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan)))).Log
				for _, try := range tc.tries {
					if printed(log, try) != does {
						t.Errorf("whether a job reaches the %s: %q, want %s", try, printed(log, try), does)
					}
				}
			})
		}
	}
}
