package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/test/plane"
)

// A tool prints more than the runner's budget of log bytes, and more than one append takes (joblog.MaxAppend), because the
// append that uses up the budget is stored whole. The log ends there and is marked, and the apply goes on: it
// succeeds, and its report arrives.
func TestJobGoesOnAfterItsLogIsCut(t *testing.T) {
	t.Parallel()
	const budget = 64 << 10
	s := plane.New(t, plane.Options{LogBudget: joblog.Budget{Burst: budget, PerHour: 1}})
	startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job, _ := applyingOn(t, s, "http", module(`echo working; i=0; while [ $i -lt 3000 ]; do printf '%01000d\n' $i; i=$((i+1)); done; echo last-$((40+2))`))
	j := succeeded(t, s.UntilFinished(job))
	if len(j.Log) < budget/2 || strings.Contains(string(j.Log), "last-42") || j.Finish.Outputs["done"].Value == nil {
		t.Errorf("finished as %+v with %d bytes of log", *j.Finish, len(j.Log))
	}
	if logs, err := s.Control.Log.Streams(t.Context(), job); err != nil || len(logs) != 1 || !logs[0].Cut || !logs[0].Truncated {
		t.Errorf("the log is %+v, %v; want it cut and truncated", logs, err)
	}
}
