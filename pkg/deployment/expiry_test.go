package deployment_test

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// waits returns a world in which the plans of network and of a component without needs wait for approval.
func waits(t *testing.T, change func(*deployment.Deployment)) *world {
	d := deployment.Deployment{PlansExpire: time.Hour, Nodes: []deployment.Node{{Component: "network"}, {Component: "web", Needs: []string{"network"}}, {Component: "other"}}}
	change(&d)
	return newWorld(t, d).do(deployment.Begin{}).plans("plan network", "plan other")
}

func same(*deployment.Deployment) {}

func TestExpiredPlansEndTheDeployment(t *testing.T) {
	w := waits(t, same)
	due := w.d.Due()
	if want := w.d.Node("network").PlannedAt.Add(time.Hour); !due.Equal(want) {
		t.Fatalf("the deployment is due at %s, want %s: an hour after the first plan", due, want)
	}
	w.now = due.Add(-2 * time.Second)
	w.do(deployment.Expire{}).is("awaiting-approval: network awaiting-approval, web pending, other awaiting-approval", "")
	w.do(deployment.Expire{}).is("awaiting-approval: network canceled, web skipped, other awaiting-approval", "")
	w.now = w.d.Due()
	w.do(deployment.Expire{}).is("failed: network canceled, web skipped, other canceled", "")
	if n := w.d.Node("network"); n.Reason != fairlead.ReasonPlanExpired || n.Message != "no person approved its plan within 1 hour" {
		t.Errorf("network ended for %q: %s", n.Reason, n.Message)
	}
	if !w.d.Due().IsZero() || w.d.Stop != "" {
		t.Errorf("the ended deployment is due at %s, and stopped for %q", w.d.Due(), w.d.Stop)
	}
}

func TestExpiredPlansCannotBeApproved(t *testing.T) {
	past := func(w *world, d time.Duration) *world { w.now = w.now.Add(d); return w }
	for name, c := range map[string]struct {
		w    *world
		e    deployment.Approve
		want string // "": refused with plan-expired
	}{
		"a second before the limit the apply starts":  {past(waits(t, same), time.Hour-3*time.Second), deployment.Approve{Components: []string{"network"}}, "running: network applying, web pending, other awaiting-approval"},
		"at the limit the plan is refused":            {past(waits(t, same), time.Hour-2*time.Second), deployment.Approve{Components: []string{"network"}}, ""},
		"its digest does not help":                    {past(waits(t, same), time.Hour), deployment.Approve{Plans: map[string]string{"network": "sha256:1"}}, ""},
		"one of two named plans is too old":           {past(waits(t, same), time.Hour-2*time.Second), deployment.Approve{Components: []string{"network", "other"}}, ""},
		"all that wait: the plan that is left starts": {past(waits(t, same), time.Hour-2*time.Second), deployment.Approve{}, "running: network canceled, web skipped, other applying"},
		"all that wait are too old":                   {past(waits(t, same), time.Hour), deployment.Approve{}, ""},
		"the sweep was earlier":                       {past(waits(t, same), time.Hour).do(deployment.Expire{}), deployment.Approve{}, ""},
		"without a limit it is a week":                {past(waits(t, func(d *deployment.Deployment) { d.PlansExpire = 0 }), 7*24*time.Hour), deployment.Approve{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.w.nodes()
			err := c.w.try(c.e)
			if c.want != "" {
				if err != nil {
					t.Fatal(err)
				}
				c.w.is(c.want, c.w.active())
				return
			}
			if fairlead.CodeOf(err) != fairlead.CodePlanExpired || fairlead.KindOf(err) != fairlead.KindConflict || c.w.nodes() != before {
				t.Errorf("the approval returned %v, the deployment is %s", err, c.w.nodes())
			}
		})
	}
}

// An approved plan can wait for an action before it, or for a place. Its approval does not make it younger.
func TestApprovedPlanExpiresBeforeItsApply(t *testing.T) {
	w := newWorld(t, deployment.Deployment{PlansExpire: time.Hour, Parallelism: 1, Nodes: []deployment.Node{{Component: "a"}, {Component: "b"}}}).
		do(deployment.Begin{}).plans("plan a").plans("plan b").do(deployment.Approve{})
	w.is("running: a applying, b approved", "apply a")
	w.now = w.now.Add(2 * time.Hour)
	w.succeed("apply a")
	w.is("failed: a applied, b canceled", "")
	if n := w.d.Node("b"); n.Reason != fairlead.ReasonPlanExpired {
		t.Errorf("b ended for %q: %s", n.Reason, n.Message)
	}
}

// A job that no runner claims can be older than its plan may be, so the command carries the limit.
func TestApplyCarriesTheEndOfItsPlan(t *testing.T) {
	w := newWorld(t, deployment.Deployment{PlansExpire: time.Hour, Nodes: one()}).do(deployment.Begin{}).plans("plan web")
	planned := w.now
	w.now = w.now.Add(time.Minute)
	w.do(deployment.Approve{})
	if c := w.made[w.open["apply web"]]; !c.Before.Equal(planned.Add(time.Hour)) {
		t.Errorf("the apply may start before %s, want %s", c.Before, planned.Add(time.Hour))
	}
	w.fail("apply web", job.Failed).is("failed: web failed", "")
}

// The plan after a lost apply was not applied, so it is still unknown what exists.
func TestExpiredPlanAfterALossStaysLost(t *testing.T) {
	w := newWorld(t, deployment.Deployment{PlansExpire: time.Hour, AutoApprove: true, Nodes: one()}).do(deployment.Begin{}).plans("plan web").
		ends("apply web", deployment.JobEnded{State: job.Lost}).plans("plan web")
	w.is("awaiting-approval: web awaiting-approval", "")
	w.now = w.now.Add(time.Hour)
	w.do(deployment.Expire{}).is("failed: web lost", "")
	if n := w.d.Node("web"); n.Reason != fairlead.ReasonPlanExpired {
		t.Errorf("web ended for %q", n.Reason)
	}
}

// A newer plan has its own age.
func TestNewPlanStartsTheLimitAgain(t *testing.T) {
	w := newWorld(t, deployment.Deployment{PlansExpire: time.Hour, AutoApprove: true, Nodes: one()}).do(deployment.Begin{}).plans("plan web")
	w.now = w.now.Add(50 * time.Minute)
	w.ends("apply web", deployment.JobEnded{State: job.Lost})
	w.now = w.now.Add(50 * time.Minute)
	w.plans("plan web").is("awaiting-approval: web awaiting-approval", "")
	if want := w.now.Add(time.Hour); !w.d.Due().Equal(want) {
		t.Errorf("the plan expires at %s, want %s", w.d.Due(), want)
	}
}

func TestAPIBoundsMatchTheLimits(t *testing.T) {
	f, _ := reflect.TypeFor[wire.CreateDeploymentRequest]().FieldByName("PlansExpire")
	for tag, want := range map[string]time.Duration{"minimum": deployment.MinPlansExpire, "maximum": deployment.MaxPlansExpire} {
		if got := f.Tag.Get(tag); got != strconv.Itoa(int(want.Seconds())) {
			t.Errorf("the %s of the API is %s s, want %s", tag, got, want)
		}
	}
}
