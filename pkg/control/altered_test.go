package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
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
				p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, tt.edit)
				_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "d")
				if err == nil || !strings.Contains(err.Error(), "was altered in the table") {
					t.Errorf("a deployment of an altered version: %v", err)
				}
			})
		})
	}
}

// alter writes a record as one does who may write the table.
func (p *plane) alter(e engine.Engine, k engine.Key, edit func(string) string) {
	p.t.Helper()
	item, err := e.Get(p.ctx, k)
	if err != nil {
		p.t.Fatal(err)
	}
	body := edit(string(item.Body))
	if body == string(item.Body) {
		p.t.Fatalf("nothing was altered in %s", body)
	}
	item.Body = []byte(body)
	if err := e.Commit(p.ctx, "altered", engine.Write{Op: engine.Put, Item: item, If: engine.Version(item.Version)}); err != nil {
		p.t.Fatal(err)
	}
}

// The record is altered while a job waits. Its spec is not signed.
func TestAJobOfAnAlteredVersionGetsNoSpec(t *testing.T) {
	for name, alter := range map[string]func(p *plane, e engine.Engine, v control.Version, j control.Claim){
		"the version has another artifact": func(p *plane, e engine.Engine, v control.Version, _ control.Claim) {
			p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string { return strings.Replace(b, "sha256:", "sha256:f", 1) })
		},
		"the job is of another app's version": func(p *plane, e engine.Engine, v control.Version, j control.Claim) {
			other := p.publish(strings.Replace(appOf("  web: {type: terraform, source: ./web}\n"), "name: shop", "name: other", 1))
			p.alter(e, engine.Key{Partition: "JOB#" + string(j.ID), Sort: "JOB"}, func(b string) string { return strings.Replace(b, string(v.ID), string(other.ID), 1) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e)
				v := p.publish(appOf("  web: {type: terraform, source: ./web}\n"))
				p.install("acme")
				p.deploy("acme", control.NewDeployment{Kind: deployment.Deploy}, "d")
				c, err := p.Claim(p.ctx, p.session, 0)
				if err != nil {
					t.Fatal(err)
				}
				alter(p, e, v, c)
				if started, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion); err == nil || !strings.Contains(err.Error(), "altered in the table") {
					t.Errorf("it gets %s, %v", started.Envelope, err)
				}
			})
		})
	}
}
