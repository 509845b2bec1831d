package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

const timed = `
terraform {
  required_providers {
    time = { source = "hashicorp/time" }
  }
}
resource "time_static" "now" {}
output "year" { value = time_static.now.year > 2000 }
`

// ofInstall returns the spec for another install.
func ofInstall(sp events.JobSpec, install string) events.JobSpec {
	state := *sp.State
	state.Key, state.Path = install+"/web", "/runner/v1/state/"+install+"/web"
	sp.Install, sp.InstallName, sp.State = fairlead.InstallID(install), install, &state
	return sp
}

// fake replaces the provider in a mirror by a program that is not a provider. When the program runs, it writes a line to
// the file ran.
func fake(t *testing.T, m tofu.Mirror, ran string) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "fake")
	err := os.WriteFile(script, []byte("#!/bin/sh\necho ran >>'"+ran+"'\nexit 1\n"), 0o700)
	for _, file := range m.Files {
		err = errors.Join(err, tofu.Archive(file, "terraform-provider-time_v0.14.2", script))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Later jobs of an install use the provider that its first job downloaded. After the first job, the test replaces the
// provider in the mirror, so that a job that downloads it fails. A job of another install fails in this way. This shows
// that the test can detect a download.
func TestSecondJobUsesTheCachedProvider(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		for _, storage := range []string{"local", "http"} {
			t.Run(tool+"/"+storage, func(t *testing.T) {
				s, m := plane.New(t, plane.Options{}), tofu.NewMirror(t, true)
				startAgent(t, s, "", "FAIRLEAD_TOFU="+path, "FAIRLEAD_TF_CLI_CONFIG_FILE="+m.Config)
				ref := s.Push(map[string]string{"main.tf": timed})
				bare := func(sp events.JobSpec) events.JobSpec { sp.Vars = nil; return sp }
				plan := succeeded(t, s.UntilFinished(s.Queue(bare(planSpec(storage, ref)))))
				ran := filepath.Join(t.TempDir(), "ran")
				fake(t, m, ran)
				// No pause: the agent may get the apply before it sees the end of the plan's step.
				succeeded(t, s.UntilFinished(s.Queue(bare(applySpec("apply", storage, ref, plan)))))
				succeeded(t, s.UntilFinished(s.Queue(bare(planSpec(storage, ref)))))
				if _, err := os.Stat(ran); err == nil {
					t.Error("a provider was downloaded again")
				}
				j := s.UntilFinished(s.Queue(ofInstall(bare(planSpec(storage, ref)), "ins_2")))
				if _, err := os.Stat(ran); err != nil || j.Finish.Outcome != "failed" {
					t.Errorf("a job of another install used this install's provider: %+v, %v", *j.Finish, err)
				}
			})
		}
	}
}

// The module's lock file has the hash of the cached provider, so jobs of another install need not download it again.
func TestLockFileAllowsProvidersOfOtherInstalls(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			s, m := plane.New(t, plane.Options{}), tofu.NewMirror(t, true)
			startAgent(t, s, "", "FAIRLEAD_TOFU="+path, "FAIRLEAD_TF_CLI_CONFIG_FILE="+m.Config)
			// The first job prints its lock file.
			first := s.Push(map[string]string{"main.tf": timed + "output \"lock\" { value = fileexists(\".terraform.lock.hcl\") ? file(\".terraform.lock.hcl\") : \"\" }\n"})
			sp := planSpec("http", first)
			sp.Vars = nil
			plan := succeeded(t, s.UntilFinished(s.Queue(sp)))
			apply := applySpec("apply", "http", first, plan)
			j := succeeded(t, s.UntilFinished(s.Queue(apply)))
			var lock string
			if err := json.Unmarshal(j.Finish.Outputs["lock"].Value, &lock); err != nil || !strings.Contains(lock, "h1:") {
				t.Fatalf("the lock file is %q, %v", lock, err)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			fake(t, m, ran)
			sp.Artifact = s.Push(map[string]string{"main.tf": timed, ".terraform.lock.hcl": lock})
			succeeded(t, s.UntilFinished(s.Queue(ofInstall(sp, "ins_2"))))
			if _, err := os.Stat(ran); err == nil {
				t.Error("the provider was downloaded again")
			}
		})
	}
}

