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

// A process that can write to the table, but has no signing key, could put another app's
// artifact into the record of a version. So the control plane refuses to deploy a version
// whose record was altered.
func TestAlteredVersionsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(app string) string
	}{
		{"another artifact", func(v string) string { return strings.Replace(v, "sha256:", "sha256:f", 1) }},
		{"another configuration", func(v string) string { return strings.Replace(v, `"source":"web"`, `"source":"bad"`, 1) }},
		{"a configuration with an unknown field", func(v string) string { return strings.Replace(v, `"source":"web"`, `"sauce":"web"`, 1) }},
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
					t.Errorf("the refusal is of kind %s, want conflict: a retry cannot help", fairlead.KindOf(err))
				}
				// Publish the version again, as the hint of the refusal advises.
				if again := p.publish(src); again.New || again.ID != v.ID {
					t.Errorf("published again, the version is %s, new: %t", again.ID, again.New)
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

// alter changes a record, as a process that can write to the table could.
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

// If the version or the job is altered while the job is queued, the control plane signs no
// job spec and fails the job at once. Otherwise the step would ask for the spec until the
// job's lease ends, and an apply would be lost although no tool started.
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
		"the job has the version of another app": {job.OpPlan, func(p *plane, e engine.Engine, v control.Version, j control.Claim) {
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
				d := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true}, "d")
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
					t.Errorf("the step gets %s, %+v", started.Envelope, err)
				}
				j, got := p.job(c.ID), p.deployment(d)
				if j.State != job.Failed || j.Reason != tt.code.Reason() || !strings.Contains(j.Message, "Nothing was started") {
					t.Errorf("the job is %s for %s: %s", j.State, j.Reason, j.Message)
				}
				if n := got.Node("web"); got.State != deployment.Failed || n.State != deployment.NodeFailed || n.Reason != tt.code.Reason() {
					t.Errorf("the deployment is %s, its component %+v", got.State, n)
				}
				if k := p.component("acme", "web"); k.V.State == store.Unknown {
					t.Error("the component is unknown after an apply that did not start")
				}
				_, err = p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion)
				expectCode(t, "its repeated start, after a lost answer", err, "stale-epoch")
			})
		})
	}
}

// If the version is altered while a plan runs, the control plane accepts the report of the
// plan, and fails the deployment.
func TestReportOfAnAlteredVersionIsAccepted(t *testing.T) {
	for name, again := range map[string]bool{"a plan with changes": false, "a plan without changes": true} {
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
				p.stepFault = func(events.JobSpec) stepFault {
					p.alter(e, engine.Key{Partition: "VERSION#" + string(v.ID), Sort: "VERSION"}, func(b string) string { return strings.Replace(b, "sha256:", "sha256:f", 1) })
					return none
				}
				d := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true}, "d")
				p.work()
				got := p.deployment(d)
				if n := got.Node("web"); got.State != deployment.Failed || n.State != deployment.NodeFailed || n.Reason != "version-altered" || len(p.refused) > 0 {
					t.Errorf("the deployment is %s, its component %+v, reports refused: %s", got.State, n, p.refused)
				}
			})
		})
	}
}
