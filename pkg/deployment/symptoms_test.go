package deployment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// begun applies an event and returns the commands without executing them.
func begun(t *testing.T, d deployment.Deployment, e deployment.Event) (deployment.Deployment, []deployment.Command) {
	t.Helper()
	d, cmds, err := deployment.Apply(d, e, t0)
	if err != nil {
		t.Fatal(err)
	}
	return d, cmds
}

func TestUnplannableLostApplyIsLostNotSkipped(t *testing.T) {
	for _, skip := range []bool{true, false} {
		w := newWorld(t, deployment.Deployment{Nodes: one(), AutoApprove: true}).do(deployment.Begin{}).plans("plan web")
		d, cmds := begun(t, w.d, deployment.JobEnded{Job: w.open["apply web"], State: job.Lost})
		if len(cmds) != 1 || cmds[0].Operation != job.OpPlan {
			t.Fatalf("after the loss the commands are %+v", cmds)
		}
		d, _ = begun(t, d, deployment.Unplannable{Component: "web", Skip: skip, Reason: "unknown-value"})
		if got := d.Node("web"); got.State != deployment.NodeLost || got.Reason != "unknown-value" || d.State != deployment.Failed {
			t.Errorf("skip %t: the component is %s with reason %q, want lost: its apply was interrupted", skip, got.State, got.Reason)
		}
	}
}

// A saved plan contains paths, so it is invalid at another place. This occurs if the agent's data folder was moved, or
// if an agent with another data folder claimed the apply.
func TestPlanElsewhereIsPlannedAndApprovedAgain(t *testing.T) {
	elsewhere := func(w *world) deployment.Event {
		id := w.open["apply web"]
		delete(w.open, "apply web")
		return deployment.JobEnded{Job: id, State: job.Failed, Reason: fairlead.ReasonPlanElsewhere, Message: "planned at another place"}
	}
	w := newWorld(t, deployment.Deployment{Nodes: one()}).do(deployment.Begin{}).plans("plan web").do(deployment.Approve{})
	w.do(elsewhere(w))
	w.is("running: web planning", "plan web")
	w.plans("plan web").is("awaiting-approval: web awaiting-approval", "")

	// With auto-approve the new plan does not wait for a person. The number of new plans is limited.
	w = newWorld(t, deployment.Deployment{Nodes: one(), AutoApprove: true}).do(deployment.Begin{}).plans("plan web")
	for range 5 {
		w.do(elsewhere(w)).is("running: web planning", "plan web")
		w.plans("plan web").is("running: web applying", "apply web")
	}
	if d, cmds := begun(t, w.d, elsewhere(w)); d.State != deployment.Failed || len(cmds) > 0 || d.Node("web").Reason != fairlead.ReasonPlanElsewhere {
		t.Errorf("the deployment is %s with commands %+v", d.State, cmds)
	}

	// If an earlier apply was lost, a person decides about each new plan.
	w = newWorld(t, deployment.Deployment{Nodes: []deployment.Node{{Component: "web", State: deployment.Pending, Lost: true}}, AutoApprove: true}).do(deployment.Begin{}).plans("plan web").do(deployment.Approve{})
	w.do(elsewhere(w)).plans("plan web").is("awaiting-approval: web awaiting-approval", "")

	// A canceled deployment does not plan again.
	w = newWorld(t, deployment.Deployment{Nodes: one(), AutoApprove: true}).do(deployment.Begin{}).plans("plan web")
	d, _ := begun(t, w.d, deployment.Cancel{})
	if d, cmds := begun(t, d, elsewhere(w)); d.State != deployment.Canceled || len(cmds) > 0 {
		t.Errorf("the deployment is %s with commands %+v", d.State, cmds)
	}
}

func TestCancelOfPlanWithoutJobHasNoCommand(t *testing.T) {
	d, _ := begun(t, newWorld(t, deployment.Deployment{Nodes: one()}).d, deployment.Begin{})
	d, cmds := begun(t, d, deployment.Cancel{})
	if len(cmds) != 0 || d.State != deployment.Canceled {
		t.Errorf("the deployment is %s with commands %+v, want canceled with none", d.State, cmds)
	}
}

