package deployment_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

func TestDiamondIsPlannedApprovedAppliedInOrder(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Kind: deployment.Deploy, Nodes: diamond()})
	w.is("queued: network pending, cache pending, database pending, web pending", "")

	w.do(deployment.Begin{})
	w.is("running: network planning, cache pending, database pending, web pending", "plan network")
	w.plans("plan network")
	w.is("awaiting-approval: network awaiting-approval, cache pending, database pending, web pending", "")
	if n := w.d.Node("network"); n.Digest != "sha256:1" || n.Changes.Add != 1 {
		t.Errorf("the node has changes %+v and digest %s, want those of its plan", n.Changes, n.Digest)
	}

	w.do(deployment.Approve{})
	w.is("running: network applying, cache pending, database pending, web pending", "apply network")
	apply := w.made[w.d.Node("network").ApplyJob]
	if apply.PlanJob != w.d.Node("network").PlanJob || apply.Digest != "sha256:1" {
		t.Errorf("the apply executes plan %s of %s, want the approved one", apply.Digest, apply.PlanJob)
	}

	w.succeed("apply network")
	w.is("running: network applied, cache planning, database planning, web pending", "plan cache, plan database")
	w.plans("plan database")
	w.is("running: network applied, cache planning, database awaiting-approval, web pending", "plan cache")
	w.plans("plan cache")
	w.is("awaiting-approval: network applied, cache awaiting-approval, database awaiting-approval, web pending", "")
	w.do(deployment.Approve{Components: []string{"cache"}})
	w.is("running: network applied, cache applying, database awaiting-approval, web pending", "apply cache")
	w.succeed("apply cache")
	w.is("awaiting-approval: network applied, cache applied, database awaiting-approval, web pending", "")
	w.do(deployment.Approve{Components: []string{"database"}}).succeed("apply database")
	w.is("running: network applied, cache applied, database applied, web planning", "plan web")
	w.plans("plan web").do(deployment.Approve{}).succeed("apply web")
	w.is("succeeded: network applied, cache applied, database applied, web applied", "")
	if w.d.Began.IsZero() || !w.d.Finished.Equal(w.now) {
		t.Errorf("the deployment began at %s and finished at %s, want the time of the last event", w.d.Began, w.d.Finished)
	}
}

// Jobs of one deployment delay jobs of other installs on the same runner. So a deployment has at most Parallelism
// active jobs at a time.
func TestParallelismLimitsActiveNodes(t *testing.T) {
	nodes := []deployment.Node{{Component: "a"}, {Component: "b"}, {Component: "c"}, {Component: "d", Needs: []string{"a"}}}
	w := newWorld(t, deployment.Deployment{Kind: deployment.Deploy, Parallelism: 2, Nodes: nodes}).do(deployment.Begin{})
	w.is("running: a planning, b planning, c pending, d pending", "plan a, plan b")
	w.plans("plan b")
	w.is("running: a planning, b awaiting-approval, c planning, d pending", "plan a, plan c")
	w.plans("plan c").plans("plan a")
	w.is("awaiting-approval: a awaiting-approval, b awaiting-approval, c awaiting-approval, d pending", "")
	w.do(deployment.Approve{})
	w.is("running: a applying, b applying, c approved, d pending", "apply a, apply b")
	if err := w.try(deployment.Approve{Components: []string{"c"}}); fairlead.CodeOf(err) != "not-awaiting-approval" {
		t.Errorf("a second approval of the same plan: error %v, want not-awaiting-approval", err)
	}
	w.succeed("apply a")
	w.is("running: a applied, b applying, c applying, d pending", "apply b, apply c") // an approved node starts before a pending one
	w.succeed("apply b")
	w.is("running: a applied, b applied, c applying, d planning", "apply c, plan d")

	w = newWorld(t, deployment.Deployment{Kind: deployment.Deploy, Parallelism: 1, Nodes: nodes[:2]}).do(deployment.Begin{})
	w.plans("plan a").plans("plan b").do(deployment.Approve{}).do(deployment.Cancel{})
	w.is("canceling: a applying, b canceled", "apply a")

	many := make([]deployment.Node, deployment.Parallelism+3)
	for i := range many {
		many[i].Component = fmt.Sprintf("c%d", i)
	}
	w = newWorld(t, deployment.Deployment{Kind: deployment.Deploy, Nodes: many}).do(deployment.Begin{})
	if len(w.open) != deployment.Parallelism {
		t.Errorf("%d jobs are active, want %d", len(w.open), deployment.Parallelism)
	}
}

