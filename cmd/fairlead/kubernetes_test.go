package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
)

// TestKubernetes runs the scripts of apps with objects and charts: `fairlead dev` with a real tool and a real API server, and the
// program of the plugins.
func TestKubernetes(t *testing.T) {
	tool := toolOrSkip(t)
	var server kube.Server
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	plugins := filepath.Dir(program.Build(t, "runner/kubernetes"))
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("story", func(t *testing.T) {
		p := params("kubernetes")
		p.Cmds["ready"], p.Cmds["id"], p.Cmds["until"] = ready, id, until
		p.Cmds["api"] = apiOf(t, kubeconfig)
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			env.Setenv("FAIRLEAD_TOFU", tool)
			env.Setenv("FAIRLEAD_PLUGINS", plugins)
			env.Setenv("KUBECONFIG", kubeconfig)
			env.Setenv("FAIRLEAD_PASS_ENV", "KUBECONFIG")
			env.Setenv("EXAMPLES", examples)
			return setup(env)
		}
		testscript.Run(t, p)
	})
}

// apiOf returns a command that sends one request to the API server as its administrator and prints the answer:
// "api METHOD PATH STATUS [BODY]".
func apiOf(t *testing.T, kubeconfig string) func(*testscript.TestScript, bool, []string) {
	t.Helper()
	client, err := kube.NewClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 3 || len(args) > 4 {
			ts.Fatalf("usage: api METHOD PATH STATUS [BODY]")
		}
		status, answer, err := client.Do(t.Context(), args[0], args[1], strings.Join(args[3:], ""))
		ts.Check(err)
		if got := strconv.Itoa(status); got != args[2] {
			ts.Fatalf("%s %s is answered with %s, want %s: %s", args[0], args[1], got, args[2], answer)
		}
		_, err = ts.Stdout().Write(answer)
		ts.Check(err)
	}
}
