//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/kotool"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// TestClosedInstallNeedsNoOtherNetwork runs the script of an install whose runner is in a network with three doors: its registry,
// its cluster and the control plane. The runner's agent, its Docker Engine, the steps and their programs are all inside. The kernel
// counts each packet that would leave the network, and the vendor's registry counts each connection from inside.
func TestClosedInstallNeedsNoOtherNetwork(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	tool := toolOrSkip(t)
	network := e2e.NewClosedNetwork(t)
	var server kube.Server
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	engine := dockerd.Server{Within: network.Within()}
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	image := dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner"), "/tofu": tool,
		"/plugins/images": program.Build(t, "runner/images"), "/plugins/kubernetes": program.Build(t, "runner/kubernetes")}, "/runner")
	tools := dockerd.ImageWith(t, host, "tool", map[string]string{"/vendor/tool": program.Build(t, "test/vendortool")})
	archive := tofu.NewMirror(t, true).Files[0]
	plugins, compiler := program.Copies(t, "runner/kubernetes", "runner/images"), kotool.Bin(t)
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster := regexp.MustCompile(`https://(127\.0\.0\.1:[0-9]+)`).FindSubmatch(text)
	if cluster == nil {
		t.Fatalf("the cluster is not on this machine:\n%s", text)
	}
	t.Run("story", func(t *testing.T) {
		p := params("closednetwork")
		p.Cmds["ready"], p.Cmds["id"], p.Cmds["until"], p.Cmds["built"] = ready, id, until, built
		p.Cmds["api"], p.Cmds["expand"] = apiOf(t, kubeconfig), expand
		doors := map[string]*e2e.Door{}
		p.Cmds["door"] = func(ts *testscript.TestScript, neg bool, args []string) { // door NAME ADDRESS: connections inside reach it
			doors[args[0]] = network.Door(t, args[1])
		}
		p.Cmds["shut"] = func(ts *testscript.TestScript, neg bool, args []string) { doors[args[0]].Shut() } // shut NAME
		p.Cmds["contacts"] = func(ts *testscript.TestScript, neg bool, args []string) {                     // contacts: something inside has tried to reach anything else
			n := network.Refused(t)
			for _, d := range doors {
				n += d.Knocks()
			}
			if n > 0 == neg {
				ts.Fatalf("%d packets and connections had another destination", n)
			}
		}
		p.Cmds["push"] = func(ts *testscript.TestScript, neg bool, args []string) { // push VARIABLE REFERENCE PLATFORM...: the variable gets the digest
			ts.Setenv(args[0], registriesOf(ts).vendor.Push(t, args[1], args[2:]...))
		}
		p.Cmds["pushtools"] = func(ts *testscript.TestScript, neg bool, args []string) { // pushtools VARIABLE REPOSITORY: the image of a script
			ts.Setenv(args[0], dockerd.Pushed(t, host, tools, registriesOf(ts).vendor.Host+"/"+args[1]))
		}
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			r := registries{imagetest.Start(t), imagetest.Start(t)}
			env.Values[registries{}] = r
			for name, value := range map[string]string{
				"FAIRLEAD_PLUGINS": plugins, "FAIRLEAD_REGISTRY": program.Build(t, "cmd/fairlead-registry"), "FAIRLEAD_TOFU": tool,
				"VENDOR": r.vendor.Host, "REGISTRY": r.own.Host, "CLUSTER": string(cluster[1]), "KUBECONFIG_FILE": kubeconfig,
				"PROVIDERS": filepath.Join(filepath.Dir(archive), "../../.."), "PLATFORM": runtime.GOOS + "/" + runtime.GOARCH, "ARCHIVE": hashOf(t, archive),
				"PATH": compiler + string(filepath.ListSeparator) + env.Getenv("PATH"), "BASE": imagebuildtest.Base(t, r.vendor.Host+"/static", nil, "linux/amd64"),
				"RUNNER": program.Build(t, "runner"), "WITHIN": strings.Join(network.Within(), " "), "DOCKER": host, "IMAGE": image,
			} {
				env.Setenv(name, value)
			}
			return setup(env)
		}
		testscript.Run(t, p)
	})
}