func TestEventSequencesLeadToStates(t *testing.T) {
	type D = deployment.Deployment
	for name, c := range map[string]struct {
		d      D
		run    func(w *world)
		nodes  string
		active string
	}{
		"a no-op plan needs neither approval nor apply": {D{Nodes: one()}, func(w *world) {
			w.noops("plan web")
		}, "succeeded: web unchanged", ""},
		"auto-approve applies the plan at once": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web")
		}, "running: web applying", "apply web"},
		"plan-only plans everything and applies nothing": {D{Nodes: diamond(), PlanOnly: true}, func(w *world) {
			w.plans("plan network", "plan cache").noops("plan database").plans("plan web")
		}, "succeeded: network planned, cache planned, database unchanged, web planned", ""},
		"plan-only with auto-approve applies nothing": {D{Nodes: one(), PlanOnly: true, AutoApprove: true}, func(w *world) {
			w.plans("plan web")
		}, "succeeded: web planned", ""},
		"plan-only: a component with unknown variables is skipped, and the deployment succeeds": {D{Nodes: diamond()[:2], PlanOnly: true}, func(w *world) {
			w.plans("plan network")
			delete(w.open, "plan cache")
			w.d.Node("cache").PlanJob = ""
			w.do(deployment.Unplannable{Component: "cache", Skip: true, Reason: "unknown-value"})
		}, "succeeded: network planned, cache skipped", ""},
		"no components": {D{}, func(*world) {}, "succeeded: ", ""},

		"a failed plan skips all components that need it": {D{Nodes: diamond()}, func(w *world) {
			w.fail("plan network", job.Failed)
		}, "failed: network failed, cache skipped, database skipped, web skipped", ""},
		"a failed apply stops its branch; the other branch continues": {D{Nodes: diamond(), AutoApprove: true}, func(w *world) {
			w.plans("plan network").succeed("apply network").plans("plan cache").fail("apply cache", job.Failed)
		}, "running: network applied, cache failed, database planning, web skipped", "plan database"},
		"one branch failed and the rest is done: failed": {D{Nodes: diamond(), AutoApprove: true}, func(w *world) {
			w.plans("plan network").succeed("apply network").plans("plan cache").fail("apply cache", job.Failed).noops("plan database")
		}, "failed: network applied, cache failed, database unchanged, web skipped", ""},
		"one branch failed: the other still waits for a person": {D{Nodes: diamond()}, func(w *world) {
			w.noops("plan network").fail("plan cache", job.Failed).plans("plan database")
		}, "awaiting-approval: network unchanged, cache failed, database awaiting-approval, web skipped", ""},
		"a canceled plan job is no success": {D{Nodes: one()}, func(w *world) {
			w.fail("plan web", job.Canceled)
		}, "failed: web canceled", ""},

		"a lost apply is planned again, without remaining changes": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).noops("plan web")
		}, "succeeded: web applied", ""},
		"a lost apply is not repeated while its new plan runs": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost)
		}, "running: web reconciling", "plan web"},
		"remaining changes after a loss wait for a person despite auto-approve": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).plans("plan web")
		}, "awaiting-approval: web awaiting-approval", ""},
		"remaining changes after a loss wait for a person despite AskNever": {D{Nodes: one(), Ask: deployment.AskNever}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).plans("plan web")
		}, "awaiting-approval: web awaiting-approval", ""},
		"a plan after a loss is applied when approved": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).plans("plan web").do(deployment.Approve{}).succeed("apply web")
		}, "succeeded: web applied", ""},
		"lost twice: planned again, waits again": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).plans("plan web").do(deployment.Approve{}).fail("apply web", job.Lost).plans("plan web")
		}, "awaiting-approval: web awaiting-approval", ""},
		"the plan after a loss fails: lost": {D{Nodes: diamond()[:2], AutoApprove: true}, func(w *world) {
			w.plans("plan network").fail("apply network", job.Lost).fail("plan network", job.Failed)
		}, "failed: network lost, cache skipped", ""},
		"a lost apply that was complete lets dependents continue": {D{Nodes: diamond()[:2], AutoApprove: true}, func(w *world) {
			w.plans("plan network").fail("apply network", job.Lost).noops("plan network")
		}, "running: network applied, cache planning", "plan cache"},

		"canceled while queued": {D{Nodes: diamond()[:2]}, nil, "canceled: network canceled, cache canceled", ""},
		"canceled while planning: waits for the job": {D{Nodes: diamond()[:2]}, func(w *world) {
			w.do(deployment.Cancel{})
		}, "canceling: network planning, cache canceled", "plan network"},
		"canceled while planning: the plan job was canceled": {D{Nodes: diamond()[:2]}, func(w *world) {
			w.do(deployment.Cancel{}).fail("plan network", job.Canceled)
		}, "canceled: network canceled, cache canceled", ""},
		"canceled while planning: the plan succeeded, but is not applied": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.do(deployment.Cancel{}).plans("plan web")
		}, "canceled: web canceled", ""},
		"canceled while a plan waits for approval": {D{Nodes: diamond()[:2]}, func(w *world) {
			w.plans("plan network").do(deployment.Cancel{})
		}, "canceled: network canceled, cache canceled", ""},
		"canceled while applying: the apply job was canceled": {D{Nodes: diamond()[:2], AutoApprove: true}, func(w *world) {
			w.plans("plan network").do(deployment.Cancel{}).fail("apply network", job.Canceled)
		}, "canceled: network canceled, cache canceled", ""},
		"canceled while applying: the apply succeeded, and nothing new starts": {D{Nodes: diamond()[:2], AutoApprove: true}, func(w *world) {
			w.plans("plan network").do(deployment.Cancel{}).succeed("apply network")
		}, "canceled: network applied, cache canceled", ""},
		"canceled while applying: the apply was lost, and no plan follows": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").do(deployment.Cancel{}).fail("apply web", job.Lost)
		}, "canceled: web lost", ""},
		"canceled while reconciling: the plan job was canceled: lost": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).do(deployment.Cancel{}).fail("plan web", job.Canceled)
		}, "canceled: web lost", ""},
		"canceled while reconciling: the plan has changes: lost": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).do(deployment.Cancel{}).plans("plan web")
		}, "canceled: web lost", ""},
		"canceled while reconciling: the plan has no changes: applied": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).do(deployment.Cancel{}).noops("plan web")
		}, "canceled: web applied", ""},
		"canceled while a plan after a loss waits: lost": {D{Nodes: one(), AutoApprove: true}, func(w *world) {
			w.plans("plan web").fail("apply web", job.Lost).plans("plan web").do(deployment.Cancel{})
		}, "canceled: web lost", ""},

		"a teardown plans and executes destroys in reverse order": {D{Kind: deployment.Teardown, AutoApprove: true, Nodes: []deployment.Node{
			{Component: "web", Destroy: true}, {Component: "network", Destroy: true, Needs: []string{"web"}},
		}}, func(w *world) {
			w.plans("plan-destroy web").succeed("destroy web").plans("plan-destroy network")
		}, "running: web applied, network applying", "destroy network"},
		"a lost destroy is followed by a plan-destroy": {D{Kind: deployment.Teardown, AutoApprove: true, Nodes: []deployment.Node{
			{Component: "web", Destroy: true},
		}}, func(w *world) {
			w.plans("plan-destroy web").fail("destroy web", job.Lost)
		}, "running: web reconciling", "plan-destroy web"},
		"a deploy destroys a component that left the app": {D{AutoApprove: true, Nodes: []deployment.Node{
			{Component: "new"}, {Component: "old", Destroy: true},
		}}, func(w *world) { w.plans("plan new", "plan-destroy old") }, "running: new applying, old applying", "apply new, destroy old"},

		"a retry continues where the last deployment failed": {D{Nodes: []deployment.Node{
			{Component: "network", State: deployment.Applied}, {Component: "cache", Needs: []string{"network"}, State: deployment.Unchanged},
			{Component: "database", Needs: []string{"network"}}, {Component: "web", Needs: []string{"cache", "database"}},
		}}, func(*world) {}, "running: network applied, cache unchanged, database planning, web pending", "plan database"},
		"a retry without remaining components succeeds": {D{Nodes: []deployment.Node{{Component: "web", State: deployment.Applied}}},
			func(*world) {}, "succeeded: web applied", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.d)
			if c.run == nil {
				w.do(deployment.Cancel{}).is(c.nodes, c.active)
				return
			}
			c.run(w.do(deployment.Begin{}))
			w.is(c.nodes, c.active)
			if w.d.State.Final() == w.d.Finished.IsZero() {
				t.Errorf("the deployment is %s and finished at %s", w.d.State, w.d.Finished)
			}
		})
	}
}

