package main

import (
	"context"
	"debug/elf"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/moby/moby/client"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
)

// TestDocker runs the script of a runner whose steps are containers, with a real control
// plane, agent, engine and tool. The image contains only the runner and the tool.
func TestDocker(t *testing.T) {
	tool := toolOrSkip(t)
	if f, err := elf.Open(tool); err != nil || dynamic(f) {
		t.Skipf("SKIPPED: NO SCRIPT WITH CONTAINERS RAN. %s needs libraries, and the empty image has none (%v); set a tool that was built with CGO_ENABLED=0 in FAIRLEAD_TOFU.", tool, err)
	}
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	image := dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner"), "/tofu": tool}, "/runner")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("story", func(t *testing.T) {
		p := params("docker")
		p.Cmds["ready"], p.Cmds["until"] = ready, until
		p.Cmds["no-containers"] = func(ts *testscript.TestScript, neg bool, args []string) {
			left, err := containers(host)
			ts.Check(err)
			if len(left) > 0 {
				ts.Fatalf("containers are left: %v", left)
			}
		}
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("DOCKER", host)
			env.Setenv("IMAGE", image)
			return setup(env)
		}
		testscript.Run(t, p)
	})
}

// dynamic reports whether a program is dynamically linked, so that it needs a loader.
func dynamic(f *elf.File) bool {
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true
		}
	}
	return false
}

// containers returns the names and states of the runners' containers.
func containers(host string) ([]string, error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "fairlead.dev/runner")})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, fmt.Sprint(item.Names, item.State))
	}
	return names, nil
}
