package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// A writer of the table, without the signing key, put the artifact of another app
// into the record of a version. Runners planned it under the version's installs.
func TestAlteredVersionsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(app string) string
	}{
		{"another artifact", func(v string) string { return strings.Replace(v, "sha256:", "sha256:f", 1) }},
		{"another configuration", func(v string) string { return strings.Replace(v, `"source":"web"`, `"source":"bad"`, 1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e)
				v := p.publish(appOf("  web: {type: terraform, source: ./web, vars: {text: \"<&>\"}}\n"))
				p.install("acme")
				k := engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}
				item, err := e.Get(p.ctx, k)
				if err != nil {
					t.Fatal(err)
				}
				body := tt.edit(string(item.Body))
				if body == string(item.Body) {
					t.Fatalf("nothing was altered in %s", body)
				}
				item.Body = []byte(body)
				if err := e.Commit(p.ctx, "altered", engine.Write{Op: engine.Put, Item: item, If: engine.Version(item.Version)}); err != nil {
					t.Fatal(err)
				}
				_, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "d")
				if err == nil || !strings.Contains(err.Error(), "was altered in the table") {
					t.Errorf("a deployment of an altered version: %v", err)
				}
			})
		})
	}
}
