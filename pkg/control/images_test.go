package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

var withImage = strings.Replace(seeded, "type: script\n", "type: image\n", 1)

func (p *plane) setRegistry(settings ...string) {
	p.t.Helper()
	p.must("set the registry", func() error {
		_, err := p.UpdateRunner(p.ctx, me, "local", control.RunnerFile{Set: settings})
		return err
	})
}

// The signed spec of a component with an image names its repository, and the variable with the login. No other component's does.
func TestSpecNamesTheRepositoryOfAnImage(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []string
		want     events.RegistryRef // INSTALL in the repository stands for the install's identifier
	}{
		"any registry": {[]string{"registry.type=oci", "registry.url=https://registry.example.com/", "registry.prefix=vendor/acme", "registry.credentials=REGISTRY_LOGIN", "registry.ca=REGISTRY_CA"},
			events.RegistryRef{Kind: "oci", URL: "https://registry.example.com", Repository: "vendor/acme/INSTALL/seed", Variable: "REGISTRY_LOGIN", CA: "REGISTRY_CA"}},
		"ECR": {[]string{"registry.type=ecr", "registry.account='123456789012'", "registry.region=cn-north-1", "registry.prefix=fairlead"},
			events.RegistryRef{Kind: "ecr", URL: "https://123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", Repository: "fairlead/INSTALL/seed", Region: "cn-north-1"}},
		"the control plane's": {[]string{"registry.type=control-plane"}, events.RegistryRef{Kind: "control-plane", Repository: "images/default/INSTALL/seed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Images = true
				p.publish(withImage)
				p.setRegistry(tc.settings...)
				p.install("acme")
				seen := 0
				p.stepFault = func(s events.JobSpec) stepFault {
					switch {
					case s.Component != "seed" && s.Registry != nil:
						t.Errorf("%s of %s has the registry %+v", s.Operation, s.Component, s.Registry)
					case s.Component == "seed":
						seen++
						want := tc.want
						want.Repository = strings.Replace(want.Repository, "INSTALL", strings.ToLower(string(s.Install)), 1)
						if s.Registry == nil || *s.Registry != want || s.State == nil {
							t.Errorf("%s has the registry %+v, want %+v", s.Operation, s.Registry, want)
						}
					}
					return none
				}
				p.expect(p.deployed(), deployment.Succeeded, "database=applied seed=applied web=applied")
				if seen != 2 {
					t.Errorf("%d jobs of the image ran", seen)
				}
			})
		})
	}
}

// A runner without a registry gets no install with images, and an install that it already has gets no deployment.
func TestRunnerWithoutRegistryGetsNoImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(withImage)
		create := func() error {
			_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Inputs: secretPassword()}, "")
			return err
		}
		expectCode(t, "an install on a runner without a registry", create(), fairlead.CodeRegistryMissing)
		_, err := p.UpdateRunner(p.ctx, me, "local", control.RunnerFile{Set: []string{"registry.type=control-plane"}})
		expectCode(t, "the registry of a control plane that has none", err, fairlead.CodeInvalidRunner)
		_, err = p.CreateRunner(p.ctx, org, control.NewRunner{Name: "other", Registry: true}, "")
		expectCode(t, "a runner with it", err, fairlead.CodeInvalidRunner)

		p.setRegistry("registry.type=oci", "registry.url=https://registry.example.com")
		if err := create(); err != nil {
			t.Fatal(err)
		}
		p.setRegistry("registry=~")
		_, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "")
		expectCode(t, "a deployment on a runner that has lost its registry", err, fairlead.CodeRegistryMissing)
		if _, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, Targets: []string{"database"}, PlanOnly: true}, ""); err != nil {
			t.Errorf("a deployment of a component without an image: %v", err)
		}
		p.work()

		p.must("make a runner", func() error { _, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: "bare"}, ""); return err })
		bare := "bare"
		p.must("name it", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Runner: &bare})
			return err
		})
		_, err = p.RefreshRunner(p.ctx, org, "acme", control.Refresh{AcceptLoss: true})
		expectCode(t, "a refresh to a runner without a registry", err, fairlead.CodeRegistryMissing)
	})
}

// A runner that loses its registry while a deployment waits: the job ends with the reason, and does not start.
func TestLostRegistryEndsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(strings.Replace(withImage, `    vars: {db: "${components.database.outputs.secret}", size: "${inputs.size}"}`+"\n", "", 1))
		p.setRegistry("registry.type=oci", "registry.url=https://registry.example.com")
		p.install("acme")
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true, Targets: []string{"seed"}}, "")
		p.setRegistry("registry=~")
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234")
		expectCode(t, "the start", err, fairlead.CodeRegistryMissing)
		for _, n := range p.deployment(id).Nodes {
			if n.Reason != fairlead.ReasonRegistryMissing {
				t.Errorf("%s ended with %q", n.Component, n.Reason)
			}
		}
	})
}
