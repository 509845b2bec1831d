package control_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// tools is an image by digest.
const tools = "registry.example.com/acme/tools@sha256:"

// inImages returns the example of the page about the app file: an app whose script runs in the copy of an image, and whose
// action runs in the image of another registry.
func inImages(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/app-file.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Image of a script\n")
	_, rest, _ := strings.Cut(section, "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	return "fairlead: v1\nname: shop\ninputs: {password: {type: string, sensitive: true, required: true}}\n" + strings.Replace(example, "components:\n", "components:\n  web: {type: terraform, source: ./web}\n", 1)
}

// reports is the image of the action in inImages.
const reports = "registry.example.com/acme/report@sha256:3b1a6f4c0d5e8f7a9b2c1d0e3f4a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5c6"

// onDocker returns a control plane whose runner starts each job in a container.
func onDocker(t *testing.T) *plane {
	return newPlaneOf(t, enginetest.Memory(), time.Now, time.Sleep, control.NewRunner{Name: "local", File: control.RunnerFile{Set: []string{
		"runner_configuration.type=docker", "runner_configuration.job.image=registry.example.com/runner@sha256:" + strings.Repeat("1", 64), "state_storage_configuration.type=http",
		"registry.type=oci", "registry.url=https://registry.example.com"}}})
}

// imagePlane returns a control plane with an install of the app inImages, on a runner that starts jobs in images of their own.
func imagePlane(t *testing.T) *plane {
	p := onDocker(t)
	p.publish(inImages(t))
	p.install("acme")
	p.outputs = map[string]map[string]control.Output{"tools": {"reference": {Value: []byte(`"` + tools + strings.Repeat("a", 64) + `"`)}}}
	return p
}

// The jobs of a runner of kind local are processes, so it gets no deployment of an app with an image for its script. Its install can be
// created: a stack for the install can give the runner the kind aws-ecs.
func TestAppWithImagesNeedsARunnerThatStartsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.setRegistry("registry.type=oci", "registry.url=https://registry.example.com")
		p.publish(inImages(t))
		if _, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "named", App: "shop", Runner: "local", Inputs: secretPassword()}, ""); err != nil {
			t.Errorf("an install on a runner of kind local: %v", err)
		}
		p.install("acme") // rules choose its runner
		for _, install := range []string{"named", "acme"} {
			_, err := p.CreateDeployment(p.ctx, org, install, control.NewDeployment{Kind: deployment.Deploy}, "")
			expectCode(t, "a deployment of "+install+" on a runner of kind local", err, fairlead.CodeRunnerKindRefused)
			if err == nil || !strings.Contains(err.Error(), "docker") || !strings.Contains(err.Error(), "aws-ecs") || !strings.HasSuffix(err.Error(), "the jobs of seed in their image") {
				t.Errorf("the refusal does not name the kinds that can, and the component: %v", err)
			}
		}
	})
}

// The claim and the signed spec of each job name the image in which its step runs: that of the plan, also for the destroy.
func TestJobNamesTheImageInWhichItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := imagePlane(t)
		seen := map[string]int{}
		want := map[string]string{"seed": tools + strings.Repeat("a", 64), "actions.report": reports}
		p.stepFault = func(s events.JobSpec) stepFault { // the harness refuses a spec with another image than its claim
			seen[s.Component+" "+s.Operation]++
			if s.Image != want[s.Component] {
				t.Errorf("the %s of %s runs in %q, want %q", s.Operation, s.Component, s.Image, want[s.Component])
			}
			return none
		}
		p.expect(p.deployed(), deployment.Succeeded, "tools=applied web=applied seed=applied")
		p.must("run the action", func() error {
			_, err := p.RunAction(p.ctx, org, "acme", control.NewRun{Action: "report"}, "")
			return err
		})
		p.work()
		id := p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever}, "")
		p.work()
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the teardown is %s", d.State)
		}
		for _, job := range []string{"seed plan", "seed apply", "seed plan-destroy", "seed destroy", "actions.report plan-run", "actions.report run", "web apply"} {
			if seen[job] != 1 {
				t.Errorf("%d jobs %s, want 1", seen[job], job)
			}
		}
	})
}

