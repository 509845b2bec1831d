package control_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Vendor and customer see which secrets the next deployment needs, and which of them the deployed version did not need.
func TestSecretsAreKnownBeforeTheFirstJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		version := func(secrets string) {
			p.publish("fairlead: v1\nname: shop\ninputs: {password: {sensitive: true}}\ncomponents: {web: {type: terraform, source: ./web" + secrets + "}, db: {type: terraform, source: ./db, secrets: [TOKEN]}}\n")
		}
		want := func(when string, want ...control.DeclaredSecret) {
			t.Helper()
			got, err := p.DeclaredSecrets(p.ctx, org, "acme")
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: got %v, %v, want %v", when, got, err, want)
			}
		}
		deploy := func(key string) {
			t.Helper()
			p.deploy("acme", control.NewDeployment{AutoApprove: true}, key)
			p.work()
		}
		p.publish("fairlead: v1\nname: shop\ninputs: {password: {sensitive: true}}\ncomponents: {web: {type: terraform, source: ./web}}\n")
		p.install("acme")
		want("the app declares none")
		version(", secrets: [var.password]")
		want("nothing is deployed", control.DeclaredSecret{Component: "db", Name: "TOKEN", New: true, Kind: "local"}, control.DeclaredSecret{Component: "web", Name: "var.password", New: true, Kind: "local"})
		deploy("first")
		want("the newest version is deployed", control.DeclaredSecret{Component: "db", Name: "TOKEN", Kind: "local"}, control.DeclaredSecret{Component: "web", Name: "var.password", Kind: "local"})
		version(", secrets: [KEY, var.password]")
		want("a new version needs one more", control.DeclaredSecret{Component: "db", Name: "TOKEN", Kind: "local"}, control.DeclaredSecret{Component: "web", Name: "KEY", New: true, Kind: "local"}, control.DeclaredSecret{Component: "web", Name: "var.password", Kind: "local"})
		version("")
		want("a new version needs fewer", control.DeclaredSecret{Component: "db", Name: "TOKEN", Kind: "local"})
		if _, err := p.DeclaredSecrets(p.ctx, org, "missing"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("no install: %v", err)
		}
	})
}