// A deployment of many components of which few have changed must not wait for a plan of each.
func TestUpToDateNodeIsUnchangedWithoutAJob(t *testing.T) {
	start := func(change func(*deployment.Deployment)) deployment.Deployment {
		d := deployment.Deployment{Nodes: diamond()[:2]}
		change(&d)
		d, _ = begun(t, newWorld(t, d).d, deployment.Begin{})
		return d
	}
	d, cmds := begun(t, start(func(*deployment.Deployment) {}), deployment.UpToDate{Component: "network"})
	if n := d.Node("network"); n.State != deployment.Unchanged || n.PlanJob != "" || n.Message == "" || len(cmds) != 1 || cmds[0].Component != "cache" {
		t.Errorf("the node is %+v, the commands are %+v", *n, cmds)
	}
	for name, change := range map[string]func(*deployment.Deployment){
		"after a loss":                     func(d *deployment.Deployment) { d.Nodes[0].Lost = true },
		"after a restore":                  func(d *deployment.Deployment) { d.Nodes[0].Restored = true },
		"of a component that is destroyed": func(d *deployment.Deployment) { d.Nodes[0].Destroy = true },
		"of a deployment that refreshes":   func(d *deployment.Deployment) { d.Refresh = true },
	} {
		if d, _, err := deployment.Apply(start(change), deployment.UpToDate{Component: "network"}, t0); err == nil {
			t.Errorf("a node %s ends without a plan: %s", name, d.Node("network").State)
		}
	}
}

func TestTargetsBringWhatTheyNeed(t *testing.T) {
	nodes := []deployment.Node{{Component: "a"}, {Component: "b", Needs: []string{"a"}}, {Component: "c", Needs: []string{"b"}}, {Component: "d"}}
	for targets, want := range map[string]string{"": "a b c d", "a": "a", "c": "a b c", "d b": "a b d", "a a": "a", "x": "missing x", "a y": "missing y"} {
		chosen, missing := deployment.Targeted(nodes, strings.Fields(targets))
		var names []string
		for _, n := range chosen {
			names = append(names, n.Component)
		}
		got := strings.Join(names, " ")
		if missing != "" {
			got += "missing " + missing
		}
		if got != want {
			t.Errorf("the targets %q bring %q, want %q", targets, got, want)
		}
	}
}

func TestUnplannableNodeSkipsDependents(t *testing.T) {
	d, _ := begun(t, newWorld(t, deployment.Deployment{Nodes: diamond()[:2]}).d, deployment.Begin{})
	d, _ = begun(t, d, deployment.Unplannable{Component: "network", Reason: "wrong-type", Message: "cidr is a list"})
	if n := d.Node("network"); n.State != deployment.NodeFailed || n.Message != "cidr is a list" {
		t.Errorf("network is %s: %q", n.State, n.Message)
	}
	if d.Node("cache").State != deployment.Skipped || d.State != deployment.Failed {
		t.Errorf("cache is %s, the deployment %s", d.Node("cache").State, d.State)
	}
}

func TestUnplannableApprovedApplyFails(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: one()}).do(deployment.Begin{}).plans("plan web")
	d, cmds := begun(t, w.d, deployment.Approve{})
	if len(cmds) != 1 || cmds[0].Operation != job.OpApply {
		t.Fatalf("the commands are %+v", cmds)
	}
	d, _ = begun(t, d, deployment.Unplannable{Component: "web", Skip: true, Reason: "needs-outputs"})
	if n := d.Node("web"); n.State != deployment.NodeFailed || d.State != deployment.Failed {
		t.Errorf("web is %s and the deployment %s, want both failed: no later event would change them", n.State, d.State)
	}
}

