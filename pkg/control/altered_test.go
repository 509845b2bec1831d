package control_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
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
		{"a configuration of nothing", func(v string) string { return strings.Replace(v, `"source":"web"`, `"sauce":"web"`, 1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e)
				src := appOf("  web: {type: terraform, source: ./web, vars: {text: \"<&>\"}}\n")
				v := p.publish(src)
				p.install("acme")
				p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, tt.edit)
				_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "d")
				expectCode(t, "a deployment of an altered version", err, "version-altered")
				if fairlead.KindOf(err) != fairlead.KindConflict {
					t.Errorf("it is a fault of %s, as if another try could help", fairlead.KindOf(err))
				}
				// As the refusal advises. The remedy that is not one would be worse than none.
				if again := p.publish(src); again.New || again.ID != v.ID {
					t.Errorf("published again it is %s, new: %t", again.ID, again.New)
				}
				d := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "again")
				p.work()
				if got := p.deployment(d); got.State != deployment.Succeeded {
					t.Errorf("published again, its deployment is %s: %s", got.State, nodes(got))
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

// The record is altered while a job waits. Its spec is not signed; the job had
// begun, its step asked again and again, then the job was given up, or, if it was
// an apply of which nothing had begun, lost.
func TestAJobOfAnAlteredVersionGetsNoSpec(t *testing.T) {
	version := func(p *plane, e engine.Engine, v control.Version, _ control.Claim) {
		p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string { return strings.Replace(b, "sha256:", "sha256:f", 1) })
	}
	for name, tt := range map[string]struct {
		op    job.Operation
		alter func(p *plane, e engine.Engine, v control.Version, j control.Claim)
		code  fairlead.Code
	}{
		"a plan, the version has another artifact":   {job.OpPlan, version, "version-altered"},
		"an apply, the version has another artifact": {job.OpApply, version, "version-altered"},
		"the job is of another app's version": {job.OpPlan, func(p *plane, e engine.Engine, v control.Version, j control.Claim) {
			other := p.publish(strings.Replace(appOf("  web: {type: terraform, source: ./web}\n"), "name: shop", "name: other", 1))
			p.alter(e, engine.Key{Partition: "JOB#" + string(j.ID), Sort: "JOB"}, func(b string) string { return strings.Replace(b, string(v.ID), string(other.ID), 1) })
		}, "job-altered"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e)
				v := p.publish(appOf("  web: {type: terraform, source: ./web}\n"))
				p.install("acme")
				d := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
				c, err := p.Claim(p.ctx, p.session, 0)
				for ; err == nil && c.Operation != tt.op; c, err = p.Claim(p.ctx, p.session, 0) {
					p.step(c)
				}
				if err != nil {
					t.Fatal(err)
				}
				tt.alter(p, e, v, c)
				started, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion)
				expectCode(t, "its start", err, tt.code)
				if refusal, ok := errors.AsType[*fairlead.Error](err); started.Envelope != nil || !ok || refusal.Kind != fairlead.KindConflict || refusal.Details["job_ended"] != "true" {
					t.Errorf("it gets %s, %+v", started.Envelope, err)
				}
				j, got := p.job(c.ID), p.deployment(d)
				if j.State != job.Failed || j.Reason != tt.code.Reason() || !strings.Contains(j.Message, "Nothing was started") {
					t.Errorf("the job is %s for %s: %s", j.State, j.Reason, j.Message)
				}
				if n := got.Node("web"); got.State != deployment.Failed || n.State != deployment.NodeFailed || n.Reason != tt.code.Reason() {
					t.Errorf("the deployment is %s, its component %+v", got.State, n)
				}
				if k := p.component("acme", "web"); k.V.State == store.Unknown {
					t.Error("an apply of which nothing began leaves its component unknown")
				}
				_, err = p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion)
				expectCode(t, "its start, when the answer was lost", err, "stale-epoch")
			})
		})
	}
}

// The record is altered while a plan runs. Its report was refused, again and again,
// and with it what ended.
func TestAVersionAlteredDuringAPlanKeepsItsReportOut(t *testing.T) {
	for name, again := range map[string]bool{"there is something to do": false, "there is nothing to do": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Memory()
				p := newPlane(t, e)
				v := p.publish(appOf("  web: {type: terraform, source: ./web}\n"))
				p.install("acme")
				if again {
					p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
					p.work()
				}
				p.misfortune = func(events.JobSpec) misfortune {
					p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string { return strings.Replace(b, "sha256:", "sha256:f", 1) })
					return none
				}
				d := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
				p.work()
				got := p.deployment(d)
				if n := got.Node("web"); got.State != deployment.Failed || n.State != deployment.NodeFailed || n.Reason != "version-altered" || len(p.refused) > 0 {
					t.Errorf("the deployment is %s, its component %+v, reports refused: %s", got.State, n, p.refused)
				}
			})
		})
	}
}
