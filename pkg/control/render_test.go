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

// A rendered install is what its next deployment uses, and holds none of its secrets: before the first deployment, and after
// it, when a sensitive output exists.
func TestRenderedInstallHoldsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publishAs(shop, "v1")
		p.publish(strings.Replace(shop, `vars: {size: "${inputs.size}"}`, `vars: {size: "${inputs.size}", zone: [b, "${install.name}"]}`, 1))
		p.install("acme")
		p.must("set variables", func() error {
			_, err := p.SetVariables(p.ctx, me, control.VariableScope{Install: "acme"}, map[string]*control.Variable{
				"REGION": {Value: "eu"}, "TOKEN": {Value: "CANARY-token-5e1f", Sensitive: true}})
			return err
		})
		render := func(version, component string) control.Rendered {
			t.Helper()
			var r control.Rendered
			p.must("render", func() (err error) { r, err = p.Render(p.ctx, org, "acme", version, component); return })
			return r
		}
		before := render("", "")
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "first")
		p.work()
		after := render("", "")
		old := render("v1", "network")

		value := func(r control.Rendered, component, name string) string {
			for _, c := range r.Components {
				if c.Name == component {
					raw, err := json.Marshal(c.Vars[name].Value)
					if err != nil {
						t.Fatal(err)
					}
					return fmt.Sprint(string(raw), c.Vars[name].After)
				}
			}
			return "no component"
		}
		for what, c := range map[string]struct{ got, want string }{
			"an input's default":                {value(before, "network", "size"), `2[]`},
			"a constant with a fact":            {value(before, "network", "zone"), `["b","acme"][]`},
			"an output that does not exist yet": {value(before, "database", "net"), `"(known after network)"[network]`},
			"an output":                         {value(after, "database", "net"), `"id-of-network"[]`},
			"a sensitive input":                 {value(after, "database", "password"), `"(sensitive)"[]`},
			"a sensitive output":                {value(after, "web", "db"), `"(sensitive)"[]`},
			"a variable of a newer version":     {value(old, "network", "zone"), `null[]`},
			"another component than the named":  {value(old, "web", "db"), `no component`},
			"the names of the environment":      {fmt.Sprint(after.Components[0].Environment), `[REGION TOKEN]`},
			"the dependencies":                  {fmt.Sprint(after.Components[1].DependsOn), `[network]`},
		} {
			if c.got != c.want {
				t.Errorf("%s is %s, want %s", what, c.got, c.want)
			}
		}
		raw, err := json.Marshal([]control.Rendered{before, after, old})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"hunter2", "secret-of", "CANARY"} {
			if strings.Contains(string(raw), secret) {
				t.Errorf("the secret %s… is in %s", secret, raw)
			}
		}
		_, err = p.Render(p.ctx, org, "acme", "", "none")
		expectCode(t, "an unknown component", err, "component-not-found")
		_, err = p.Render(p.ctx, org, "acme", "v9", "")
		expectCode(t, "an unknown version", err, "version-not-found")
		_, err = p.Render(p.ctx, "other", "acme", "", "")
		expectCode(t, "an install of another org", err, "install-not-found")
		p.publish(strings.Replace(shop, "  size:", "  more: {}\n  size:", 1))
		_, err = p.Render(p.ctx, org, "acme", "", "")
		expectCode(t, "an input that a deployment would miss", err, "invalid-inputs")
	})
}
