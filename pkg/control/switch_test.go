package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// switched is an app in which an input switches two of three components. The one that is always on is deployed after them.
const switched = `fairlead: v1
name: shop
inputs:
  monitoring: {type: bool, default: false}
components:
  metrics: {type: terraform, source: ./metrics, enabled: "${inputs.monitoring}", secrets: [TOKEN]}
  alerts: {type: terraform, source: ./alerts, enabled: "${inputs.monitoring}", vars: {from: "${components.metrics.outputs.id}"}}
  web: {type: terraform, source: ./web, depends_on: [alerts]}
`

func TestInputSwitchesComponents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { switchStory(newPlane(t, enginetest.Memory())) })
}

func TestInputSwitchesComponentsOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	switchStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestInputSwitchesComponentsOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	switchStory(newPlaneAt(t, dynamoTable(t, "switch"), c.now, c.sleep))
}

func switchStory(p *plane) {
	t := p.t
	p.publish(switched)
	p.must("create install", func() error {
		return errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop"}, ""))
	})
	monitoring := func(on string) {
		t.Helper()
		p.must("update", func() error {
			return errOf(p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"monitoring": json.RawMessage(on)}}))
		})
	}
	deploy := func(want string, in control.NewDeployment) control.Deployment {
		t.Helper()
		p.applied = nil
		id := p.deploy("acme", in, "")
		p.work()
		d := p.deployment(id)
		if d.State == deployment.Waiting {
			return d
		}
		if got := strings.Join(p.applied, " "); got != want || d.State != deployment.Succeeded {
			t.Errorf("the tools ran %q, want %q; the deployment is %s: %s", got, want, d.State, nodes(d))
		}
		return d
	}
	state := func(want string, off ...string) {
		t.Helper()
		in, err := p.Install(p.ctx, org, "acme")
		e := p.effective("acme")
		if err != nil || in.State != want || !slices.Equal(e.Off, off) {
			t.Errorf("the install is %s with %v off, %v; want %s with %v off", in.State, e.Off, err, want, off)
		}
	}

	// Off: the components are not in the deployment, and the customer's secret is not asked for.
	d := deploy("apply web", control.NewDeployment{Ask: deployment.AskNever})
	if len(d.Nodes) != 1 || len(d.Nodes[0].Needs) > 0 {
		t.Errorf("the deployment has %s", nodes(d))
	}
	state("deployed", "alerts", "metrics")
	if secrets, err := p.DeclaredSecrets(p.ctx, org, "acme"); err != nil || len(secrets) > 0 {
		t.Errorf("secrets %v, %v of a component that is off", secrets, err)
	}
	_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, Targets: []string{"metrics"}}, "")
	expectCode(t, "a target that is off", err, "component-not-found")

	// On: they are created, in the order of their dependencies.
	monitoring("true")
	state("partial")
	p.wantUndeployed("acme", "switched on", "alerts new; metrics new")
	deploy("apply metrics apply alerts", control.NewDeployment{Ask: deployment.AskNever})
	state("deployed")
	if secrets, err := p.DeclaredSecrets(p.ctx, org, "acme"); err != nil || len(secrets) != 1 {
		t.Errorf("secrets %v, %v of a component that is on", secrets, err)
	}

	// Off again: they are destroyed in reverse order, each with a plan that waits for approval.
	monitoring("false")
	p.wantUndeployed("acme", "switched off", "alerts off; metrics off")
	r, err := p.Render(p.ctx, org, "acme", "", "")
	if err != nil || !r.Components[0].Off || !r.Components[1].Off || r.Components[2].Off {
		t.Errorf("rendered %+v, %v", r.Components, err)
	}
	d = deploy("", control.NewDeployment{})
	if d.State != deployment.Waiting {
		t.Fatalf("the deployment is %s: %s; the destroy plan was not approved", d.State, nodes(d))
	}
	for range 2 {
		p.must("approve", func() error { return errOf(p.ApproveDeployment(p.ctx, org, d.ID, nil, nil)) })
		p.work()
	}
	if d = p.deployment(d.ID); fmt.Sprint(p.applied) != "[destroy alerts destroy metrics]" || d.State != deployment.Succeeded {
		t.Errorf("the tools ran %v; the deployment is %s: %s", p.applied, d.State, nodes(d))
	}
	state("deployed", "alerts", "metrics")
	p.wantUndeployed("acme", "destroyed", "")
	if d = deploy("", control.NewDeployment{Ask: deployment.AskNever}); len(d.Nodes) != 1 {
		t.Errorf("the next deployment has %s", nodes(d))
	}
	deploy("destroy web", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever})
	state("torn-down", "alerts", "metrics")
}