// What a deployment would do shows the image, also before the component exists whose output it is.
func TestRenderedComponentHasItsImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := imagePlane(t)
		image := func() (*appspec.Shown, *appspec.Shown) {
			r, err := p.Render(p.ctx, org, "acme", "", "")
			if err != nil {
				t.Fatal(err)
			}
			of := map[string]*appspec.Shown{}
			for _, c := range r.Components {
				of[c.Name] = c.Image
			}
			return of["seed"], of["web"]
		}
		if seed, web := image(); web != nil || seed == nil || seed.Problem != "" || len(seed.After) != 1 || seed.After[0] != "tools" {
			t.Errorf("before the deployment, the images are %+v and %+v", seed, web)
		}
		p.deployed()
		if seed, _ := image(); seed == nil || seed.Value != tools+strings.Repeat("a", 64) {
			t.Errorf("after the deployment, the image is %+v", seed)
		}
		p.outputs["tools"]["reference"] = control.Output{Value: []byte(`"registry.example.com/acme/tools:1"`)}
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever, Targets: []string{"tools"}, Refresh: true}, "")
		p.work()
		if seed, _ := image(); seed == nil || !strings.Contains(seed.Problem, "digest") {
			t.Errorf("an image by tag is shown as %+v", seed)
		}
	})
}

// A changed image is a change of the component, although its source and its variables are the same.
func TestChangedImageIsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := imagePlane(t)
		p.expect(p.deployed(), deployment.Succeeded, "tools=applied web=applied seed=applied")
		p.outputs["tools"]["reference"] = control.Output{Value: []byte(`"` + tools + strings.Repeat("b", 64) + `"`)}
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever, Targets: []string{"tools"}, Refresh: true}, "")
		p.work()
		var changed []string
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Component == "seed" && s.Operation == "plan" {
				changed = s.Applied.Changed(s.Artifact.Digest, s.Inputs())
			}
			return none
		}
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		if strings.Join(changed, " ") != "image" {
			t.Errorf("the step finds the changes %q", changed)
		}
	})
}

// A reference to an output is checked when it is known: a name without a digest could later mean another image.
func TestOutputThatIsNoImageByDigestIsRefused(t *testing.T) {
	for _, image := range []string{`"registry.example.com/acme/tools:1"`, `""`, `3`} {
		t.Run(image, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := imagePlane(t)
				p.outputs["tools"]["reference"] = control.Output{Value: []byte(image)}
				d := p.deployment(p.deployed())
				for _, n := range d.Nodes {
					if n.Component == "seed" && (n.Reason != fairlead.CodeInvalidImage.Reason() || n.PlanJob != "") {
						t.Errorf("seed ended with %q: %s", n.Reason, n.Message)
					}
				}
			})
		})
	}
}

// A step that was started ahead runs in the runner's image, so no step is started ahead for a job in another one.
func TestJobInAnImageOfItsOwnHasNoWarmStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &warmPlane{plane: onDocker(t)}
		p.publish(`fairlead: v1
name: shop
inputs:
  password: {type: string, sensitive: true, required: true}
components:
  a: {type: script, source: ./a, image: "` + tools + strings.Repeat("a", 64) + `"}
  b: {type: terraform, source: ./b, depends_on: [a]}
`)
		p.install("acme")
		first, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: 1, Most: 1})
		if err != nil || len(first) != 1 {
			t.Fatal(first, err)
		}
		p.have = []fairlead.WarmStepID{first[0].ID}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		plan := p.claim()
		if plan.Component != "a" || plan.WarmStep != "" || plan.Image == "" {
			t.Errorf("the plan of %s, in the image %q, is assigned to %q, want a step of its own", plan.Component, plan.Image, plan.WarmStep)
		}
		if steps := p.ahead(plan, 4); roles(steps) != "read-only provision" {
			t.Errorf("the steps that start ahead are %+v, want those of b", steps)
		}
	})
}
