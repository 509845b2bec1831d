package agent

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
)

// A container had the states and plans of all installs before, and could write
// what the steps of others run.
func TestAContainerSeesTheStateOfAnotherInstall(t *testing.T) {
	const attemptID = "job_2-1"
	shared := []executor.Folder{{Path: "artifacts", Write: true}, {Path: "plugin-cache"}, {Path: "salvage/job_2-1", Write: true}}
	for name, tc := range map[string]struct {
		in   attempt.Input
		want []string // what it may write besides
		err  bool
	}{
		"a plan: its own":                 {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "web"}, []string{"state/ins_1/web", "plans/job_2"}, false},
		"an apply: that which it applies": {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "web", PlanJob: "job_1"}, []string{"state/ins_1/web", "plans/job_1"}, false},
		"a migration: all of its install": {attempt.Input{Job: "job_2", InstallID: "ins_1"}, []string{"state/ins_1", "plans/job_2"}, false},
		"a job of no install: none":       {attempt.Input{Job: "job_2"}, nil, false},
		"an install that leads elsewhere": {attempt.Input{Job: "job_2", InstallID: "..", Component: "web"}, nil, true},
		"a component that does":           {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "../ins_2"}, nil, true},
		"a plan that does":                {attempt.Input{Job: "job_2", InstallID: "ins_1", Component: "web", PlanJob: "../state"}, nil, true},
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
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}
