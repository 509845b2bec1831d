package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

func TestMain(m *testing.M) {
	// Scripts run real processes, and the test binary is the program in these processes.
	// It acts as the program if it has the program's name, or if its first argument is
	// "runner", with which it starts itself.
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(run())
	}
	testscript.Main(installed{m}, map[string]func(){"fairlead": main, "fairlead-runner": runnerMain})
}

// installed runs the tests with the program fairlead-step beside the programs that the test binary plays, as on a user's
// machine. A step in the test binary would take five times as much CPU time to start.
type installed struct{ *testing.M }

// Run implements testscript.TestingM. The programs are in a folder on the PATH by now.
func (i installed) Run() int {
	fairlead, err := exec.LookPath("fairlead")
	if err == nil {
		err = program.Beside(filepath.Dir(fairlead), "runner/fairlead-step", "-ldflags=-w -X main.version="+buildVersion())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return i.M.Run()
}

// runnerMain is the program fairlead-runner, whose main is in another package.
func runnerMain() {
	if len(os.Args) < 2 || os.Args[1] != "agent" {
		os.Exit(2)
	}
	os.Exit(runnerAgent(os.Args[2:]))
}

// TestAlone runs the scripts that need no control plane.
func TestAlone(t *testing.T) {
	testscript.Run(t, params("alone"))
}

// storiesOf returns the scripts of a folder. In a short run it returns each third one, and others on the next days.
func storiesOf(t *testing.T, folder string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts in %s: %v", folder, err)
	}
	for i, file := range all {
		days := make([]string, min(len(all), 3))
		days[0] = file
		files = append(files, shortrun.OneOf(t, i, days...)...)
	}
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// TestStories runs the scripts of testdata/script: `fairlead dev` with a real runner and
// a real tool.
func TestStories(t *testing.T) {
	tool := toolOrSkip(t)
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	p := params("script")
	p.Cmds["ready"] = ready
	p.Cmds["id"] = id
	p.Cmds["until"] = until
	p.Cmds["shorten"] = shorten
	p.Cmds["issuer"], p.Cmds["token"] = issuer(t)
	p.Cmds["dex"], p.Cmds["person"] = dex(t), person
	p.Cmds["export"] = export
	p.Cmds["repositories"], p.Cmds["commit"], p.Cmds["replace"], p.Cmds["chart"], p.Cmds["modules"], p.Cmds["ociregistry"] = repositories, commit, replace, chart, modules, ociRegistry
	p.Cmds["certificate"] = certificate
	p.Cmds["signed"], p.Cmds["alter"] = signed, alter
	p.Files, p.Dir = storiesOf(t, p.Dir), ""
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("FAIRLEAD_TOFU", tool)
		env.Setenv("EXAMPLES", examples)
		return setup(env)
	}
	testscript.Run(t, p)
}

// toolOrSkip returns the path of OpenTofu or Terraform.
func toolOrSkip(t *testing.T) string {
	if tool := os.Getenv("FAIRLEAD_TOFU"); tool != "" {
		return tool
	}
	for _, name := range []string{"tofu", "terraform"} {
		if tool, err := exec.LookPath(name); err == nil {
			return tool
		}
	}
	t.Skip("SKIPPED: NO SCRIPT RAN. There is neither tofu nor terraform on the PATH, and FAIRLEAD_TOFU is not set.")
	return ""
}

// ready waits for the ready file of a server: "ready FILE". It sets ADDRESS to the
// server's host and port, and TOKEN_FILE to the path of the server's token file.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready FILE")
	}
	deadline := time.Now().Add(time.Minute)
	for {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil {
			var r struct {
				URL       string `json:"url"`
				TokenFile string `json:"token_file"`
			}
			if err := json.Unmarshal(data, &r); err != nil {
				ts.Fatalf("the ready file contains %q: %v", data, err) // the server writes the file atomically, so the file is never incomplete
			}
			ts.Setenv("ADDRESS", strings.TrimPrefix(strings.TrimPrefix(r.URL, "http://"), "https://"))
			ts.Setenv("TOKEN_FILE", r.TokenFile)
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no server was ready within a minute")
		}
		<-time.After(5 * time.Millisecond) // before the next read of the file, which another process writes
	}
}

// id sets ID to the first identifier with the prefix in the last standard output or
// error: "id stdout dep_".
func id(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: id stdout|stderr PREFIX")
	}
	found := regexp.MustCompile(regexp.QuoteMeta(args[1]) + "[0-9a-z]+").FindString(ts.ReadFile(args[0]))
	if found == "" {
		ts.Fatalf("no %s… was printed", args[1])
	}
	ts.Setenv("ID", found)
}

// shorten sets SHORT to the beginning of the first identifier with the prefix in the
// last output: "shorten stdout dep_ 16".
func shorten(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: shorten stdout|stderr PREFIX LENGTH")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	id(ts, false, args[:2])
	ts.Setenv("SHORT", ts.Getenv("ID")[:n])
}