func TestUnplannableDoesNotAffectRunningPlan(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: one()}).do(deployment.Begin{})
	w.do(deployment.Unplannable{Component: "web", Reason: "late"})
	w.is("running: web planning", "plan web")
}

// Regression test: if a deployment with auto-approve lost an apply, its retry applied the new plan although no person
// had read what was missing.
func TestRetryAfterLossWaitsDespiteAutoApprove(t *testing.T) {
	d := deployment.Deployment{ID: "dep_2", State: deployment.Queued, AutoApprove: true, RetryOf: "dep_1",
		Nodes: []deployment.Node{{Component: "web", State: deployment.Pending, Lost: true}, {Component: "other", State: deployment.Pending}}}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var cmds []deployment.Command
	for _, e := range []deployment.Event{deployment.Begin{},
		deployment.JobStarted{Component: "web", Operation: job.OpPlan, Job: "job_1"}, deployment.JobStarted{Component: "other", Operation: job.OpPlan, Job: "job_2"},
		deployment.JobEnded{Job: "job_1", State: job.Succeeded, Changes: &deployment.Changes{Add: 1}, Digest: "sha256:1"},
		deployment.JobEnded{Job: "job_2", State: job.Succeeded, Changes: &deployment.Changes{Add: 1}, Digest: "sha256:2"}} {
		var err error
		if d, cmds, err = deployment.Apply(d, e, at); err != nil {
			t.Fatal(err)
		}
	}
	if d.Nodes[0].State != deployment.Awaiting || d.Nodes[1].State != deployment.Applying || len(cmds) != 1 {
		t.Errorf("web is %s, other is %s, %+v", d.Nodes[0].State, d.Nodes[1].State, cmds)
	}
}

// A blind plan ignores what exists in the customer's account. Regression test: after a lost apply, a blind plan
// without changes made the apply count as complete.
func TestBlindPlanDoesNotResolveLoss(t *testing.T) {
	for _, noOp := range []bool{false, true} {
		lost := newWorld(t, deployment.Deployment{Nodes: []deployment.Node{{Component: "web", Type: "blind", State: deployment.Pending}}, AutoApprove: true}).
			do(deployment.Begin{}).plans("plan web").ends("apply web", deployment.JobEnded{State: job.Lost})
		lost.ends("plan web", deployment.JobEnded{State: job.Succeeded, NoOp: noOp, Digest: "sha256:2", Changes: &deployment.Changes{Run: 1}})
		if n := lost.d.Node("web"); n.State != deployment.Awaiting || !strings.Contains(n.Message, "repeats all of it") {
			t.Errorf("plan after a loss, no-op %t: web is %s: %s", noOp, n.State, n.Message)
		}
		later := newWorld(t, deployment.Deployment{Nodes: []deployment.Node{{Component: "web", Type: "blind", State: deployment.Pending, Lost: true}}, AutoApprove: true}).do(deployment.Begin{})
		later.ends("plan web", deployment.JobEnded{State: job.Succeeded, NoOp: noOp, Digest: "sha256:2", Changes: &deployment.Changes{Run: 1}})
		if n := later.d.Node("web"); n.State != deployment.Awaiting {
			t.Errorf("plan in the next deployment, no-op %t: web is %s: %s", noOp, n.State, n.Message)
		}
	}
}

// A plan-only deployment may skip a component because outputs are not known yet. Its dependents do not report a
// failure.
func TestPlanOnlySkipIsNoFailure(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  deployment.Event
		reason fairlead.Reason
	}{
		{"unknown outputs", deployment.Unplannable{Component: "network", Skip: true, Reason: fairlead.ReasonNeedsOutputs, Message: deployment.NotPlanned("base")}, fairlead.ReasonNeedsOutputs},
		{"a failure", deployment.Unplannable{Component: "network", Reason: "wrong-type"}, "needs-failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, _ := begun(t, newWorld(t, deployment.Deployment{PlanOnly: true, Nodes: diamond()[:2]}).d, deployment.Begin{})
			d, _ = begun(t, d, tt.first)
			n := d.Node("cache")
			if n.State != deployment.Skipped || n.Reason != tt.reason {
				t.Errorf("cache is %s: %s, %q", n.State, n.Reason, n.Message)
			}
			if want := "not planned: needs network, which has no plan"; tt.reason == fairlead.ReasonNeedsOutputs && n.Message != want {
				t.Errorf("the message is %q, want %q", n.Message, want)
			}
		})
	}
}