// A hostile module replaces the providers in the runner's cache by its own program. Later jobs of other installs must not
// run this program, because it would get their credentials.
func TestAlteredProviderDoesNotRun(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			s, m := plane.New(t, plane.Options{}), tofu.NewMirror(t, true)
			a := startAgent(t, s, "", "FAIRLEAD_TOFU="+path, "FAIRLEAD_TF_CLI_CONFIG_FILE="+m.Config,
				"FAIRLEAD_ISOLATION=off") // isolation would prevent the write to the cache
			ref := s.Push(map[string]string{"main.tf": timed})
			sp := planSpec("http", ref)
			sp.Vars = nil
			succeeded(t, s.UntilFinished(s.Queue(sp)))

			ran := filepath.Join(t.TempDir(), "ran")
			hostile := s.Push(map[string]string{"main.tf": fmt.Sprintf(`
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = <<-E
      for f in $(find '%s/plugin-cache' -name 'terraform-provider-time_*' -type f); do
        rm -f "$f"; printf '#!/bin/sh\necho ran >>%s\nexit 1\n' >"$f"; chmod 700 "$f"; echo "altered $f"
      done
    E
  }
}`, a.Data, ran)})
			evil := ofInstall(sp, "ins_2")
			evil.Artifact = hostile
			plan := succeeded(t, s.UntilFinished(s.Queue(evil)))
			evil.Operation, evil.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(plan.ID), Digest: plan.Finish.Plan.Digest}
			if j := succeeded(t, s.UntilFinished(s.Queue(evil))); !strings.Contains(string(j.Log), "altered /") {
				t.Fatalf("nothing was altered:\n%s", j.Log)
			}
			succeeded(t, s.UntilFinished(s.Queue(sp)))
			if _, err := os.Stat(ran); err == nil {
				t.Error("the program of the other install's job ran")
			}
			if !strings.Contains(a.out.String(), "a cached provider was altered") {
				t.Error("the agent's log has no warning")
			}
		})
	}
}

// In a customer's stack, jobs on empty disks share providers through the stack's bucket, with the role of their operation. A job
// of any operation can replace an archive there, so another archive than the locked one is refused, and is downloaded again.
func TestEmptyDisksShareProvidersInTheBucket(t *testing.T) {
	t.Parallel()
	m := tofu.NewMirror(t, true)
	registry := tofu.NewRegistry(t, m.Files[0])
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			name := "providers-" + strings.ToLower(strings.ReplaceAll(tool, "_", "-"))
			b := newBucket(t, name, true)
			s := plane.New(t, plane.Options{Stack: true})
			env := append(inStack(t, b.endpoint), "FAIRLEAD_TOFU="+path, "FAIRLEAD_TF_CLI_CONFIG_FILE="+registry.Config, "FAIRLEAD_PROVIDER_MIRROR=s3://"+name+"/providers/")
			host := "registry.opentofu.org"
			if filepath.Base(path) == "terraform" {
				host = "registry.terraform.io"
			}
			ref := s.Push(map[string]string{"main.tf": timed, ".terraform.lock.hcl": fmt.Sprintf("provider \"%s/hashicorp/time\" {\n  version = \"0.14.2\"\n  hashes  = [%q]\n}\n", host, registry.Hash)})
			sp := planSpec("http", ref)
			sp.Vars, sp.Env = nil, map[string]string{"AWS_ENDPOINT_URL_S3": b.endpoint}
			// planned plans on an empty disk, and returns how often the provider was downloaded.
			planned := func() int {
				t.Helper()
				before := registry.Downloads()
				a := startAgent(t, s, "", env...)
				succeeded(t, s.UntilFinished(s.Queue(sp)))
				a.kill()
				return registry.Downloads() - before
			}
			if n := planned(); n != 1 {
				t.Errorf("the first job downloaded the provider %d times, want once", n)
			}
			object := "providers/" + host + "/hashicorp/time/" + filepath.Base(m.Files[0])
			if got := b.keys(); len(got) != 1 || got[0] != object {
				t.Fatalf("the bucket has %q, want only %s", got, object)
			}
			if n := planned(); n != 0 {
				t.Errorf("the second job downloaded the provider %d times", n)
			}

			real := b.read(object)
			b.write(object, "planted")
			if n := planned(); n != 1 {
				t.Errorf("with another archive in the bucket, the job downloaded the provider %d times, want once", n)
			}
			if b.read(object) != real {
				t.Error("the bucket still has the other archive")
			}
		})
	}
}

// A mistake in the location of the mirror is found when the agent starts, and not by each job.
func TestWrongProviderMirrorIsRefused(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_PROVIDER_MIRROR=s3:/providers")
	<-a.done
	if a.err == nil || !strings.Contains(a.out.String(), `FAIRLEAD_PROVIDER_MIRROR: the provider mirror "s3:/providers" is neither`) {
		t.Errorf("the agent ended with %v:\n%s", a.err, a.out)
	}
}
