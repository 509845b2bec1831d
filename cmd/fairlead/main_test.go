package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/planetest"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func TestMain(m *testing.M) {
	// The test binary is the program whenever it is called by its name, or
	// starts itself as a runner: stories run real processes.
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(run())
	}
	testscript.Main(m, map[string]func(){"fairlead": main})
}

// TestAlone tells the stories that need no control plane.
func TestAlone(t *testing.T) {
	testscript.Run(t, params("alone"))
}

// TestFaults tells the stories of control planes that misbehave.
func TestFaults(t *testing.T) {
	p := params("faults")
	p.Cmds["plane"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: plane SCENARIO")
		}
		s := ts.Value(storyKey{}).(*story)
		s.plane = planetest.New(t)
		scenario, ok := scenarios()[args[0]]
		if !ok {
			ts.Fatalf("there is no scenario %q", args[0])
		}
		scenario(s.plane)
		ts.Setenv("FAIRLEAD_URL", s.plane.URL)
	}
	p.Cmds["seen"] = func(ts *testscript.TestScript, neg bool, args []string) {
		n, err := strconv.Atoi(args[1])
		if neg || err != nil {
			ts.Fatalf("usage: seen OPERATION TIMES")
		}
		ts.Value(storyKey{}).(*story).plane.Await(t, wire.Route{ID: args[0]}, n)
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Values[storyKey{}] = &story{}
		return setup(env)
	}
	testscript.Run(t, p)
}

// story is what the commands of one script share.
type story struct{ plane *planetest.Plane }

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
			env.Setenv("FAIRLEAD_CONFIG_DIR", filepath.Join(env.WorkDir, ".config"))
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, ".data"))
			return nil
		},
	}
}

// exits runs a program and wants a certain exit code: "exits 3 fairlead …".
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

func scenarios() map[string]func(*planetest.Plane) {
	running := wire.Deployment{ID: "dep_1", Install: "acme", App: "shop", Version: "ver_1", Kind: "deploy", State: "running",
		Components: []wire.DeploymentComponent{{Name: "web", State: "planning", PlanJob: "job_1"}}}
	return map[string]func(*planetest.Plane){
		"internal": func(p *planetest.Plane) { p.Fail(planetest.Internal) },
		"gateway": func(p *planetest.Plane) {
			for range 5 {
				p.Fail(planetest.Unavailable)
			}
		},
		"pages": func(p *planetest.Plane) {
			for _, id := range []string{"dep_1", "dep_2", "dep_3"} {
				p.SetDeployment(wire.Deployment{ID: id, Install: "acme", Kind: "deploy", State: "succeeded"})
			}
		},
		"endless": func(p *planetest.Plane) {
			p.Log("job_1", 1, "thinking\n")
			p.SetDeployment(running)
		},
		"hostile": func(p *planetest.Plane) {
			p.Log("job_1", 1, "\x1b]0;owned\x07one\ntw\x1b[2Jo\r\nlast")
			p.EndLog("job_1")
		},
	}
}
