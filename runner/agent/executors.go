package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/docker"
	"github.com/fairlead/fairlead/runner/executor/process"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
	"github.com/fairlead/fairlead/runner/internal/shim"
)

// Site describes the runner for which an executor is made.
type Site struct {
	Data    string // the runner's data folder, absolute
	Steps   string // the folder of the steps' folders in it
	Runner  string // the runner's id
	Setup   launchconfig.Setup
	command []string // program and arguments that run a step
	light   string   // program that runs a light step; "": command runs it
	orphans *shim.Orphans
}

// OpenExecutor makes the executor that the site's setup names.
type OpenExecutor func(ctx context.Context, s Site) (executor.Executor, error)

// openExecutor opens the executor of a setup: process, docker, or one of Options.Executors.
func openExecutor(ctx context.Context, data, runner string, s launchconfig.Setup, o Options) (executor.Executor, error) {
	kinds := map[string]OpenExecutor{runnerspec.ExecutorProcess: openProcess, runnerspec.ExecutorDocker: openDocker}
	maps.Copy(kinds, o.Executors)
	open, ok := kinds[s.Executor()]
	if !ok {
		return nil, fmt.Errorf("this program has no executor %s; it has %s. For kubernetes and ecs use the runner's image, or build the runner with -tags clusters",
			s.Executor(), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	e, err := open(ctx, Site{Data: data, Steps: filepath.Join(data, stepsFolder), Runner: runner, Setup: s, command: o.StepCommand, light: o.light, orphans: o.orphans})
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", s.Executor(), err)
	}
	return e, nil
}

func openProcess(_ context.Context, s Site) (executor.Executor, error) {
	p := process.Programs{Full: s.command}
	if s.light != "" {
		p.Light = []string{s.light}
	}
	return process.New(s.Steps, p, s.orphans), nil
}

// foldersOf returns the shared folders that a step in a container sees in addition to its own folder.
// Of the folders with shared downloads, the step may write only the artifacts, which each job
// verifies. If the state and the plan of the step's component are in local storage, the step may
// write them. It does not see the cache of known tools: each container detects its own tools.
func foldersOf(attemptID string, in attempt.Input) ([]executor.Folder, error) {
	folders := []executor.Folder{{Path: "artifacts", Write: true}, {Path: "plugin-cache"}, {Path: filepath.Join("salvage", attemptID), Write: true}}
	if in.InstallID == "" {
		return folders, nil
	}
	for what, id := range map[string]string{"install": in.InstallID, "component": strings.TrimPrefix(in.Component, fairlead.ActionPrefix), "plan": in.PlanJob} {
		if err := attempt.CheckID(id); err != nil && id != "" {
			return nil, fmt.Errorf("the %s of the claim: %w", what, err)
		}
	}
	// A migration works on all components of its install.
	folders = append(folders, executor.Folder{Path: filepath.Join("state", in.InstallID, in.Component), Write: true})
	// The plan job writes the plan; the job that applies it removes it.
	plan := cmp.Or(in.PlanJob, string(in.Job))
	return append(folders, executor.Folder{Path: filepath.Join("plans", plan), Write: true}), nil
}

func openDocker(_ context.Context, s Site) (executor.Executor, error) {
	return docker.New(docker.Options{DockerRunner: *s.Setup.Runner.(*runnerspec.DockerRunner), Steps: s.Steps, Runner: s.Runner})
}
