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

// users are the users as which a runner is installed.
func users(t *testing.T) map[string]uint32 {
	t.Helper()
	landlockNeeded(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can start agents as root and as another user")
	}
	return map[string]uint32{"root": 0, "without rights": unprivileged}
}

// A plan needs no approval. With HCL alone, it must not read the agent's private key, or states and plans of other installs.
func TestPlanCannotReadKeyAndOtherStates(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, reads := range map[string]string{"wanted": "false", "off": "true"} { // off shows that the test can detect a read
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
				succeeded(t, s.UntilFinished(s.Queue(other))) // its plan is kept if it has changes
				other.Vars = vars("changed")
				succeeded(t, s.UntilFinished(s.Queue(other)))

				var module strings.Builder
				private := map[string]string{"key": "identity.key", "pinned": "identity.json", "state": "state/ins_2/db/terraform.tfstate", "saved": "plans/*/plan"}
				for name, pattern := range private {
					found := a.glob(pattern)
					if len(found) == 0 {
						t.Fatalf("no file %s: the test would find nothing", pattern)
					}
					fmt.Fprintf(&module, "output %q { value = can(filebase64(%q)) }\n", name, found[0])
				}
				module.WriteString("output \"own\" { value = can(file(\"${path.module}/main.tf\")) }\noutput \"system\" { value = can(file(\"/etc/passwd\")) }\n")
				log := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", s.Push(map[string]string{"main.tf": module.String()}))))).Log
				for name := range private {
					if printed(log, name) != reads {
						t.Errorf("a plan reads the %s: %q, want %s", name, printed(log, name), reads)
					}
				}
				for _, name := range []string{"own", "system"} {
					if printed(log, name) != "true" {
						t.Errorf("a plan cannot read the %s file:\n%s", name, log)
					}
				}
			})
		}
	}
}

// A module must not change what later jobs run or trust: the facts about the tool, the providers, the runner's pinned keys.
// It must not be able to kill the agent either.
func TestModuleCannotChangeLaterJobsOrAgent(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} {
			t.Run(name+"/"+isolation, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAs(t, s, uid, "FAIRLEAD_ISOLATION="+isolation, "FAIRLEAD_WRITABLE=/tmp")
				succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", s.Push(map[string]string{"main.tf": exampleModuleWithout}))))) // now the facts about the tool are stored
				known := a.glob("tools/*/version.json")
				if len(known) != 1 {
					t.Fatalf("files with facts about tools: %q", known)
				}
				before, err := os.ReadFile(known[0])
				if err != nil {
					t.Fatal(err)
				}
				// Attempts that change nothing if they succeed, so the test can continue.
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
						t.Errorf("a module reaches %s: %q, want %s", name, printed(log, name), does)
					}
				}
				for _, name := range []string{"home", "temporary", "listed", "device", "outputs", "child"} {
					if isolation == "wanted" && name == "listed" {
						continue // a folder that contains the data folder gets no new files
					}
					if printed(log, name) != "yes" {
						t.Errorf("a module no longer reaches %s:\n%s", name, log)
					}
				}
				if after, err := os.ReadFile(known[0]); err != nil || string(after) != string(before) {
					t.Errorf("the facts about the tool were changed: %v", err)
				}
			})
		}
	}
}

// A vendor's executable is confined like a module.
func TestScriptIsConfinedLikeAModule(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} { // off shows that the test can detect access
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
						t.Errorf("a script reaches %s: %q, want %s", try, got, does)
					}
				}
				for _, try := range []string{"source", "home", "temporary", "variables"} {
					if printed(applied.Log, try) != "yes" {
						t.Errorf("a script does not reach %s:\n%s", try, applied.Log)
					}
				}
				if string(applied.Finish.Outputs["done"].Value) != "true" {
					t.Errorf("the script's outputs are %v", applied.Finish.Outputs)
				}
			})
		}
	}
}