// The customer's policy asks for a signature of the plan of web. A deployment that approves by itself waits for it, and a
// person of the vendor cannot approve it without one.
func TestPlanThatNeedsASignatureWaitsForIt(t *testing.T) {
	planned := func(d deployment.Deployment) deployment.Deployment {
		w := newWorld(t, d).do(deployment.Begin{})
		id := w.open["plan web"]
		after, cmds := begun(t, w.d, deployment.JobEnded{Job: id, State: job.Succeeded, Digest: "sha256:1", Changes: &deployment.Changes{Add: 1}, NeedsSignature: "approvals.changes"})
		if len(cmds) != 0 || after.Node("web").State != deployment.Awaiting {
			t.Fatalf("after the plan the component is %s with commands %+v", after.Node("web").State, cmds)
		}
		return after
	}
	d := planned(deployment.Deployment{Nodes: one(), AutoApprove: true})
	for name, e := range map[string]deployment.Approve{
		"all":                          {},
		"by name":                      {Components: []string{"web"}},
		"by its digest":                {Plans: map[string]string{"web": "sha256:1"}},
		"signed for another component": {Components: []string{"web"}, Signatures: map[string][]byte{"db": []byte("signed")}},
	} {
		if _, _, err := deployment.Apply(d, e, t0); fairlead.KindOf(err) != fairlead.KindConflict && fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("approved %s without a signature: %v", name, err)
		}
	}
	if _, _, err := deployment.Apply(d, deployment.Approve{Plans: map[string]string{"web": "sha256:0"}, Signatures: map[string][]byte{"web": []byte("signed")}}, t0); fairlead.CodeOf(err) != fairlead.CodePlanChanged {
		t.Errorf("signed an older plan: %v", err)
	}
	after, cmds := begun(t, d, deployment.Approve{Signatures: map[string][]byte{"web": []byte("signed")}})
	if len(cmds) != 1 || string(cmds[0].Signature) != "signed" || cmds[0].Operation != job.OpApply {
		t.Fatalf("after the signature the commands are %+v", cmds)
	}
	// The apply ran at another place, so there is a new plan: the old signature is not used for it.
	after, _ = begun(t, after, deployment.JobStarted{Component: "web", Operation: job.OpApply, Job: "job_apply"})
	after, _ = begun(t, after, deployment.JobEnded{Job: "job_apply", State: job.Failed, Reason: fairlead.ReasonPlanElsewhere})
	if n := after.Node("web"); n.Signature != nil || n.NeedsSignature != "" || n.State != deployment.Planning {
		t.Errorf("the component is %+v", n)
	}
}

// Of two plans, one needs a signature: a person approves "all", which approves the other one only.
func TestApprovalOfAllLeavesThePlanThatNeedsASignature(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Nodes: []deployment.Node{{Component: "db", State: deployment.Pending}, {Component: "web", State: deployment.Pending}}}).do(deployment.Begin{})
	d := w.d
	for component, rule := range map[string]string{"db": "approvals.changes", "web": ""} {
		d, _ = begun(t, d, deployment.JobEnded{Job: w.open["plan "+component], State: job.Succeeded, Digest: "sha256:1", Changes: &deployment.Changes{Add: 1}, NeedsSignature: rule})
	}
	d, cmds := begun(t, d, deployment.Approve{})
	if d.Node("db").State != deployment.Awaiting || len(cmds) != 1 || cmds[0].Component != "web" {
		t.Errorf("db is %s, and the commands are %+v", d.Node("db").State, cmds)
	}
}
