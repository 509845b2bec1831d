package main

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/component"
)

// A plan without changes is the last job of a component whose apply was lost after its last write, and of a refresh. Without outputs in
// it, the component has none, and the components that need them cannot be deployed.
func TestOutputsStayAfterAPlanWithoutChanges(t *testing.T) {
	for kind, names := range map[string][]string{
		component.Manifest: {"namespace"},
		component.Helm:     {"app_version", "chart_version", "namespace", "release", "revision"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, data := newSite(t), t.TempDir()
			planned, log, err := s.do(data, s.spec(kind, "plan"))
			if err != nil || len(planned.Outputs) > 0 {
				t.Fatalf("a plan with changes has the outputs %+v, %v\n%s", planned.Outputs, err, log)
			}
			sp := s.spec(kind, "apply")
			sp.Vars, sp.Plan = nil, &events.PlanRef{Job: "job_plan", Digest: planned.Plan.Digest}
			applied, log, err := s.do(data, sp)
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			again, log, err := s.do(data, s.spec(kind, "plan"))
			if err != nil || !again.Plan.NoOp {
				t.Fatalf("the second plan is %+v, %v\n%s", again.Plan, err, log)
			}
			if got := slices.Sorted(maps.Keys(applied.Outputs)); !slices.Equal(got, names) {
				t.Errorf("the apply has the outputs %q, want %q", got, names)
			}
			if !reflect.DeepEqual(again.Outputs, applied.Outputs) {
				t.Errorf("a plan without changes has the outputs %+v, want those of the apply: %+v", again.Outputs, applied.Outputs)
			}
		})
	}
}
