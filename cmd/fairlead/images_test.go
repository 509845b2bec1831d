package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/tools/program"
)

// TestImages runs the scripts of apps with images: `fairlead dev` with its own registry, the program of the plugin, and the registry of
// a vendor.
func TestImages(t *testing.T) {
	tool := toolOrSkip(t)
	plugins, registry := filepath.Dir(program.Build(t, "runner/images")), program.Build(t, "cmd/fairlead-registry")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	vendor, signer := imagetest.Start(t), imagetest.NewSigner(t)
	t.Run("story", func(t *testing.T) {
		p := params("images")
		p.Cmds["ready"], p.Cmds["id"], p.Cmds["until"] = ready, id, until
		p.Cmds["push"] = func(ts *testscript.TestScript, neg bool, args []string) { // push VARIABLE REFERENCE PLATFORM...: the variable gets the digest
			ts.Setenv(args[0], vendor.Push(t, args[1], args[2:]...))
		}
		p.Cmds["sign"] = func(ts *testscript.TestScript, neg bool, args []string) { // sign REPOSITORY DIGEST
			signer.Payload(t, vendor, args[0], args[1], args[1])
			vendor.Attach(t, args[0], args[1], signer.Bundle(t, args[1], imagetest.Predicate))
		}
		p.Cmds["lines"] = func(ts *testscript.TestScript, neg bool, args []string) { // lines FILE LINE...
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(args[1:], "\n")+"\n"), 0o600))
		}
		p.Cmds["manifest"], p.Cmds["certificate"] = manifest, certificate
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			env.Setenv("FAIRLEAD_TOFU", tool)
			env.Setenv("FAIRLEAD_PLUGINS", plugins)
			env.Setenv("FAIRLEAD_REGISTRY", registry)
			env.Setenv("EXAMPLES", examples)
			env.Setenv("VENDOR", vendor.Host)
			env.Setenv("KEY", signer.PEM)
			return setup(env)
		}
		testscript.Run(t, p)
	})
}

// manifest asks the registry of `fairlead dev` for the manifest of a reference HOST/REPOSITORY@DIGEST with the administrator's token, and
// compares the status: "manifest STATUS REFERENCE".
func manifest(ts *testscript.TestScript, neg bool, args []string) {
	host, rest, _ := strings.Cut(args[1], "/")
	repository, digest, ok := strings.Cut(rest, "@")
	token, err := os.ReadFile(ts.Getenv("TOKEN_FILE"))
	if neg || !ok || err != nil {
		ts.Fatalf("usage: manifest STATUS HOST/REPOSITORY@DIGEST; the token: %v", err)
	}
	req, err := http.NewRequest(http.MethodGet, "http://"+host+"/v2/"+repository+"/manifests/"+digest, http.NoBody)
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	resp.Body.Close()
	if !strings.HasPrefix(resp.Status, args[0]+" ") {
		ts.Fatalf("the registry answers %s, want %s", resp.Status, args[0])
	}
}
