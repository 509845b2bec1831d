package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// needs returns the app shop for the kinds of runners.
func needs(kinds string) string {
	return strings.Replace(shop, "name: shop\n", "name: shop\nrunner: {kinds: ["+kinds+"]}\n", 1)
}

func TestAppIsRefusedOnOtherKindOfRunner(t *testing.T) {
	const refused fairlead.Code = "runner-kind-refused"
	for consequence, test := range map[string]struct {
		kinds           string
		runner          string // that the install names
		created, deploy fairlead.Code
	}{
		"the runner is of the kind":                   {kinds: "local, docker", runner: "local"},
		"the runner is of another kind":               {kinds: "docker, kubernetes", runner: "local", created: refused},
		"a stack may give the runner its kind":        {kinds: "aws-ecs", runner: "local", deploy: refused},
		"rules choose a runner of another kind":       {kinds: "docker", deploy: refused},
		"rules choose a runner of the kind":           {kinds: "docker, local"},
		"every kind serves an app that declares none": {},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(shop)
				if test.kinds != "" {
					p.publish(needs(test.kinds))
				}
				_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: test.runner, Inputs: secretPassword()}, "")
				expectCode(t, "the install", err, test.created)
				if test.created != "" {
					return
				}
				_, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, Ask: deployment.AskNever}, "")
				expectCode(t, "the deployment", err, test.deploy)
			})
		})
	}
}

// The version that is deployed decides, and a teardown is never refused.
func TestKindOfRunnerIsThatOfTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publishAs(shop, "v1")
		p.install("acme")
		p.publishAs(needs("docker"), "v2")
		id := p.deploy("acme", control.NewDeployment{Version: "v1", Ask: deployment.AskNever}, "")
		p.work()
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Fatalf("the deployment of the old version is %s", d.State)
		}
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "")
		expectCode(t, "the new version", err, "runner-kind-refused")
		id = p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever}, "")
		p.work()
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the teardown is %s", d.State)
		}
	})
}
