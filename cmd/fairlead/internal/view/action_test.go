package view_test

import (
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func TestAdviceNamesEachCommand(t *testing.T) {
	next := []wire.NextStep{
		{Effect: "Free space on the disk"},
		{Action: &wire.Action{Verb: "deployment.retry", Args: wire.ActionArgs{Deployment: "dep_1"}}, Effect: "plans the rest again"},
		{Action: &wire.Action{Verb: "job.logs", Args: wire.ActionArgs{Job: "job_1"}}, Effect: "has the reason"},
	}
	const want = "Free space on the disk `fairlead deployment retry dep_1` plans the rest again. `fairlead job logs job_1` has the reason."
	if got := view.Advice(next); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := view.Advice(nil); got != "" {
		t.Errorf("no steps give %q", got)
	}
}
