//go:build linux

package main_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/e2e"
)

// A proxy answers 404 instead of the state, so the tool assumes that there is no state.
// So the plan shows that it would create all resources again. If a person approves the
// plan, the apply fails and creates nothing, because the state differs from the state of
// the plan.
func TestHiddenStateMakesThePlanStale(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	w := e2e.New(t, programs, e2e.Options{Storage: "http"})
	i := w.Install("a", "")
	i.Deploy().Finish()
	made := i.Created()

	show := w.Proxy.Hide(wire.GetState)
	d := i.Deploy()
	d.Until("awaiting-approval")
	if c := d.Component().Changes; c == nil || c.Add != 2 {
		t.Errorf("without a state, the changes of the plan are %+v", c)
	}
	show()
	d.Approve()
	d.Until("failed")
	if j := d.JobIn("apply", "failed"); j.Reason != "plan-stale" {
		t.Errorf("the apply failed for %q: %s", j.Reason, j.Message)
	}
	if now := i.Created(); !slices.Equal(now, made) {
		t.Errorf("created %v, and before %v", now, made)
	}
	if did := d.Finish(); !slices.Equal(did, []string{retry}) {
		t.Errorf("to continue, the person ran %q", did)
	}
	i.CheckOnce()
	i.CheckClean()
	i.CheckState()
}