// TestFaults runs the scripts in which a control plane fails or gives wrong answers.
func TestFaults(t *testing.T) {
	p := params("faults")
	p.Cmds["plane"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: plane SCENARIO")
		}
		s := ts.Value(storyKey{}).(*story)
		s.plane = plane.New(t, plane.Options{})
		scenario, ok := scenarios()[args[0]]
		if !ok {
			ts.Fatalf("there is no scenario %q", args[0])
		}
		ts.Setenv("JOB", scenario(t, s.plane))
		ts.Setenv("FAIRLEAD_URL", s.plane.URL())
		ts.Setenv("FAIRLEAD_TOKEN", s.plane.Token())
	}
	p.Cmds["seen"] = func(ts *testscript.TestScript, neg bool, args []string) {
		n, err := strconv.Atoi(args[1])
		if neg || err != nil {
			ts.Fatalf("usage: seen OPERATION TIMES")
		}
		route, ok := map[string]wire.Route{wire.ReadJobLog.ID: wire.ReadJobLog}[args[0]]
		if !ok {
			ts.Fatalf("no scenario counts requests of %s", args[0])
		}
		p := ts.Value(storyKey{}).(*story).plane
		p.Until(args[0]+" is requested", func() bool { return p.Asked(route) >= n })
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Values[storyKey{}] = &story{}
		return setup(env)
	}
	testscript.Run(t, p)
}

// story has the values that the commands of one script share.
type story struct{ plane *plane.Plane }

type storyKey struct{}

func params(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 filepath.Join("testdata", dir),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_GOLDEN") != "",
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			// The packages of this binary allocate twice the heap at which the first collection of garbage starts. Each start of a
			// program takes a fifth less CPU time without it.
			env.Setenv("GOGC", "400")
			env.Setenv("FAIRLEAD_SHARED_PROCESS", "true") // many stories have several installs; second-install.txtar shows the default
			env.Setenv("FAIRLEAD_CONFIG_DIR", filepath.Join(env.WorkDir, ".config"))
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, ".data"))
			return nil
		},
	}
}

// exits runs a program, and fails if the program ends with a different exit code:
// "exits 3 fairlead …".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	err := ts.Exec("sh", append([]string{"-c", `"$@"; echo $? > "$WORK/.code"`, "sh"}, args[1:]...)...)
	if err != nil {
		ts.Fatalf("run %s: %v", args[1], err)
	}
	if got := strings.TrimSpace(ts.ReadFile(ts.MkAbs(".code"))); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// scenarios returns the behaviours of control planes, by name. A behaviour that concerns
// a job returns the job's ID.
func scenarios() map[string]func(*testing.T, *plane.Plane) (job string) {
	const app = "fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: ./web}\n"
	return map[string]func(*testing.T, *plane.Plane) string{
		"internal": func(_ *testing.T, p *plane.Plane) string {
			p.Next(plane.Refuse("internal"))
			return ""
		},
		"gateway": func(_ *testing.T, p *plane.Plane) string {
			p.Fail(proxy.Any, 5, proxy.Answer(http.StatusServiceUnavailable, "text/plain", "try later"))
			return ""
		},
		"pages": func(t *testing.T, p *plane.Plane) string {
			for range 3 {
				d := p.Deploy(app, wire.CreateDeploymentRequest{PlanOnly: true})
				if _, err := p.API.CancelDeployment(t.Context(), d.ID); err != nil {
					t.Fatal(err)
				}
			}
			// Each page has one item, so that a list has several pages.
			p.Fail(proxy.Route(wire.ListDeployments), -1, proxy.Before(func(r *http.Request) {
				q := r.URL.Query()
				q.Set("limit", "1")
				r.URL.RawQuery = q.Encode()
			}))
			return ""
		},
		"endless": func(t *testing.T, p *plane.Plane) string {
			d := p.Deploy(app, wire.CreateDeploymentRequest{PlanOnly: true})
			if _, err := p.API.CancelDeployment(t.Context(), d.ID); err != nil {
				t.Fatal(err)
			}
			p.Fail(proxy.Route(wire.CreateDeployment), 1, proxy.Change(func(body []byte) []byte {
				var d wire.Deployment
				if err := json.Unmarshal(body, &d); err != nil {
					t.Error(err)
				} else {
					p.Work(d.Components[0].PlanJob).Log("thinking\n")
				}
				return body
			}))
			return ""
		},
		"hostile": func(t *testing.T, p *plane.Plane) string {
			j, err := p.API.CheckRunner(t.Context(), plane.Runner)
			if err != nil {
				t.Fatal(err)
			}
			a := p.Work(j.ID)
			a.Log("\x1b]0;owned\x07one\ntw\x1b[2Jo\r\nlast")
			a.Succeed()
			return j.ID
		},
	}
}

// patience is how long a script waits for a required event before it fails.
const patience = time.Minute

// until runs a program until its output matches: "until REGEXP PROGRAM ARG...".
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM [ARG...]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	pauses := e2e.Pauses()
	for deadline := time.Now().Add(patience); ; {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("after %s the output of %q does not match %q: %v\n%s%s", patience, args[1:], args[0], err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
		<-time.After(pauses())
	}
}