func TestCancelReturnsActiveJobs(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: diamond(), AutoApprove: true}).do(deployment.Begin{})
	w.noops("plan network").plans("plan cache").do(deployment.Cancel{Reason: "person"})
	if got := strings.Join(w.cancels, ", "); got != "cancel apply cache, cancel plan database" {
		t.Errorf("the commands are %q", got)
	}
	if w.d.Stop != "person" || w.d.Node("web").Reason != fairlead.ReasonCanceled {
		t.Errorf("the deployment's stop reason is %q, and web's reason is %q", w.d.Stop, w.d.Node("web").Reason)
	}
}

func TestNodesKeepReasonAndMessage(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: diamond()}).do(deployment.Begin{})
	w.noops("plan network").fail("plan cache", job.Failed).fail("plan database", job.Failed)
	if n := w.d.Node("cache"); n.Reason != "why" || n.Message != "how" {
		t.Errorf("the failed node has reason %q and message %q", n.Reason, n.Message)
	}
	if n := w.d.Node("web"); n.Reason != "needs-failed" || n.Message != "it needs cache, which did not succeed" {
		// The node was skipped when cache failed. The later failure of database does not change the node.
		t.Errorf("the skipped node has reason %q and message %q", n.Reason, n.Message)
	}

	w = newWorld(t, deployment.Deployment{Nodes: one(), AutoApprove: true}).do(deployment.Begin{})
	w.plans("plan web").fail("apply web", job.Lost).plans("plan web")
	if n := w.d.Node("web"); !n.Lost || !strings.Contains(n.Message, "interrupted") || n.Reason != "" {
		t.Errorf("the node that waits after a loss has reason %q and message %q", n.Reason, n.Message)
	}
}

