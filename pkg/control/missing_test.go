package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// An install waits for the inputs of its customer: it is created and changed without them, and names them, but no deployment
// starts.
func TestDeploymentWaitsForInputsOfCustomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(strings.Replace(shop, "password: {", "password: {from: customer, ", 1))
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop"}, "")
		expectCode(t, "an install without an input of the customer", err, "")
		missing := func(want string) {
			t.Helper()
			all, err := p.MissingInputs(p.ctx, org, "acme")
			var names []string
			for _, in := range all {
				names = append(names, in.Name+" "+in.From)
			}
			if got := fmt.Sprint(names); err != nil || got != want {
				t.Errorf("missing %s, %v; want %s", got, err, want)
			}
		}
		missing("[password customer]")
		_, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "")
		expectCode(t, "a deployment", err, "invalid-inputs")
		set := func(name, value string) error {
			return errOf(p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{name: json.RawMessage(value)}}))
		}
		expectCode(t, "another input", set("size", "3"), "")
		missing("[password customer]")
		expectCode(t, "the input", set("password", `"hunter2-hunter2"`), "")
		missing("[]")
		id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the deployment is %s: %s", d.State, nodes(d))
		}
		expectCode(t, "the input is taken back", set("password", "null"), "")
		missing("[password customer]")

		p.publish(shop)
		_, err = p.CreateInstall(p.ctx, org, control.NewInstall{Name: "other", App: "shop"}, "")
		expectCode(t, "an install without a secret of the vendor, which may follow encrypted", err, "")
		_, err = p.CreateDeployment(p.ctx, org, "other", control.NewDeployment{Kind: deployment.Deploy}, "")
		expectCode(t, "its deployment", err, "invalid-inputs")
	})
}
