package deployment_test

import (
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/job"
)

// hooked is web, with the action prepare before it and the action check after it.
func hooked() []deployment.Node {
	return []deployment.Node{
		{Component: "web"},
		{Component: "actions.check", Type: "script", Needs: []string{"web"}, Run: &deployment.Run{Action: "check", Trigger: deployment.After, Around: []string{"web"}}},
		{Component: "actions.prepare", Type: "script", Run: &deployment.Run{Action: "prepare", Trigger: deployment.Before, Around: []string{"web"}}},
	}
}

func automatic(nodes []deployment.Node) deployment.Deployment {
	return deployment.Deployment{Kind: deployment.Deploy, AutoApprove: true, Nodes: nodes}
}

func TestHooksRunAroundAnApply(t *testing.T) {
	w := newWorld(t, automatic(hooked())).do(deployment.Begin{})
	w.is("running: web planning, actions.check pending, actions.prepare pending", "plan web")
	w.plans("plan web").is("running: web approved, actions.check pending, actions.prepare planning", "plan-run actions.prepare")
	w.plans("plan-run actions.prepare").is("running: web approved, actions.check pending, actions.prepare applying", "run actions.prepare")
	w.succeed("run actions.prepare").is("running: web applying, actions.check pending, actions.prepare applied", "apply web")
	w.succeed("apply web").is("running: web applied, actions.check planning, actions.prepare applied", "plan-run actions.check")
	w.plans("plan-run actions.check").succeed("run actions.check").is("succeeded: web applied, actions.check applied, actions.prepare applied", "")
}

// A hook of a component without changes has no job.
func TestHooksOfUnchangedComponentDoNotRun(t *testing.T) {
	w := newWorld(t, automatic(hooked())).do(deployment.Begin{}).noops("plan web")
	w.is("succeeded: web unchanged, actions.check unchanged, actions.prepare unchanged", "")
	if n := w.d.Node("actions.check"); n.PlanJob != "" || n.Message != "not run: no changes of web to apply" {
		t.Errorf("the hook is %+v", n)
	}
}

func TestHooksAreReadyAndEndWithTheirComponents(t *testing.T) {
	two := func(by deployment.Trigger) []deployment.Node {
		hook := deployment.Node{Component: "actions.hook", Run: &deployment.Run{Action: "hook", Trigger: by, Around: []string{"a", "b"}}}
		if by == deployment.After {
			hook.Needs = []string{"a", "b"}
		}
		return []deployment.Node{{Component: "a"}, {Component: "b"}, hook}
	}
	for name, c := range map[string]struct {
		nodes  []deployment.Node
		act    func(w *world)
		nodesA string
		jobs   string
	}{
		"a hook after two runs if one of them changed": {two(deployment.After), func(w *world) { w.plans("plan a").noops("plan b").succeed("apply a") },
			"running: a applied, b unchanged, actions.hook planning", "plan-run actions.hook"},
		"a hook after two waits for both": {two(deployment.After), func(w *world) { w.plans("plan a").succeed("apply a") },
			"running: a applied, b planning, actions.hook pending", "plan b"},
		"a hook after a failure is skipped": {two(deployment.After), func(w *world) { w.plans("plan a").noops("plan b").fail("apply a", job.Failed) },
			"failed: a failed, b unchanged, actions.hook skipped", ""},
		"a hook before two holds both, and runs once": {two(deployment.Before), func(w *world) { w.plans("plan a", "plan b", "plan-run actions.hook").succeed("run actions.hook") },
			"running: a applying, b applying, actions.hook applied", "apply a, apply b"},
		"a hook before two runs for the one that changes": {two(deployment.Before), func(w *world) { w.noops("plan a").plans("plan b") },
			"running: a unchanged, b approved, actions.hook planning", "plan-run actions.hook"},
		"a component that is planned after the hook ran does not wait": {two(deployment.Before), func(w *world) { w.plans("plan a", "plan-run actions.hook").succeed("run actions.hook").plans("plan b") },
			"running: a applying, b applying, actions.hook applied", "apply a, apply b"},
		"a hook whose components all failed before is skipped": {two(deployment.Before), func(w *world) { w.fail("plan a", job.Failed).fail("plan b", job.Failed) },
			"failed: a failed, b failed, actions.hook skipped", ""},
		"a failed hook stops the apply, and what needs it": {append(hooked(), deployment.Node{Component: "next", Needs: []string{"web"}}), func(w *world) {
			w.plans("plan web", "plan-run actions.prepare").fail("run actions.prepare", job.Failed)
		}, "failed: web skipped, actions.check skipped, actions.prepare failed, next skipped", ""},
		"a hook whose needs fail stops the apply": {[]deployment.Node{{Component: "db"}, {Component: "web"},
			{Component: "actions.prepare", Needs: []string{"db"}, Run: &deployment.Run{Action: "prepare", Trigger: deployment.Before, Around: []string{"web"}}}},
			func(w *world) { w.plans("plan web").fail("plan db", job.Failed) }, "failed: db failed, web skipped, actions.prepare skipped", ""},
		"a hook whose plan cannot be made stops the apply": {hooked(), func(w *world) {
			w.plans("plan web").fail("plan-run actions.prepare", job.Failed)
		}, "failed: web skipped, actions.check skipped, actions.prepare failed", ""},
		"a cancel ends what waits": {hooked(), func(w *world) { w.plans("plan web").do(deployment.Cancel{}) },
			"canceling: web canceled, actions.check canceled, actions.prepare planning", "plan-run actions.prepare"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, automatic(c.nodes)).do(deployment.Begin{})
			c.act(w)
			w.is(c.nodesA, c.jobs)
		})
	}
}

