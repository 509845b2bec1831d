package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/program"
)

// A step runs a spec only if the spec is for this step, is valid now and is signed with the pinned key. For every other
// spec, the step runs no plugin and reports the reason.
func TestInvalidSpecIsRefused(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	resign := func(sp events.JobSpec, _ []byte) []byte {
		env, err := events.NewSigner(other).Sign(context.Background(), sp)
		if err != nil {
			t.Error(err)
		}
		return env
	}
	tampered := func(_ events.JobSpec, env []byte) []byte {
		var e map[string]any
		if err := json.Unmarshal(env, &e); err != nil {
			t.Error(err)
		}
		e["payload"] = "e30=" // {}
		b, _ := json.Marshal(e)
		return b
	}
	now := time.Now()
	for name, tc := range map[string]struct {
		change func(*events.JobSpec)
		tamper func(events.JobSpec, []byte) []byte
		reason string
	}{
		"signed by another key": {tamper: resign, reason: string(fairlead.ReasonSpecSignature)},
		"changed after signing": {tamper: tampered, reason: string(fairlead.ReasonSpecSignature)},
		"no envelope":           {tamper: func(events.JobSpec, []byte) []byte { return []byte(`[]`) }, reason: string(fairlead.ReasonSpecMalformed)},
		"for another runner":    {change: func(sp *events.JobSpec) { sp.Runner = "run_9" }, reason: string(fairlead.ReasonSpecRunner)},
		"for another job":       {change: func(sp *events.JobSpec) { sp.Job = "job_9" }, reason: string(fairlead.ReasonSpecJob)},
		"for another epoch":     {change: func(sp *events.JobSpec) { sp.Epoch = 9 }, reason: string(fairlead.ReasonSpecEpoch)},
		"expired":               {change: func(sp *events.JobSpec) { sp.ExpiresAt = now.Add(-time.Hour) }, reason: string(fairlead.ReasonSpecExpired)},
		"from the future":       {change: func(sp *events.JobSpec) { sp.IssuedAt = now.Add(time.Hour); sp.ExpiresAt = now.Add(2 * time.Hour) }, reason: string(fairlead.ReasonSpecExpired)},
		"an unknown operation":  {change: func(sp *events.JobSpec) { sp.Operation = "format-disk" }, reason: string(fairlead.ReasonSpecOperation)},
		"an unknown plugin":     {change: func(sp *events.JobSpec) { sp.Plugin = "cobol" }, reason: string(fairlead.ReasonSpecOperation)},
	} {
		t.Run(name, func(t *testing.T) {
			sp := checkSpec()
			if tc.change != nil {
				tc.change(&sp)
			}
			s.SetTamper(tc.tamper)
			j := s.UntilFinished(s.Queue(sp))
			if f := j.Finish; f.Outcome != "failed" || f.Reason != tc.reason || f.Message == "" || f.Mutated {
				t.Errorf("finished as %+v", *f)
			}
			if len(j.Log) != 0 {
				t.Errorf("the plugin ran: %s", j.Log)
			}
			s.Until("nothing left on disk", a.empty)
		})
	}
}

