package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// TestBundle runs the scripts of closed apps: `fairlead dev` with a real API server, the programs of the plugins, the registry of a
// vendor, and the registry of an install.
func TestBundle(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	var server kube.Server
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	plugins := program.Copies(t, "runner/kubernetes", "runner/images")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	tool := toolOrSkip(t)
	signer := imagetest.NewSigner(t)
	archive := tofu.NewMirror(t, true).Files[0]
	t.Run("story", func(t *testing.T) {
		p := params("bundle")
		p.Cmds["ready"], p.Cmds["id"], p.Cmds["until"] = ready, id, until
		p.Cmds["api"], p.Cmds["expand"], p.Cmds["example"] = apiOf(t, kubeconfig), expand, example
		p.Cmds["push"] = func(ts *testscript.TestScript, neg bool, args []string) { // push VARIABLE REFERENCE PLATFORM...: the variable gets the digest
			ts.Setenv(args[0], registriesOf(ts).vendor.Push(t, args[1], args[2:]...))
		}
		p.Cmds["sign"] = func(ts *testscript.TestScript, neg bool, args []string) { // sign REPOSITORY DIGEST
			registriesOf(ts).vendor.Attach(t, args[0], args[1], signer.Bundle(t, args[1], imagetest.Predicate))
		}
		p.Cmds["lines"] = func(ts *testscript.TestScript, neg bool, args []string) { // lines FILE LINE...
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(args[1:], "\n")+"\n"), 0o600))
		}
		p.Cmds["vendor"] = func(ts *testscript.TestScript, neg bool, args []string) { // vendor down|up: nothing reaches the vendor's registry
			registriesOf(ts).vendor.Proxy.SetDown(args[0] == "down")
		}
		p.Cmds["pulls"] = func(ts *testscript.TestScript, neg bool, args []string) { // pulls REPOSITORY@DIGEST: with all layers, from the install's registry
			if got := registriesOf(ts).own.Pull(t, args[0]); (got != "" && strings.HasSuffix(args[0], got)) == neg {
				ts.Fatalf("%s is %q", args[0], got)
			}
		}
		p.Cmds["private"] = func(ts *testscript.TestScript, neg bool, args []string) { // private FILE: starts the registry PRIVATE, and writes its CA
			host, ca := imagetest.StartPrivate(t)
			ts.Setenv("PRIVATE", host)
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ca), 0o600))
		}
		p.Cmds["capture"] = capture
		p.Cmds["chart"] = chart
		p.Files, p.Dir = storiesOf(t, p.Dir), ""
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			r := registries{imagetest.Start(t), imagetest.Start(t)}
			env.Values[registries{}] = r
			env.Setenv("FAIRLEAD_PLUGINS", plugins)
			env.Setenv("FAIRLEAD_REGISTRY", program.Build(t, "cmd/fairlead-registry"))
			env.Setenv("FAIRLEAD_TOFU", tool)
			env.Setenv("KUBECONFIG", kubeconfig)
			env.Setenv("FAIRLEAD_PASS_ENV", "KUBECONFIG")
			env.Setenv("EXAMPLES", examples)
			env.Setenv("VENDOR", r.vendor.Host)
			env.Setenv("REGISTRY", r.own.Host)
			env.Setenv("KEY", signer.PEM)
			env.Setenv("PROVIDERS", filepath.Join(filepath.Dir(archive), "../../.."))
			env.Setenv("PLATFORM", runtime.GOOS+"/"+runtime.GOARCH)
			env.Setenv("ARCHIVE", hashOf(t, archive))
			return setup(env)
		}
		testscript.Run(t, p)
	})
}

// hashOf returns the hash of an archive of a provider, as a lock file has it.
func hashOf(t *testing.T, archive string) string {
	t.Helper()
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return "zh:" + hex.EncodeToString(sum[:])
}

// capture sets a variable to the group of a pattern in the standard output: "capture VARIABLE PATTERN".
func capture(ts *testscript.TestScript, neg bool, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("the standard output has no %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// registries are those of a script: of a vendor, and of an install.
type registries struct{ vendor, own *imagetest.Registry }

func registriesOf(ts *testscript.TestScript) registries { return ts.Value(registries{}).(registries) }

// example copies an example, without its lock, and puts the vendor's registry in place of the invented one: "example FROM TO".
func example(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(filepath.WalkDir(args[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "images.lock" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(ts.MkAbs(args[1]), strings.TrimPrefix(path, args[0]))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.WriteFile(to, []byte(strings.ReplaceAll(string(text), "registry.example.com", ts.Getenv("VENDOR"))), 0o600)
	}))
}

// expand replaces @NAME@ in files by the variable NAME: "expand FILE...".
func expand(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		text := ts.ReadFile(name)
		parts := strings.Split(text, "@")
		for i := 1; i+1 < len(parts); i++ {
			if value := ts.Getenv(parts[i]); value != "" {
				text = strings.ReplaceAll(text, "@"+parts[i]+"@", value)
			}
		}
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}
