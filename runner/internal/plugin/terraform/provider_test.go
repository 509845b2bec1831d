package terraform_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/internal/controltest"
	"github.com/fairlead/fairlead/runner/internal/plugin"
	"github.com/fairlead/fairlead/runner/internal/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/internal/plugin/terraform"
)

// mirror builds the pinned provider and lays it out as a mirror on disk for
// the default hosts of both tools. It returns the CLI configuration that names
// it.
func mirror(t *testing.T) string {
	t.Helper()
	const version = "0.14.2"
	dir := t.TempDir()
	built := filepath.Join(dir, "provider")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../../tools/providers", "-o", built, "github.com/hashicorp/terraform-provider-time")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		at := filepath.Join(dir, "mirror", host, "hashicorp/time", version, runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(built, filepath.Join(at, "terraform-provider-time_v"+version)); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "tools.tfrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", filepath.Join(dir, "mirror"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// timed is a module with a provider.
var timed = map[string]map[string]string{"timed": {"main.tf": `
terraform {
  required_providers {
    time = { source = "hashicorp/time" }
  }
}
resource "time_static" "now" {}
output "year" { value = time_static.now.year > 2000 }
`}}

// TestModuleWithAProvider: a module that needs a provider is initialised,
// planned and applied; the provider is kept in the runner's cache, which jobs
// that start at once share without harm.
func TestModuleWithAProvider(t *testing.T) {
	config := mirror(t)
	for name, path := range controltest.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			p := terraform.New(terraform.Config{Data: data, Tool: path, CLIConfig: config, PluginCache: filepath.Join(data, "cache"),
				Environ: []string{"PATH=" + os.Getenv("PATH")}})
			one := func(n int) error {
				sp := spec(n, "timed")
				res, err := run(t, p, data, sp, timed)
				if err != nil {
					return fmt.Errorf("plan %d: %w", n, err)
				}
				if res.Plan == nil || res.Plan.NoOp || res.Plan.Changes.Add != 1 {
					return fmt.Errorf("plan %d found %+v", n, res.Plan)
				}
				sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}
				sp.Epoch = 2
				if res, err = run(t, p, data, sp, timed); err != nil {
					return fmt.Errorf("apply %d: %w", n, err)
				}
				if got := string(res.Outputs["year"].Value); got != "true" {
					return fmt.Errorf("apply %d has the output %q", n, got)
				}
				return nil
			}
			var all errgroup.Group
			for n := range 3 {
				all.Go(func() error { return one(n + 1) })
			}
			if err := all.Wait(); err != nil {
				t.Fatal(err)
			}
			kept, err := filepath.Glob(filepath.Join(data, "cache", "*", "hashicorp", "time", "*", "*", "terraform-provider-time*"))
			if err != nil || len(kept) != 1 {
				t.Errorf("the cache holds %q, %v", kept, err)
			}
		})
	}
}

// TestApplyThatNeedsInitGetsIt: what the plan had made ready is not there any
// more. The tool says so before it begins, and so it is run again.
func TestApplyThatNeedsInitGetsIt(t *testing.T) {
	config := mirror(t)
	for name, path := range controltest.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			p := terraform.New(terraform.Config{Data: data, Tool: path, CLIConfig: config, Environ: []string{"PATH=" + os.Getenv("PATH")}})
			sp := spec(1, "timed")
			res, err := run(t, p, data, sp, timed)
			if err != nil {
				t.Fatal(err)
			}
			providers := filepath.Join(data, "plans", string(sp.Job), "init", ".terraform", "providers")
			if _, err := os.Stat(providers); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(providers); err != nil {
				t.Fatal(err)
			}
			sp.Operation, sp.Plan, sp.Epoch = "apply", &events.PlanRef{Job: sp.Job, Digest: res.Plan.Digest}, 2
			log := plugintest.NewLog()
			res, err = p.Run(t.Context(), sp, plugintest.Env(t, data, "job_1-2", log, timed, sp))
			if err != nil || !res.Mutated {
				t.Errorf("mutated %v, %v", res.Mutated, err)
			}
			if n := strings.Count(log.String(), "the tool wants `init`"); n != 1 {
				t.Errorf("it was asked for init %d times:\n%s", n, log)
			}
		})
	}
}

// run runs one job of the plugin in a workspace of its own.
func run(t *testing.T, p plugin.Plugin, data string, sp plugin.Spec, sources map[string]map[string]string) (plugin.Result, error) {
	attempt := fmt.Sprintf("%s-%d", sp.Job, sp.Epoch)
	log := plugintest.NewLog()
	res, err := p.Run(t.Context(), sp, plugintest.Env(t, data, attempt, log, sources, sp))
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, strings.TrimSpace(log.String()))
	}
	return res, err
}