func TestTerraformJobFailsWithAReason(t *testing.T) {
	good := map[string]string{"main.tf": exampleModule}
	type setup struct {
		s    *plane.Plane
		a    *agentProcess
		plan plane.Job
		ref  *events.ArtifactRef
	}
	for name, tc := range map[string]struct {
		storage string
		job     func(t *testing.T, u setup) events.JobSpec
		reason  string
		want    string
	}{
		"another plan than the approved one": {job: func(t *testing.T, u setup) events.JobSpec {
			sp := applySpec("apply", "local", u.ref, u.plan)
			sp.Plan.Digest = "sha256:" + strings.Repeat("0", 64)
			return sp
		}, reason: "plan-digest", want: "plan again"},
		"a missing plan": {job: func(t *testing.T, u setup) events.JobSpec {
			sp := applySpec("apply", "local", u.ref, u.plan)
			sp.Plan.Job = "job_of_another_runner"
			return sp
		}, reason: "plan-missing", want: "plan again"},
		"a missing plan in the control plane": {storage: "http", job: func(t *testing.T, u setup) events.JobSpec {
			sp := applySpec("apply", "http", u.ref, u.plan)
			sp.Plan.Job = "job_of_another_runner"
			return sp
		}, reason: "plan-missing", want: "plan again"},
		"the state has changed since the plan": {job: func(t *testing.T, u setup) events.JobSpec {
			between := succeeded(t, u.s.UntilFinished(u.s.Queue(planSpec("local", u.ref))))
			succeeded(t, u.s.UntilFinished(u.s.Queue(applySpec("apply", "local", u.ref, between))))
			return applySpec("apply", "local", u.ref, u.plan)
		}, reason: "plan-stale", want: "plan again"},
		"the state is locked": {storage: "http", job: func(t *testing.T, u setup) events.JobSpec {
			u.s.LockState("ins_1", "web", "alice@example")
			return planSpec("http", u.ref)
		}, reason: "state-locked", want: "alice@example"},
		"the module does not parse": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": `resource "terraform_data" {`}))
		}, reason: "init-failed", want: "init failed"},
		"the module is wrong": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": `output "x" { value = var.nowhere }`}))
		}, reason: "tool-failed", want: "undeclared input variable"},
		"an unavailable provider": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": "terraform {\n  required_providers {\n    nope = { source = \"127.0.0.1:1/no/nope\" }\n  }\n}\nresource \"nope_x\" \"y\" {}\n"}))
		}, reason: "init-failed"},
		"an artifact that is not in the registry": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", &events.ArtifactRef{Repository: u.ref.Repository, Digest: "sha256:" + strings.Repeat("1", 64)})
		}, reason: "artifact-missing"},
		"a module that sets a backend": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": exampleModule,
				"zz_override.tf": "terraform {\n  backend \"local\" { path = \"/tmp/elsewhere\" }\n}\n"}))
		}, reason: "artifact-invalid", want: "the runner sets the backend"},
		"a module that sets a backend in a file with several dots": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": exampleModule,
				"z.z_override.tf": "terraform {\n  backend \"local\" { path = \"elsewhere.tfstate\" }\n}\n"}))
		}, reason: "artifact-invalid", want: "the runner sets the backend"},
		"a module that sets a backend in a JSON escape": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": exampleModule,
				"zz_override.tf.json": `{"terraform": {"back\u0065nd": {"local": {"path": "elsewhere.tfstate"}}}}`}))
		}, reason: "artifact-invalid", want: "the runner sets the backend"},
		"a module that shadows the runner's file": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": exampleModule + "terraform {\n  backend \"local\" { path = \"elsewhere.tfstate\" }\n}\n",
				"fairlead_backend_override.tofu.json": `{}`}))
		}, reason: "artifact-invalid", want: "the runner sets the backend"},
		"an override of something else that mentions a backend": {job: func(t *testing.T, u setup) events.JobSpec {
			return planSpec("local", u.s.Push(map[string]string{"main.tf": exampleModule,
				"my_override.tf": "# our backend is in the cloud\nresource \"terraform_data\" \"it\" { input = file(\"nowhere\") }\n"}))
		}, reason: "tool-failed", want: "nvalid function argument"},
		"a state key that leaves its folder": {job: func(t *testing.T, u setup) events.JobSpec {
			sp := planSpec("local", u.ref)
			sp.State.Key = "../../etc"
			return sp
		}, reason: "spec-invalid"},
		"a variable that is reserved for the runner": {job: func(t *testing.T, u setup) events.JobSpec {
			sp := planSpec("local", u.ref)
			sp.Env = map[string]string{"TF_LOG": "trace"}
			return sp
		}, reason: "env-invalid", want: "TF_LOG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage := tc.storage
			if storage == "" {
				storage = "local"
			}
			s := plane.New(t, plane.Options{})
			a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
			u := setup{s: s, a: a, ref: s.Push(good)}
			u.plan = succeeded(t, s.UntilFinished(s.Queue(planSpec(storage, u.ref))))
			f := s.UntilFinished(s.Queue(tc.job(t, u))).Finish
			if f.Outcome != "failed" || f.Reason != tc.reason || f.Mutated || !strings.Contains(f.Message, tc.want) {
				t.Errorf("finished as %+v", *f)
			}
			t.Log(f.Message)
			s.Until("nothing left on disk", a.empty)
		})
	}
}

