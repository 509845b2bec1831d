package terraform_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/program"
)

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

// A module with a provider is initialized, planned and applied, also by jobs that start at once. No job writes to the
// shared cache.
func TestModuleWithAProvider(t *testing.T) {
	config := tofu.NewMirror(t, false).Config
	for name, path := range tofu.Tools(t) {
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
			if left, err := os.ReadDir(filepath.Join(data, "cache")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the cache has %v, %v", left, err)
			}
		})
	}
}

// counted is timed with outputs of each kind.
var counted = map[string]map[string]string{"timed": {"main.tf": timed["timed"]["main.tf"] + `
output "secret" {
  value     = "hush"
  sensitive = true
}
output "large" { value = 12345678901234567890 }
output "nothing" { value = null }
`}}

// The plan of an unchanged deployment starts no provider more often than the tool's plan alone. Describing a plan without
// changes through the tool would start each provider again.
func TestUnchangedPlanStartsNoProviderAgain(t *testing.T) {
	mirror := tofu.NewMirror(t, false)
	starts := filepath.Join(t.TempDir(), "starts")
	for i, file := range mirror.Files {
		real := filepath.Join(filepath.Dir(starts), fmt.Sprintf("provider-%d", i)) // until here both are one file
		script := fmt.Sprintf("#!/bin/sh\necho start >>%s\nexec %s \"$@\"\n", starts, real)
		if err := errors.Join(os.Link(file, real), os.Remove(file)); err != nil {
			t.Fatal(err)
		}
		program.Write(t, file, []byte(script))
	}
	// providerStarts returns how often f starts a provider.
	providerStarts := func(f func()) int {
		t.Helper()
		if err := os.WriteFile(starts, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		f()
		b, err := os.ReadFile(starts)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "start")
	}
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			p := terraform.New(terraform.Config{Data: data, Tool: path, CLIConfig: mirror.Config, Environ: []string{"PATH=" + os.Getenv("PATH")}})
			runJob := func(n int, operation string, plan *events.PlanRef) plugin.Result {
				t.Helper()
				sp := spec(1, "timed")
				sp.Job, sp.Operation, sp.Plan = spec(n, "timed").Job, operation, plan
				res, err := run(t, p, data, sp, counted)
				if err != nil {
					t.Fatalf("%s: %v", operation, err)
				}
				return res
			}
			planned := runJob(1, "plan", nil)
			applied := runJob(2, "apply", &events.PlanRef{Job: spec(1, "timed").Job, Digest: planned.Plan.Digest})
			var again plugin.Result
			got := providerStarts(func() { again = runJob(3, "plan", nil) })
			if !again.Plan.NoOp || !reflect.DeepEqual(again.Outputs, applied.Outputs) || len(again.Outputs) != 3 || len(again.Plan.ChangeSet.Changes) != 0 || again.Plan.ChangeSet.Base == nil {
				t.Errorf("plan %+v with outputs %v; outputs of the apply %v", again.Plan, again.Outputs, applied.Outputs)
			}

			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(counted["timed"]["main.tf"]), 0o600); err != nil {
				t.Fatal(err)
			}
			runTool := func(args ...string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), path, args...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "TF_CLI_CONFIG_FILE="+mirror.Config)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", args, err, out)
				}
			}
			runTool("init", "-input=false")
			runTool("apply", "-auto-approve", "-input=false")
			want := providerStarts(func() { runTool("plan", "-detailed-exitcode", "-input=false", "-out=plan") })
			if want == 0 || got != want {
				t.Errorf("an unchanged deployment started the provider %d times, the tool's plan alone %d times", got, want)
			}
		})
	}
}

// If the result of the plan's init is missing, the tool reports it before its first change. The plugin then runs init, and
// the apply again.
func TestApplyRunsInitIfItIsNeeded(t *testing.T) {
	config := tofu.NewMirror(t, false).Config
	for name, path := range tofu.Tools(t) {
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
				t.Errorf("mutated %v, error %v", res.Mutated, err)
			}
			if n := strings.Count(log.String(), "the tool asks for `init`"); n != 1 {
				t.Errorf("the tool asked for init %d times:\n%s", n, log)
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
