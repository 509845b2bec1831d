package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// appOf returns the app shop with the given components.
func appOf(components string) string {
	return "fairlead: v1\nname: shop\ninputs:\n  password: {type: string, sensitive: true, required: true}\ncomponents:\n" + components
}

func (p *plane) component(install, name string) store.Stored[store.Component] {
	p.t.Helper()
	in, err := p.Store.Install(p.ctx, org, install)
	if err != nil {
		p.t.Fatal(err)
	}
	k, err := p.Store.Component(p.ctx, in.V.ID, name)
	if err != nil {
		p.t.Fatal(err)
	}
	return k
}

func (p *plane) succeeds(id string, in control.NewDeployment) {
	p.t.Helper()
	d := p.deploy("acme", in, id)
	p.work()
	if got := p.deployment(d); got.State != deployment.Succeeded {
		p.t.Fatalf("deployment %s is %s: %s", id, got.State, nodes(got))
	}
}

// If a plan of a new version has no changes, the component gets the files and variables of
// the new version. With the old variables, a later destroy would fail if the new version
// renamed a required variable.
func TestDestroyAfterNoOpGetsNewVariables(t *testing.T) {
	for name, empty := range map[string]bool{"an applied component": false, "an empty module": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(appOf("  web: {type: terraform, source: ./web, vars: {before: same}}\n"))
				p.install("acme")
				if !empty {
					p.succeeds("first", control.NewDeployment{AutoApprove: true})
				}
				v := p.publish(appOf("  web: {type: terraform, source: ./web, vars: {now: same}}\n"))
				same, err := json.Marshal(map[string]events.SpecVar{"now": {Value: json.RawMessage(`"same"`)}})
				if err != nil {
					t.Fatal(err)
				}
				p.cloud["web"] = string(same) // the cloud already has these variables, so the tool finds no change
				p.succeeds("renamed", control.NewDeployment{AutoApprove: true})
				if k := p.component("acme", "web"); k.V.Version != v.ID || k.V.State != store.Present {
					t.Errorf("the component is %s of version %s", k.V.State, k.V.Version)
				}
				asked := 0
				p.stepFault = func(spec events.JobSpec) stepFault {
					if spec.Operation == "plan-destroy" {
						if got, err := json.Marshal(spec.Vars); err != nil || string(got) != string(same) {
							t.Errorf("the destroy is planned with %s, %v, want %s", got, err, same)
						}
						asked++
					}
					return none
				}
				p.succeeds("gone", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true})
				if asked != 1 {
					t.Errorf("the destroy was planned %d times", asked)
				}
			})
		})
	}
}

// In the first version, component a depends on b. In the second version, b depends on a.
// The variable of a has the same value in both versions, so the plan of a has no changes.
const (
	aOnB = "  a: {type: terraform, source: ./a, vars: {id: \"${components.b.outputs.id}\"}}\n  b: {type: terraform, source: ./b}\n"
	bOnA = "  a: {type: terraform, source: ./a, vars: {id: id-of-b}}\n  b: {type: terraform, source: ./b, vars: {id: \"${components.a.outputs.id}\"}}\n"
)

// If a plan has no changes, the component nevertheless gets the dependencies of the new
// version. With the old dependencies, the two components would depend on each other, and no
// teardown could start.
func TestTeardownSurvivesSwappedDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(appOf(aOnB))
		p.install("acme")
		p.succeeds("first", control.NewDeployment{AutoApprove: true})
		p.publish(appOf(bOnA))
		p.succeeds("second", control.NewDeployment{AutoApprove: true})
		if k := p.component("acme", "a"); len(k.V.DependsOn) != 0 {
			t.Errorf("a still depends on %v", k.V.DependsOn)
		}
		p.applied = nil
		p.succeeds("gone", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true})
		if got := strings.Join(p.applied, ", "); got != "destroy b, destroy a" {
			t.Errorf("the teardown ran: %s", got)
		}
	})
}

// The records of an earlier release may have cyclic dependencies. In this case, the
// teardown uses the dependencies of the newest record.
func TestTeardownWorksWithCyclicRecords(t *testing.T) {
	for name, order := range map[string][]string{"a was written last": {"a", "b"}, "b was written last": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(appOf("  a: {type: terraform, source: ./a}\n  b: {type: terraform, source: ./b}\n  c: {type: terraform, source: ./c, depends_on: [a, b]}\n"))
				p.install("acme")
				p.succeeds("first", control.NewDeployment{AutoApprove: true})
				var tx store.Tx
				for i, k := range order {
					r := p.component("acme", k)
					r.V.DependsOn, r.V.Updated = []string{order[1-i]}, p.Now().Add(-time.Duration(i)*time.Hour)
					tx.PutComponent(r)
				}
				if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
					t.Fatal(err)
				}
				p.applied = nil
				p.succeeds("gone", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true})
				want := []string{"destroy c", "destroy " + order[0], "destroy " + order[1]}
				if !slices.Equal(p.applied, want) {
					t.Errorf("the teardown ran %q, want %q", p.applied, want)
				}
			})
		})
	}
}