func TestMissingToolIsReported(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "", "FAIRLEAD_TOFU=/nowhere/tofu")
	f := s.UntilFinished(s.Queue(planSpec("local", s.Push(map[string]string{"main.tf": ""})))).Finish
	if f.Outcome != "failed" || f.Reason != "tool-missing" || !strings.Contains(f.Message, "FAIRLEAD_TOFU") {
		t.Errorf("finished as %+v", *f)
	}
}

func TestToolGetsNoAmbientVariables(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t), "FAIRLEAD_PASS_ENV=WANTED", "WANTED=was-passed-on", "TF_VAR_name=ambient")
	job := applying(t, s, module(`env; echo working`), func(sp *events.JobSpec) { sp.Env = map[string]string{"FROM_SPEC": "of-the-spec"} })
	log := string(succeeded(t, s.UntilFinished(job)).Log)
	for _, want := range []string{"WANTED=was-passed-on", "FROM_SPEC=of-the-spec", "HOME=", "PATH="} {
		if !strings.Contains(log, want) {
			t.Errorf("the tool's environment lacks %s:\n%s", want, log)
		}
	}
	for _, banned := range []string{"AMBIENT_SECRET", "FAIRLEAD_LAUNCH_TOKEN", "FAIRLEAD_ENROLMENT_TOKEN", "fll_", "flj_", "TF_VAR_name"} {
		if strings.Contains(log, banned) {
			t.Errorf("the tool got %s:\n%s", banned, log)
		}
	}
}

// The test truncates the copy of the state that the tool leaves, as if the disk were full. The step must not report the
// copy as whole.
func TestTornCopyOfAStateIsNotWhole(t *testing.T) {
	t.Parallel()
	wrapper := filepath.Join(t.TempDir(), "tofu")
	script := fmt.Sprintf("#!/bin/sh\n%q \"$@\"\nended=$?\n[ ! -f errored.tfstate ] || truncate -s 100 errored.tfstate\nexit $ended\n", tool(t))
	program.Write(t, wrapper, []byte(script))
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+wrapper, "FAIRLEAD_READABLE="+tool(t))
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	s.RefuseState()
	job := s.Queue(applySpec("apply", "http", ref, plan))
	f := s.UntilFinished(job).Finish
	if f.Outcome != "failed" || f.Reason != "state-incomplete" || !f.Mutated || f.Salvaged == nil || f.Salvaged.Whole {
		t.Errorf("finished as %+v, salvaged %+v", *f, f.Salvaged)
	}
	if b, err := os.ReadFile(filepath.Join(a.Data, "salvage", job+"-1", "errored.tfstate")); err != nil || len(b) != 100 {
		t.Errorf("salvaged %d bytes, %v", len(b), err)
	}
}

func TestUnsavedStateIsSalvaged(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	s.RefuseState()
	job := s.Queue(applySpec("apply", "http", ref, plan))
	f := s.UntilFinished(job).Finish
	if f.Outcome != "failed" || f.Reason != "state-unsaved" || !f.Mutated || f.Salvaged == nil || !f.Salvaged.Whole || f.Salvaged.Path != "salvage/"+job+"-1/errored.tfstate" {
		t.Errorf("finished as %+v, salvaged %+v", *f, f.Salvaged)
	}
	if strings.Contains(f.Message, password) {
		t.Errorf("the message has the password: %s", f.Message)
	}
	kept := filepath.Join(a.Data, "salvage", job+"-1", "errored.tfstate")
	b, err := os.ReadFile(kept)
	if err != nil || !strings.Contains(string(b), "terraform_data") {
		t.Errorf("salvaged: %v %s", err, b)
	}
	if st, err := os.Stat(kept); err == nil && st.Mode().Perm() != 0o600 {
		t.Errorf("the salvaged state is readable for others: %v", st.Mode())
	}
}