// A plugin's program is confined like a module. Its plan needs no approval.
func TestPluginProgramIsConfinedLikeAModule(t *testing.T) {
	for name, uid := range users(t) {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} { // off shows that the test can detect access
			t.Run(name+"/"+isolation, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAs(t, s, uid, "FAIRLEAD_ISOLATION="+isolation)
				module := spec("plan", "local", s.Push(map[string]string{"main.tf": exampleModule}))
				module.Vars = vars("other")
				plan := succeeded(t, s.UntilFinished(s.Queue(module)))
				succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", module.Artifact, plan))))
				tries := fmt.Sprintf(`t() { n=$1; shift; if (eval "$*") >/dev/null 2>&1; then echo "$n: yes"; else echo "$n: no"; fi; }
t key 'cat %[1]s/identity.key'
t state 'cat %[1]s/state/ins_1/web/terraform.tfstate'
t plans ': >%[1]s/plans/planted'
t planted ': >%[1]s/tools/planted'
t agent 'kill -0 %[2]d'
t source 'cat ./plugin'
t home ': >$HOME/x'
t temporary ': >$TMPDIR/x'
t plan ': >$plan'
`, a.Data, a.cmd.Process.Pid)
				sp := noteSpec(s, filepath.Join(t.TempDir(), "note"), "local")
				sp.Artifact = s.PushOf("note", withEvents(strings.Replace(notePlugin, "\tfile=$(value file)\n", tries+"\tfile=$(value file)\n", 1)))
				log := succeeded(t, s.UntilFinished(s.Queue(sp))).Log
				for _, try := range []string{"key", "state", "plans", "planted", "agent"} {
					if got := printed(log, try); got != does {
						t.Errorf("a plan of a plugin reaches %s: %q, want %s", try, got, does)
					}
				}
				for _, try := range []string{"source", "home", "temporary", "plan"} {
					if printed(log, try) != "yes" {
						t.Errorf("a plan of a plugin does not reach %s:\n%s", try, log)
					}
				}
			})
		}
	}
}

const exampleModuleWithout = `output "nothing" { value = null }`

// Modules can read the paths that the operator lists and the paths in passed variables. They cannot read private paths,
// even if these are below a listed path.
func TestListedPathsAreReadable(t *testing.T) {
	t.Parallel()
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
			t.Errorf("a module reads %s: %q, want %v", name, got, want)
		}
	}
}

// An agent with required isolation does not start on a machine without it.
func TestIsolationSetting(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		isolation string
		code      int
		want      string
	}{
		{"off", -1, "isolation=none"},
		{"required", -1, "isolation=landlock"},
		{"wanted", -1, "isolation=landlock"},
		{"always", 1, "FAIRLEAD_ISOLATION"},
	} {
		t.Run(tc.isolation, func(t *testing.T) {
			t.Parallel()
			landlockNeeded(t)
			s := plane.New(t, plane.Options{})
			a := startAgent(t, s, "", "FAIRLEAD_ISOLATION="+tc.isolation)
			s.Until("the log of the agent", func() bool { return strings.Contains(a.out.String(), tc.want) })
			if tc.code >= 0 {
				if code := a.exit(s); code != tc.code {
					t.Errorf("exit code %d", code)
				}
				return
			}
			a.signal(syscall.SIGTERM)
			a.exit(s)
		})
	}
}

// A job must not continue after a later agent has reported the death of the job's step. The job could continue if it could
// kill both its step and its shim, or if its processes could leave the control group before it kills the step.
func TestJobCannotEscapeItsShimOrGroup(t *testing.T) {
	landlockNeeded(t)
	for place, tc := range map[string]struct {
		group func(testing.TB) proctree.Group // the agent's own
		tries []string
	}{
		"in a control group": {proctreetest.Group, []string{"step", "group"}},
		"below a shim":       {proctreetest.Barren, []string{"step", "above"}},
	} {
		for isolation, does := range map[string]string{"wanted": "no", "off": "yes"} { // off shows that the test can detect access
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
						t.Errorf("a job reaches the %s: %q, want %s", try, printed(log, try), does)
					}
				}
			})
		}
	}
}

// An agent whose jobs are processes serves one install, whatever the control plane sends, also after a restart. The refusal tells the
// operator what to do, and the job of the first install goes on.
func TestRunnerOfProcessesServesOneInstall(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	plan := func(install, name string) string {
		return s.Queue(events.JobSpec{Plugin: "script", Operation: "plan", Install: fairlead.InstallID(install), InstallName: name, Component: "seed", Timeout: 60, Grace: 5,
			Artifact: s.PushOf("seed", map[string]string{"run": "#!/bin/sh\n"})})
	}
	a := startAgent(t, s, "", "FAIRLEAD_SHARED_PROCESS=false")
	succeeded(t, s.UntilFinished(plan("ins_1", "acme")))
	for _, restart := range []bool{false, true} {
		if restart {
			a.kill()
			a = startAgent(t, s, a.Data, "FAIRLEAD_SHARED_PROCESS=false")
		}
		d := s.UntilDied(plan("ins_2", "globex")).Died
		if d.Reason != string(fairlead.CauseInstallRefused) || !strings.Contains(d.Message, "serves the install acme") || !strings.Contains(d.Message, "FAIRLEAD_SHARED_PROCESS=true") {
			t.Errorf("after a restart: %v; reported as %+v", restart, d)
		}
		succeeded(t, s.UntilFinished(plan("ins_1", "acme")))
	}
	a.kill()
	startAgent(t, s, a.Data, "FAIRLEAD_SHARED_PROCESS=true")
	succeeded(t, s.UntilFinished(plan("ins_2", "globex")))
}