func TestRepeatedOrForeignJobEndChangesNothing(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: diamond(), AutoApprove: true}).do(deployment.Begin{})
	plan := w.open["plan network"]
	w.plans("plan network")
	apply := w.open["apply network"]
	w.fail("apply network", job.Lost) // reconciling, with a new plan job
	second := w.open["plan network"]
	for _, e := range []deployment.JobEnded{
		{Job: plan, State: job.Succeeded, NoOp: true},
		{Job: plan, State: job.Failed},
		{Job: apply, State: job.Lost},
		{Job: apply, State: job.Succeeded},
		{Job: "job_foreign", State: job.Failed},
	} {
		before := w.d
		w.do(e)
		if !reflect.DeepEqual(before, w.d) || len(w.open) != 1 || w.open["plan network"] != second {
			t.Errorf("state %s of job %s changed the deployment to %s, active jobs %s", e.State, e.Job, w.nodes(), w.active())
		}
	}
}

func TestApplyRefusesInvalidEvents(t *testing.T) {
	queued := func(t *testing.T) *world { return newWorld(t, deployment.Deployment{Nodes: one()}) }
	planning := func(t *testing.T) *world { return queued(t).do(deployment.Begin{}) }
	canceling := func(t *testing.T) *world { return planning(t).do(deployment.Cancel{}) }
	done := func(t *testing.T) *world { return planning(t).noops("plan web") }
	waiting := func(t *testing.T) *world { return planning(t).plans("plan web") }
	for name, c := range map[string]struct {
		w    func(*testing.T) *world
		e    deployment.Event
		kind fairlead.Kind
		code fairlead.Code
	}{
		"begin twice":                      {planning, deployment.Begin{}, fairlead.KindConflict, "deployment-state"},
		"begin after the end":              {done, deployment.Begin{}, fairlead.KindConflict, "deployment-state"},
		"approve before begin":             {queued, deployment.Approve{}, fairlead.KindConflict, "not-awaiting-approval"},
		"approve before the plan ended":    {planning, deployment.Approve{Components: []string{"web"}}, fairlead.KindConflict, "not-awaiting-approval"},
		"approve a replaced plan":          {waiting, deployment.Approve{Plans: map[string]string{"web": "sha256:seen"}}, fairlead.KindConflict, "plan-changed"},
		"approve when no plan waits":       {planning, deployment.Approve{}, fairlead.KindConflict, "not-awaiting-approval"},
		"approve an unknown component":     {planning, deployment.Approve{Components: []string{"nope"}}, fairlead.KindNotFound, "component-not-found"},
		"approve while canceling":          {canceling, deployment.Approve{}, fairlead.KindConflict, "deployment-state"},
		"approve after the end":            {done, deployment.Approve{}, fairlead.KindConflict, "deployment-state"},
		"cancel after the end":             {done, deployment.Cancel{}, fairlead.KindConflict, "deployment-state"},
		"a job for an unknown component":   {planning, deployment.JobStarted{Component: "nope", Operation: job.OpPlan, Job: "job_9"}, fairlead.KindInternal, ""},
		"a second plan job for one plan":   {planning, deployment.JobStarted{Component: "web", Operation: job.OpPlan, Job: "job_9"}, fairlead.KindInternal, ""},
		"an apply job without an approval": {planning, deployment.JobStarted{Component: "web", Operation: job.OpApply, Job: "job_9"}, fairlead.KindInternal, ""},
		"the end of a running job":         {planning, deployment.JobEnded{Job: "job_1", State: job.Running}, fairlead.KindInternal, ""},
		"the end of no job":                {planning, deployment.JobEnded{State: job.Failed}, fairlead.KindInternal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.w(t)
			before := w.nodes()
			err := w.try(c.e)
			if fairlead.KindOf(err) != c.kind || fairlead.CodeOf(err) != c.code {
				t.Errorf("got error %v, want %s %s", err, c.kind, c.code)
			}
			if w.nodes() != before {
				t.Errorf("the refused event changed the deployment to %s", w.nodes())
			}
		})
	}
	w := canceling(t).do(deployment.Cancel{Reason: "again"})
	if w.d.Stop != fairlead.ReasonCanceled || strings.Join(w.cancels, ", ") != "cancel plan web, cancel plan web" {
		t.Errorf("after a second cancel the stop reason is %q and the commands are %q, want the first reason and the command again", w.d.Stop, w.cancels)
	}
}

