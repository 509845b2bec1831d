package main

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// toolPath is the path of the scripts' interpreter in toolImage.
const toolPath = "/vendor/tool"

// pushedToolImage is toolImage by digest, in a registry.
func pushedToolImage(t *testing.T, host string, in *httptest.Server) string {
	t.Helper()
	return dockerd.Pushed(t, host, toolImage(t, host), strings.TrimPrefix(in.URL, "http://")+"/tools")
}

// toolImage returns an image of the engine with the interpreter of scripts. Its settings attack a step: some lead it to another
// proxy or other credentials, some start a program of the image.
func toolImage(t *testing.T, host string) string {
	t.Helper()
	return dockerd.ImageWith(t, host, "tool", map[string]string{toolPath: program.Build(t, "test/vendortool")},
		`ENTRYPOINT ["`+toolPath+`"]`, "USER 4321", "WORKDIR /vendor", `HEALTHCHECK --interval=1s CMD ["`+toolPath+`"]`,
		"ENV PATH=/vendor/bin", "ENV MINE=of-the-image", "ENV HOME=/vendor/home", "ENV GODEBUG=http2debug=2,inittrace=1", "ENV GOMEMLIMIT=1",
		"ENV HTTP_PROXY=http://127.0.0.1:1", "ENV HTTPS_PROXY=http://127.0.0.1:1", "ENV SSL_CERT_FILE=/vendor/roots.pem", "ENV SSL_CERT_DIR=/vendor",
		"ENV AWS_ENDPOINT_URL=http://127.0.0.1:1", "ENV FAIRLEAD_LAUNCH_TOKEN=planted", "ENV FAIRLEAD_STEP_INPUT={}", "ENV FAIRLEAD_STEP_IMAGE=planted",
		"ENV FAIRLEAD_STEP_IMAGE_ENVIRONMENT=[]", "ENV FAIRLEAD_STEP_VARIABLES=planted")
}

// scriptIn returns the spec of the plan of a script in an image.
func scriptIn(s *plane.Plane, image string) events.JobSpec {
	return events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: "seed", Timeout: 120, Grace: 5, Image: image,
		Artifact: s.PushOf("seed", map[string]string{"run": "#!" + toolPath + "\n"})}
}

