package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/docker"
	"github.com/fairlead/fairlead/runner/executor/process"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
	"github.com/fairlead/fairlead/runner/internal/shim"
)

// Site is what an executor is made for.
type Site struct {
	Data    string // the runner's data folder, absolute
	Steps   string // the folder of the steps' folders in it
	Runner  string // the runner's id
	Setup   launchconfig.Setup
	command []string // that runs a step
	orphans *shim.Orphans
}

// OpenExecutor makes the executor that the site's setup names.
type OpenExecutor func(ctx context.Context, s Site) (executor.Executor, error)

// openExecutor opens an executor of every agent, or one of the program's own.
func openExecutor(ctx context.Context, data, runner string, s launchconfig.Setup, o Options) (executor.Executor, error) {
	kinds := map[string]OpenExecutor{runnerspec.ExecutorProcess: openProcess, runnerspec.ExecutorDocker: openDocker}
	maps.Copy(kinds, o.Executors)
	open, ok := kinds[s.Executor()]
	if !ok {
		return nil, fmt.Errorf("the executor %s is none that this program has: %s (kubernetes and ecs take a runner that was built with -tags clusters, as its image is)",
			s.Executor(), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	e, err := open(ctx, Site{Data: data, Steps: filepath.Join(data, stepsFolder), Runner: runner, Setup: s, command: o.StepCommand, orphans: o.orphans})
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", s.Executor(), err)
	}
	return e, nil
}

func openProcess(_ context.Context, s Site) (executor.Executor, error) {
	return process.New(s.Steps, s.command, s.orphans), nil
}

// foldersOf returns what a step sees of the data folder beside its own folders:
// what was fetched for all, of which it writes only artifacts, that each job
// verifies; and the state and the plan of its component, if they are in local
// storage. What is known of tools is not among it: each container asks its own.
func foldersOf(attemptID string, in attempt.Input) ([]executor.Folder, error) {
	folders := []executor.Folder{{Path: "artifacts", Write: true}, {Path: "plugin-cache"}, {Path: filepath.Join("salvage", attemptID), Write: true}}
	if in.InstallID == "" {
		return folders, nil
	}
	for what, id := range map[string]string{"install": in.InstallID, "component": in.Component, "plan": in.PlanJob} {
		if err := attempt.CheckID(id); err != nil && id != "" {
			return nil, fmt.Errorf("the %s of the claim: %w", what, err)
		}
	}
	// A migration is of all components of its install.
	folders = append(folders, executor.Folder{Path: filepath.Join("state", in.InstallID, in.Component), Write: true})
	// A plan is written by its own job, and removed by the job that carries it out.
	plan := cmp.Or(in.PlanJob, string(in.Job))
	return append(folders, executor.Folder{Path: filepath.Join("plans", plan), Write: true}), nil
}

func openDocker(_ context.Context, s Site) (executor.Executor, error) {
	return docker.New(docker.Options{DockerRunner: *s.Setup.Runner.(*runnerspec.DockerRunner), Steps: s.Steps, Runner: s.Runner})
}
