package deployment_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/deployment"
)

// ahead returns the next jobs as text, such as "apply a, plan b".
func ahead(d deployment.Deployment, limit int) string {
	var out []string
	for _, n := range d.Ahead(limit) {
		out = append(out, string(n.Operation)+" "+n.Component)
	}
	return strings.Join(out, ", ")
}

func TestNextJobsOfAChainAreForeseen(t *testing.T) {
	chain := []deployment.Node{{Component: "a"}, {Component: "b", Needs: []string{"a"}}, {Component: "c", Needs: []string{"b"}}, {Component: "d", Needs: []string{"c"}}}
	w := newWorld(t, deployment.Deployment{Kind: deployment.Deploy, AutoApprove: true, Nodes: chain})
	if got := ahead(w.d, 8); got != "" {
		t.Errorf("a queued deployment has the next jobs %q, want none", got)
	}
	w.do(deployment.Begin{})
	for _, want := range []struct{ ended, ahead string }{
		{"", "apply a, plan b, apply b, plan c, apply c, plan d, apply d"},
		{"plan a", "plan b, apply b, plan c, apply c, plan d, apply d"},
		{"apply a", "apply b, plan c, apply c, plan d, apply d"},
		{"plan b", "plan c, apply c, plan d, apply d"},
		{"apply b", "apply c, plan d, apply d"},
		{"plan c", "plan d, apply d"},
		{"apply c", "apply d"},
		{"plan d", ""},
		{"apply d", ""},
	} {
		if op, _, _ := strings.Cut(want.ended, " "); op == "plan" {
			w.plans(want.ended)
		} else if op == "apply" {
			w.succeed(want.ended)
		}
		if got := ahead(w.d, 8); got != want.ahead {
			t.Errorf("after %q the next jobs are %q, want %q", want.ended, got, want.ahead)
		}
	}
	if w.d.State != deployment.Succeeded {
		t.Fatalf("the deployment is %s", w.d.State)
	}
}

// Each row names why a step may or may not start before its job exists.
func TestOnlyForeseeableJobsAreAhead(t *testing.T) {
	pair := func(a, b deployment.NodeState) []deployment.Node {
		return []deployment.Node{{Component: "a", State: a}, {Component: "b", State: b, Needs: []string{"a"}}}
	}
	lost := pair(deployment.Planning, deployment.Pending)
	lost[0].Lost = true
	gone := pair(deployment.Planning, deployment.Pending)
	gone[0].Destroy, gone[1].Destroy = true, true
	for name, tc := range map[string]struct {
		d     deployment.Deployment
		limit int
		want  string
	}{
		"a person approves each plan":             {deployment.Deployment{Nodes: pair(deployment.Planning, deployment.Pending)}, 8, ""},
		"most plans need no person":               {deployment.Deployment{Ask: deployment.AskDestroys, Nodes: pair(deployment.Planning, deployment.Pending)}, 8, "apply a, plan b, apply b"},
		"a plan after a loss waits for a person":  {deployment.Deployment{AutoApprove: true, Nodes: lost}, 8, ""},
		"a lost apply is being planned":           {deployment.Deployment{AutoApprove: true, Nodes: pair(deployment.Reconciling, deployment.Pending)}, 8, ""},
		"a plan waits for a person":               {deployment.Deployment{Nodes: pair(deployment.Awaiting, deployment.Pending)}, 8, ""},
		"an approved plan waits for parallelism":  {deployment.Deployment{Nodes: pair(deployment.Approved, deployment.Pending)}, 8, "apply a, plan b"},
		"an approved apply runs":                  {deployment.Deployment{Nodes: pair(deployment.Applying, deployment.Pending)}, 8, "plan b"},
		"a plan-only deployment has no applies":   {deployment.Deployment{PlanOnly: true, Nodes: pair(deployment.Planning, deployment.Pending)}, 8, "plan b"},
		"a needed component failed":               {deployment.Deployment{AutoApprove: true, Nodes: pair(deployment.NodeFailed, deployment.Pending)}, 8, ""},
		"a needed component is unchanged":         {deployment.Deployment{AutoApprove: true, Nodes: pair(deployment.Unchanged, deployment.Planning)}, 8, "apply b"},
		"a teardown destroys":                     {deployment.Deployment{AutoApprove: true, Nodes: gone}, 8, "destroy a, plan-destroy b, destroy b"},
		"the deployment is being canceled":        {deployment.Deployment{AutoApprove: true, Stop: "canceled", State: deployment.Canceling, Nodes: pair(deployment.Planning, deployment.Pending)}, 8, ""},
		"the deployment has ended":                {deployment.Deployment{AutoApprove: true, State: deployment.Failed, Nodes: pair(deployment.Planning, deployment.Pending)}, 8, ""},
		"the first jobs come first":               {deployment.Deployment{AutoApprove: true, Nodes: pair(deployment.Planning, deployment.Pending)}, 2, "apply a, plan b"},
		"what can begin together comes together":  {deployment.Deployment{AutoApprove: true, Nodes: append(pair(deployment.Pending, deployment.Pending), deployment.Node{Component: "c", State: deployment.Pending})}, 3, "plan a, plan c, apply a"},
		"a limit of 0 permits no job to be ahead": {deployment.Deployment{AutoApprove: true, Nodes: pair(deployment.Planning, deployment.Pending)}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.d.State == "" {
				tc.d.State = deployment.Running
			}
			if got := ahead(tc.d, tc.limit); got != tc.want {
				t.Errorf("the next jobs are %q, want %q", got, tc.want)
			}
		})
	}
}

// A step must not be started ahead for a job that never comes although nothing failed and each plan has changes.
func TestEveryForeseenJobComes(t *testing.T) {
	w := newWorld(t, deployment.Deployment{Kind: deployment.Deploy, AutoApprove: true, Nodes: diamond()}).do(deployment.Begin{})
	foreseen := w.d.Ahead(100)
	for w.active() != "" {
		for name := range w.open {
			if strings.HasPrefix(name, "plan") {
				w.plans(name)
			} else {
				w.succeed(name)
			}
		}
	}
	var came []string
	for _, c := range w.made {
		came = append(came, string(c.Operation)+" "+c.Component)
	}
	for _, n := range foreseen {
		if name := string(n.Operation) + " " + n.Component; !slices.Contains(came, name) {
			t.Errorf("%s was foreseen and never came", name)
		}
	}
	if len(foreseen) != len(came)-1 { // the first plan exists from the beginning
		t.Errorf("%d of %d jobs were foreseen, want all but the first", len(foreseen), len(came))
	}
}