// A hook needs an approval as other programs do, and its component waits for it.
func TestHookWaitsForApproval(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Kind: deployment.Deploy, Nodes: hooked()}).do(deployment.Begin{}).plans("plan web")
	w.is("awaiting-approval: web awaiting-approval, actions.check pending, actions.prepare pending", "")
	w.do(deployment.Approve{}).plans("plan-run actions.prepare")
	w.is("awaiting-approval: web approved, actions.check pending, actions.prepare awaiting-approval", "")
	w.do(deployment.Approve{}).succeed("run actions.prepare").is("running: web applying, actions.check pending, actions.prepare applied", "apply web")
}

// A lost run is never repeated: no plan could show what it did. A component waits for no such plan, and is not applied.
func TestLostRunIsFinal(t *testing.T) {
	one := deployment.Deployment{Kind: deployment.Action, Action: "backup", AutoApprove: true,
		Nodes: []deployment.Node{{Component: "actions.backup", Type: "script", Run: &deployment.Run{Action: "backup", Trigger: deployment.Manual}}}}
	w := newWorld(t, one).do(deployment.Begin{}).plans("plan-run actions.backup").fail("run actions.backup", job.Lost)
	w.is("failed: actions.backup lost", "")
	w = newWorld(t, automatic(hooked())).do(deployment.Begin{}).plans("plan web", "plan-run actions.prepare").fail("run actions.prepare", job.Lost)
	w.is("failed: web skipped, actions.check skipped, actions.prepare lost", "")
}

// A run with an unchanged plan still runs: an action is no desired state.
func TestRunIsNeverUnchanged(t *testing.T) {
	n := deployment.Node{Component: "actions.backup", Type: "script", Run: &deployment.Run{Action: "backup", Trigger: deployment.Manual}}
	w := newWorld(t, deployment.Deployment{Kind: deployment.Action, AutoApprove: true, Nodes: []deployment.Node{n}}).do(deployment.Begin{})
	w.noops("plan-run actions.backup").is("running: actions.backup applying", "run actions.backup")
	if n.MayBeUpToDate() {
		t.Error("a run may end without a plan")
	}
	if w.succeed("run actions.backup"); w.d.MayChange() {
		t.Error("a run counts as a change of components, so it would prevent the retry of a deployment")
	}
}

