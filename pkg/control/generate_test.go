package control_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

const generates = `fairlead: v1
name: shop
inputs:
  password: {sensitive: true, generate: 32}
components:
  database: {type: terraform, source: database, vars: {password: "${inputs.password}"}}
`

// An install gets a secret of its own, keeps it, and gets another one only when a person removes it.
func TestGeneratedSecretIsOneForEachInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(generates)
		var seen []string
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Operation == "apply" {
				var password string
				if err := json.Unmarshal(s.Vars["password"].Value, &password); err != nil || !s.Vars["password"].Sensitive {
					t.Errorf("the variable is %s, sensitive %t", s.Vars["password"].Value, s.Vars["password"].Sensitive)
				}
				seen = append(seen, password)
			}
			return none
		}
		deploy := func(name string) {
			p.deploy(name, control.NewDeployment{Ask: deployment.AskNever}, "")
			p.work()
		}
		for _, name := range []string{"acme", "beta"} {
			p.must("create", func() error {
				in, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: name, App: "shop"}, "create-"+name)
				if in.Inputs["password"].Value != nil {
					t.Errorf("the secret is shown: %s", in.Inputs["password"].Value)
				}
				return err
			})
			deploy(name)
		}
		deploy("acme") // unchanged
		p.must("update", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"password": json.RawMessage("null")}})
			return err
		})
		deploy("acme")
		if len(seen) != 3 || len(slices.Compact(slices.Sorted(slices.Values(seen)))) != 3 {
			t.Fatalf("%d applies had the secrets %q, want three different ones", len(seen), seen)
		}
		for _, s := range seen {
			if !regexp.MustCompile(`^[A-Za-z0-9]{32}$`).MatchString(s) {
				t.Errorf("the secret is %q", s)
			}
		}
	})
}

// A newer version declares a secret: its first deployment generates it. A given value is kept.
func TestNewVersionGeneratesItsSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(strings.NewReplacer("inputs:\n  password: {sensitive: true, generate: 32}\n", "", `, vars: {password: "${inputs.password}"}`, "").Replace(generates))
		for _, name := range []string{"acme", "beta"} {
			p.must("create", func() error {
				_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: name, App: "shop"}, "create-"+name)
				return err
			})
		}
		p.publish(generates)
		p.must("update", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "beta", control.InstallChange{Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"given"`)}})
			return err
		})
		seen := map[string]string{}
		p.stepFault = func(s events.JobSpec) stepFault {
			seen[s.InstallName] = string(s.Vars["password"].Value)
			return none
		}
		for _, name := range []string{"acme", "beta"} {
			p.deploy(name, control.NewDeployment{Ask: deployment.AskNever}, "")
			p.work()
		}
		if len(seen["acme"]) != 34 || seen["beta"] != `"given"` {
			t.Errorf("the applies had the secrets %q", seen)
		}
	})
}