// A script in an image of its own finds the files and variables of the image. The step around it is that of every other job:
// its lease, log, outputs and change set.
func TestScriptRunsInAnImageOfItsOwn(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	t.Parallel()
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	runner := dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner")}, "/runner")
	vendors := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(vendors.Close)
	image := pushedToolImage(t, host, vendors)
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", file("{type: docker, host: '"+host+"', job: {image: '"+runner+"', network: host}}"))

	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	spec := scriptIn(s, image)
	planned := succeeded(t, s.UntilFinished(s.Queue(spec)))
	if !strings.Contains(string(planned.Log), "Image:        "+image) {
		t.Errorf("the plan does not show the image:\n%s", planned.Log)
	}
	set := planned.Finish.Plan.ChangeSet
	if set == nil || len(set.Changes) != 1 {
		t.Fatalf("the change set is %+v", set)
	}
	if after, _ := set.Changes[0].After.(map[string]any); set.Changes[0].Action != changeset.Run || after["image"] != image {
		t.Errorf("the row is %+v", set.Changes[0])
	}
	spec.Operation, spec.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
	applied := succeeded(t, s.UntilFinished(s.Queue(spec)))
	text := string(applied.Log)
	for _, want := range []string{"arguments: ./run apply", "variable: MINE=of-the-image", "variable: PATH=/vendor/bin", "variable: GODEBUG=", "variable: AWS_ENDPOINT_URL=", "variable: FAIRLEAD_ENDPOINT=" + s.URL(),
		"writes /: false", "writes /.fairlead: false", "writes .: true", "reads the variables of process 1: false"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	for _, not := range []string{"planted", "variable: FAIRLEAD_STEP_", "variable: FAIRLEAD_LAUNCH_TOKEN", "variable: HOME=/vendor/home"} {
		if strings.Contains(text, not) {
			t.Errorf("the log has %q", not)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if got := string(applied.Finish.Outputs["interpreter"].Value); got != `"`+toolPath+`"` {
		t.Errorf("the output is %s", got)
	}
	s.Until("nothing left on disk", a.empty)

	t.Run("a missing image fails the plan with its reason", func(t *testing.T) {
		missing := image[:len(image)-4] + "0000"
		if d := s.UntilDied(s.Queue(scriptIn(s, missing))).Died; d.Reason != string(fairlead.CauseImageUnavailable) || !strings.Contains(d.Message, missing) {
			t.Errorf("reported as %+v", d)
		}
	})
	t.Run("the operator's list of images refuses the others", func(t *testing.T) {
		s := plane.New(t, plane.Options{})
		startAgent(t, s, "", file("{type: docker, host: '"+host+"', job: {image: '"+runner+"', network: host, images: [registry.example.com/tools]}}"))
		if d := s.UntilDied(s.Queue(scriptIn(s, image))).Died; d.Reason != string(fairlead.CauseImageRefused) || !strings.Contains(d.Message, "registry.example.com/tools") {
			t.Errorf("reported as %+v", d)
		}
	})
	t.Run("a signal that only the image declares interrupts the tool", func(t *testing.T) {
		spec := scriptIn(s, image)
		spec.Artifact = s.PushOf("seed", map[string]string{"run": "#!" + toolPath + " wait\n"})
		planned := succeeded(t, s.UntilFinished(s.Queue(spec)))
		spec.Operation, spec.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
		job := s.Queue(spec)
		s.UntilLog(job, "waits")
		if _, err := c.ContainerKill(t.Context(), "fairlead-"+job+"-1", client.ContainerKillOptions{Signal: "SIGQUIT"}); err != nil {
			t.Fatal(err)
		}
		if j := s.UntilFinished(job); j.Finish.Reason != string(fairlead.ReasonInterrupted) || !hasLine(j.Log, "saved") {
			t.Errorf("reported as %+v with the log\n%s", j.Finish, j.Log)
		}
	})
	t.Run("a step in another image than its spec names refuses the spec", func(t *testing.T) {
		s.SetTamper(func(spec events.JobSpec, _ []byte) []byte {
			spec.Image = strings.Replace(image, "/tools@", "/others@", 1)
			b, err := s.Sign(context.WithoutCancel(t.Context()), spec)
			if err != nil {
				t.Error(err)
			}
			return b
		})
		defer s.SetTamper(nil)
		f := s.UntilFinished(s.Queue(scriptIn(s, image))).Finish
		if f.Outcome != "failed" || f.Reason != string(fairlead.ReasonSpecImage) || !strings.Contains(f.Message, "/others@") || !strings.Contains(f.Message, "/tools@") {
			t.Errorf("reported as %+v", f)
		}
	})
}

// The whole way of a private copy: one component copies the image to the install's registry, the next runs its script in the
// copy, and an action runs there too. The vendor's registry is gone by then.
func TestScriptRunsInTheCopyOfAnImage(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	t.Parallel()
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	runner := dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner"), "/plugins/images": program.Build(t, "runner/images")}, "/runner")
	vendors := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(vendors.Close)
	installs := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(installs.Close)
	original := pushedToolImage(t, host, vendors)
	s := plane.New(t, plane.Options{Settings: []string{"runner_configuration.type=docker", "state_storage_configuration.type=http", "registry.type=oci", "registry.url=" + installs.URL}})
	startAgent(t, s, "", file("{type: docker, host: '"+host+"', job: {image: '"+runner+"', network: host}}"))
	until := func(d wire.Deployment) wire.Deployment {
		t.Helper()
		s.Until("the deployment ends", func() bool {
			d = s.Deployment(d.ID)
			return d.State == "succeeded" || d.State == "failed" || d.State == "canceled"
		})
		if d.State != "succeeded" {
			t.Fatalf("the deployment is %+v", d)
		}
		return d
	}
	script := map[string]string{"run": "#!" + toolPath + "\n"}
	digests := map[string]string{"tools": s.PushOf("tools", map[string]string{"image.yaml": "image: " + original + "\n"}).Digest,
		"seed": s.PushOf("seed", script).Digest, "actions.check": s.PushOf("actions.check", script).Digest}
	config := `fairlead: v1
name: shop
components:
  tools: {type: image, source: ./tools}
  seed: {type: script, source: ./seed, image: "${components.tools.outputs.reference}"}
actions:
  check: {type: script, source: ./check, image: "${components.tools.outputs.reference}"}
`
	until(s.DeployOf(config, digests, wire.CreateDeploymentRequest{Ask: "never"}))
	outputs, err := s.API.GetOutputs(t.Context(), "acme", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(outputs.Components["seed"]["interpreter"].Value); got != `"`+toolPath+`"` {
		t.Errorf("the script's output is %s", got)
	}
	copied := string(outputs.Components["tools"]["reference"].Value)
	if !strings.HasPrefix(copied, `"`+strings.TrimPrefix(installs.URL, "http://")+"/") || !strings.HasSuffix(copied, original[strings.Index(original, "@"):]+`"`) {
		t.Errorf("the copy of %s is %s", original, copied)
	}
	vendors.Close()
	run, err := s.API.RunAction(t.Context(), "acme", "check", wire.RunActionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	until(run)
}

// An executor that cannot start a job in an image of its own reports that, and starts nothing.
func TestProcessRefusesAnImageOfAJobsOwn(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	image := "registry.example.com/tools@sha256:" + strings.Repeat("a", 64)
	d := s.UntilDied(s.Queue(scriptIn(s, image))).Died
	if d.Reason != string(fairlead.CauseImageRefused) || !strings.Contains(d.Message, image) || !strings.Contains(d.Message, "process") {
		t.Errorf("reported as %+v", d)
	}
	if steps, err := os.ReadDir(filepath.Join(a.Data, "work")); err != nil || len(steps) > 0 {
		t.Errorf("workspaces of steps: %v (%v)", steps, err)
	}
}