// A plan-only deployment plans the hooks of components with changes, and runs none.
func TestPlanOnlyRunsNoHook(t *testing.T) {
	d := automatic(hooked())
	d.AutoApprove, d.PlanOnly = false, true
	w := newWorld(t, d).do(deployment.Begin{}).plans("plan web")
	w.is("running: web planned, actions.check planning, actions.prepare planning", "plan-run actions.check, plan-run actions.prepare")
	w.plans("plan-run actions.check", "plan-run actions.prepare").is("succeeded: web planned, actions.check planned, actions.prepare planned", "")
}

func TestTargetsTakeTheirHooks(t *testing.T) {
	nodes := append(hooked(), deployment.Node{Component: "db"}, deployment.Node{Component: "actions.both", Needs: []string{"web", "db"},
		Run: &deployment.Run{Action: "both", Trigger: deployment.After, Around: []string{"web", "db"}}})
	for name, c := range map[string]struct {
		targets []string
		want    []string
		missing string
	}{
		"a target has its hooks":                {[]string{"web"}, []string{"web", "actions.check", "actions.prepare", "actions.both"}, ""},
		"a hook without its other component":    {[]string{"db"}, []string{"db", "actions.both"}, ""},
		"a run of an action cannot be a target": {[]string{"actions.check"}, nil, "actions.check"},
	} {
		chosen, missing := deployment.Targeted(nodes, c.targets)
		var names []string
		for _, n := range chosen {
			names = append(names, n.Component)
			for _, need := range n.Needs {
				if (&deployment.Deployment{Nodes: chosen}).Node(need) == nil {
					t.Errorf("%s: %s needs %s, which is not there", name, n.Component, need)
				}
			}
		}
		if !reflect.DeepEqual(names, c.want) || missing != c.missing {
			t.Errorf("%s: the nodes are %v, missing %q", name, names, missing)
		}
	}
	if got := nodes[4].Run.Around; len(got) != 2 {
		t.Errorf("the choice changed the nodes it chose from: %v", got)
	}
}

// Steps ahead of a run have the role that its action declares, and hooks have none: they may have nothing to do.
func TestAheadKnowsTheRoleOfARun(t *testing.T) {
	n := deployment.Node{Component: "actions.backup", Type: "script", State: deployment.Planning, Run: &deployment.Run{Action: "backup", Trigger: deployment.Manual, Role: "provision"}}
	d := deployment.Deployment{State: deployment.Running, AutoApprove: true, Nodes: append([]deployment.Node{n}, hooked()[1:]...)}
	for i := range d.Nodes[1:] {
		d.Nodes[1+i].State, d.Nodes[1+i].Needs = deployment.Pending, nil
	}
	want := []deployment.Next{{Component: "actions.backup", Type: "script", Operation: job.OpRun, Role: "provision"}}
	if got := d.Ahead(5); !reflect.DeepEqual(got, want) {
		t.Errorf("the next jobs are %+v", got)
	}
	script, _ := component.Of("script")
	for name, c := range map[string]struct {
		op       job.Operation
		declared string
		role     component.Role
		ok       bool
	}{
		"a run has the role of its operation":     {job.OpRun, "", component.Deploy, true},
		"a run has the role that it declares":     {job.OpRun, "read-only", component.ReadOnly, true},
		"a run cannot delete infrastructure":      {job.OpRun, "deprovision", component.Deprovision, false},
		"an apply has the role that it declares":  {job.OpApply, "provision", component.Provision, true},
		"an apply cannot delete infrastructure":   {job.OpApply, "deprovision", component.Deprovision, false},
		"a destroy has the role of its operation": {job.OpDestroy, "provision", component.Deprovision, true},
		"a plan reads, whatever it plans":         {job.OpPlan, "provision", component.ReadOnly, true},
		"a plan of a run reads, whatever it runs": {job.OpPlanRun, "provision", component.ReadOnly, true},
	} {
		if role, ok := script.RoleOf(c.op, c.declared); role != c.role || ok != c.ok {
			t.Errorf("%s: %s, %t", name, role, ok)
		}
	}
}