// If a plan-only deployment finds no changes, the component keeps its version. Otherwise a
// later destroy would use the files of a version that was never deployed.
func TestPlanOnlyDeploymentKeepsTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(appOf("  web: {type: terraform, source: ./web}\n"))
		p.install("acme")
		p.succeeds("first", control.NewDeployment{AutoApprove: true})
		before := p.component("acme", "web")
		v := p.publish(appOf("  web: {type: terraform, source: ./web}\n  new: {type: terraform, source: ./new}\n"))
		p.succeeds("what if", control.NewDeployment{PlanOnly: true})
		if now := p.component("acme", "web"); now.Version != before.Version {
			t.Errorf("the record is %+v, and was %+v", now, before)
		}
		// If a component is unknown, a plan without changes shows that the component is
		// present. So the plan-only deployment records this condition.
		lost := p.component("acme", "web")
		lost.V.State, lost.V.Lost = store.Unknown, "job_lost"
		var tx store.Tx
		tx.PutComponent(lost)
		if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
			t.Fatal(err)
		}
		p.succeeds("what is", control.NewDeployment{PlanOnly: true})
		if now := p.component("acme", "web"); now.V.State != store.Present || now.V.Version != v.ID || now.V.Lost != "" {
			t.Errorf("after a plan without changes the component is %+v", now.V)
		}
	})
}

// The report that ends a deployment also starts the next deployment of the install. If the
// next deployment cannot start, the next deployment fails, and the report succeeds.
func TestReportSucceedsIfNextDeploymentCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		mine := p.publish(shop)
		canonical, err := mine.Spec.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := p.PublishVersion(p.ctx, "other", "shop", canonical, mine.Artifacts)
		if err != nil {
			t.Fatal(err)
		}
		p.install("acme")
		first := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		wrong := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "wrong")
		bare := p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown}, "bare") // at this time, no component exists
		last := p.deploy("acme", control.NewDeployment{PlanOnly: true}, "last")
		var tx store.Tx
		for _, id := range []fairlead.DeploymentID{wrong, bare} {
			r, err := p.Store.Deployment(p.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			r.V.Version = theirs.ID // as if an earlier release had accepted a version of another org
			tx.PutDeployment(r)
		}
		if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
			t.Fatal(err)
		}
		p.work()
		if got := p.deployment(first); got.State != deployment.Succeeded {
			t.Errorf("the first deployment is %s: %s", got.State, nodes(got))
		}
		got := p.deployment(wrong)
		n := got.Node("network")
		if got.State != deployment.Failed || n.State != deployment.NodeFailed || n.Reason != "version-not-found" || !strings.Contains(n.Message, string(theirs.ID)) ||
			got.Node("web").State != deployment.Skipped {
			t.Errorf("the deployment that cannot start is %s: %s; %+v", got.State, nodes(got), n)
		}
		if got := p.deployment(bare); got.State != deployment.Canceled || got.Stop != "version-not-found" {
			t.Errorf("the deployment without components is %s, %q", got.State, got.Stop)
		}
		if got := p.deployment(last); got.State != deployment.Succeeded {
			t.Errorf("the last deployment is %s: %s", got.State, nodes(got))
		}
		if in, err := p.Install(p.ctx, org, "acme"); err != nil || in.Active != "" || len(in.Queue) > 0 {
			t.Errorf("the install still has %s and %v, %v", in.Active, in.Queue, err)
		}
	})
}

// An artifact is kept as long as a version of its app refers to it. This is also true for
// old versions.
func TestArtifactsOfOldVersionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		first := p.publish(shop)
		second := p.publish(strings.Replace(shop, "default: 2", "default: 3", 1))
		digest := func(c byte) string { return "sha256:" + strings.Repeat(string(c), 64) }
		for i := range 120 { // the list of versions has more than one page
			given := maps.Clone(first.Artifacts)
			given["web"] = fmt.Sprintf("sha256:%064x", i)
			canonical, err := first.Spec.Canonical()
			if err != nil {
				t.Fatal(err)
			}
			p.must("publish", func() error { _, err := p.PublishVersion(p.ctx, org, "shop", canonical, given); return err })
		}
		named := p.NamedArtifacts()
		for what, c := range map[string]struct {
			repository, digest string
			want               bool
		}{
			"the first version":        {control.Repository(org, "shop", "web"), first.Artifacts["web"], true},
			"the second version":       {control.Repository(org, "shop", "network"), second.Artifacts["network"], true},
			"a version in the middle":  {control.Repository(org, "shop", "web"), fmt.Sprintf("sha256:%064x", 60), true},
			"the last version":         {control.Repository(org, "shop", "web"), fmt.Sprintf("sha256:%064x", 119), true},
			"another component":        {control.Repository(org, "shop", "cache"), first.Artifacts["web"], false},
			"no version":               {control.Repository(org, "shop", "web"), digest('f'), false},
			"an app without a version": {control.Repository(org, "other", "web"), first.Artifacts["web"], false},
			"another org":              {control.Repository("other", "shop", "web"), first.Artifacts["web"], false},
			"another registry's name":  {"web", first.Artifacts["web"], false},
		} {
			if got, err := named(p.ctx, c.repository, c.digest); err != nil || got != c.want {
				t.Errorf("%s: named %v, %v, want %v", what, got, err, c.want)
			}
		}
	})
}
