package agent

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
)

// A container sees only the states and plans of its own job. It must not read the states and plans of other installs, and
// must not write files that the steps of other jobs run.
func TestAContainerSeesOnlyItsOwnInstall(t *testing.T) {
	const attemptID = "job_2-1"
	shared := []executor.Folder{{Path: "artifacts", Write: true}, {Path: "plugin-cache"}, {Path: "salvage/job_2-1", Write: true}}
	for name, tc := range map[string]struct {
		in   attempt.Input
		want []string // folders that the step may write, in addition to those in shared
		err  bool
	}{
		"a plan job: its own plan":               {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "web"}, []string{"state/ins_1/web", "plans/job_2"}, false},
		"an apply job: the plan that it applies": {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "web", PlanJob: "job_1"}, []string{"state/ins_1/web", "plans/job_1"}, false},
		"a run of an action: its own plan":       {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "actions.backup", PlanJob: "job_1"}, []string{"state/ins_1/actions.backup", "plans/job_1"}, false},
		"an action with ..":                      {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "actions.../ins_2"}, nil, true},
		"a component with a dot":                 {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "we.b"}, nil, true},
		"a migration: its whole install":         {attempt.Input{Job: "job_2", InstallID: "ins_1"}, []string{"state/ins_1", "plans/job_2"}, false},
		"a job without an install: nothing":      {attempt.Input{Job: "job_2"}, nil, false},
		"an install ID with ..":                  {attempt.Input{Job: "job_2", InstallID: "..", Component: "web"}, nil, true},
		"a component with ..":                    {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "../ins_2"}, nil, true},
		"a plan ID with ..":                      {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "web", PlanJob: "../state"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := foldersOf(attemptID, tc.in)
			if (err != nil) != tc.err {
				t.Fatal(err)
			}
			if tc.err {
				return
			}
			want := slices.Clone(shared)
			for _, path := range tc.want {
				want = append(want, executor.Folder{Path: path, Write: true})
			}
			if !slices.Equal(got, want) {
				t.Errorf("the step gets the folders %+v, want %+v", got, want)
			}
		})
	}
}