func TestApplyDoesNotChangeItsArgument(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: diamond(), AutoApprove: true}).do(deployment.Begin{}).plans("plan network")
	before, copied := w.d, append([]deployment.Node(nil), w.d.Nodes...)
	for _, e := range []deployment.Event{
		deployment.Cancel{}, deployment.JobEnded{Job: w.open["apply network"], State: job.Succeeded},
	} {
		if _, _, err := deployment.Apply(w.d, e, w.now); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before.Nodes, copied) {
			t.Fatalf("%T changed its argument", e)
		}
	}
}

// Ask selects the plans that wait for a person. The selection depends on what a plan adds, changes and destroys.
func TestAskSelectsPlansThatWait(t *testing.T) {
	all := []deployment.Ask{deployment.AskNever, deployment.AskDestroys, deployment.AskChanges, deployment.AskAlways}
	for does, c := range map[string]struct {
		changes *deployment.Changes
		from    deployment.Ask // the first value at which the plan waits
	}{
		"only adds":                 {&deployment.Changes{Add: 3}, deployment.AskAlways},
		"adds, and changes outputs": {&deployment.Changes{Add: 3, Outputs: true}, deployment.AskAlways},
		"only changes outputs":      {&deployment.Changes{Outputs: true}, deployment.AskAlways},
		"changes in place":          {&deployment.Changes{Add: 1, Change: 1}, deployment.AskChanges},
		"replaces, so it destroys":  {&deployment.Changes{Add: 1, Destroy: 1}, deployment.AskDestroys},
		"has uncounted changes":     {&deployment.Changes{}, deployment.AskDestroys},
		"runs a program":            {&deployment.Changes{Run: 1}, deployment.AskDestroys},
		"has no counts at all":      {nil, deployment.AskDestroys},
	} {
		for i, ask := range all {
			w := newWorld(t, deployment.Deployment{Nodes: one(), Ask: ask}).do(deployment.Begin{})
			w.ends("plan web", deployment.JobEnded{State: job.Succeeded, Digest: "sha256:1", Changes: c.changes})
			if waits, want := w.d.State == deployment.Waiting, i >= slices.Index(all, c.from); waits != want {
				t.Errorf("a plan that %s, with Ask %q: waits for approval is %t, want %t", does, ask, waits, want)
			}
		}
	}
	for _, d := range []deployment.Deployment{{}, {AutoApprove: true}, {Ask: deployment.AskChanges}} {
		if got, want := d.Asks(), map[bool]deployment.Ask{true: deployment.AskNever, false: deployment.AskAlways}[d.AutoApprove]; d.Ask == "" && got != want || d.Ask != "" && got != d.Ask {
			t.Errorf("Asks of %+v is %q", d, got)
		}
	}
}
