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

const onSandbox = `fairlead: v1
name: shop
inputs: {password: {sensitive: true}}
sandbox: {kind: kubernetes, created_by: network}
components:
  agent: {type: script, source: agent}
  network: {type: terraform, source: network}
  web: {type: script, source: web, vars: {net: "${sandbox.outputs.id}"}}
`

// A component without a reference to the sandbox also waits for it, and the sandbox waits for all when it is destroyed.
func TestSandboxIsAppliedFirstAndDestroyedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(onSandbox)
		p.install("acme")
		for _, kind := range []deployment.Kind{deployment.Deploy, deployment.Teardown} {
			id := p.deploy("acme", control.NewDeployment{Kind: kind, Ask: deployment.AskNever}, "")
			for _, n := range p.deployment(id).Nodes {
				if first := kind == deployment.Deploy == (n.Component == "network"); (len(n.Needs) == 0) != first {
					t.Errorf("%s: component %s needs %q", kind, n.Component, n.Needs)
				}
			}
			p.work()
			if d := p.deployment(id); d.State != deployment.Succeeded {
				t.Fatalf("the %s is %s", kind, d.State)
			}
		}
	})
}

func TestRunnerThatDoesNotFitTheSandboxIsRefused(t *testing.T) {
	for consequence, c := range map[string]struct {
		kind string
		want fairlead.Code
	}{
		"a local runner can run on every sandbox": {"kubernetes", ""},
		"a runner of another platform cannot":     {"aws-eks", "runner-kind-refused"},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				app := strings.Replace(onSandbox, "kind: kubernetes", "kind: "+c.kind, 1)
				if c.want != "" {
					app = strings.Replace(app, "sandbox:", "runner: {kinds: [aws-eks]}\nsandbox:", 1)
				}
				p.publish(app)
				_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local", Inputs: secretPassword()}, "")
				expectCode(t, "the install", err, c.want)
			})
		})
	}
}