func TestApplyNeedsNothingOfThePlansRunner(t *testing.T) {
	t.Parallel()
	// In http storage, the control plane has the plan. So the apply needs nothing that the plan's runner stored.
	s := plane.New(t, plane.Options{})
	a := startKeyed(t, s, "FAIRLEAD_TOFU="+tool(t))
	ref := s.Push(map[string]string{"main.tf": exampleModule, "modules/m/main.tf": `output "x" { value = 1 }`,
		"m.tf": "module \"m\" {\n  source = \"./modules/m\"\n}\n"})
	plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
	for _, dir := range []string{"plans", "tools", "plugin-cache"} {
		if err := os.RemoveAll(filepath.Join(a.Data, dir)); err != nil {
			t.Fatal(err)
		}
	}
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
	if !opensWith(t, a, s.State("ins_1", "web"), "terraform_data") {
		t.Error("the control plane has no state")
	}
}

func TestModuleWithItsOwnBackendAndModules(t *testing.T) {
	for tool, path := range tofu.Tools(t) {
		for backend, block := range map[string]string{
			"backend": `terraform {
  backend "s3" {}
}`,
			"cloud": `terraform {
  cloud {
    organization = "example"
    workspaces { name = "none" }
  }
}`,
		} {
			t.Run(tool+"/"+backend, func(t *testing.T) {
				t.Parallel()
				s := plane.New(t, plane.Options{})
				a := startAgent(t, s, "", "FAIRLEAD_TOFU="+path)
				ref := s.Push(map[string]string{"main.tf": exampleModule + block, "modules/m/main.tf": `output "x" { value = 1 }`,
					"m.tf": "module \"m\" {\n  source = \"./modules/m\"\n}\n"})
				plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("local", ref))))
				apply := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan))))
				if hasLine(apply.Log, "nitializing") {
					t.Errorf("init ran again for the apply:\n%s", apply.Log)
				}
				if _, err := os.Stat(filepath.Join(a.Data, "state/ins_1/web/terraform.tfstate")); err != nil {
					t.Errorf("the state's file is missing: %v", err)
				}
			})
		}
	}
}

func TestHostileArtifactIsRefused(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	outside := filepath.Join(t.TempDir(), "outside")
	for name, headers := range map[string][]tar.Header{
		"a link to the outside":   {{Name: "main.tf", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		"a path to the outside":   {{Name: "../../../../../../../.." + outside, Typeflag: tar.TypeReg, Mode: 0o644}},
		"an absolute path":        {{Name: outside, Typeflag: tar.TypeReg, Mode: 0o644}},
		"a device":                {{Name: "disk", Typeflag: tar.TypeBlock, Devmajor: 8}},
		"more files than allowed": manyFiles(20_000),
		"init's own folder":       {{Name: ".terraform/terraform.tfstate", Typeflag: tar.TypeReg, Mode: 0o644}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range headers {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			f := s.UntilFinished(s.Queue(planSpec("local", s.PushArchive(b.Bytes())))).Finish
			if f.Outcome != "failed" || f.Reason != "artifact-invalid" {
				t.Errorf("finished as %+v", *f)
			}
			if _, err := os.Lstat(outside); err == nil {
				t.Error("a file was written outside of the workspace")
			}
			s.Until("nothing left on disk", a.empty)
		})
	}
}

func manyFiles(n int) []tar.Header {
	hs := make([]tar.Header, n)
	for i := range hs {
		hs[i] = tar.Header{Name: fmt.Sprintf("f%d.tf", i), Typeflag: tar.TypeReg, Mode: 0o644}
	}
	return hs
}
