package agent

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/executor/docker"
	"github.com/fairlead/fairlead/runner/internal/executor/process"
)

// Site is what an executor is made for.
type Site struct {
	Data    string   // the runner's data folder, absolute
	Steps   string   // the folder of the steps' folders in it
	Runner  string   // the runner's id
	Environ []string // of the agent
	command []string // that runs a step
}

// Settings fills the struct that cfg points to, one of pkg/config, from the
// environment.
func (s Site) Settings(cfg any) error {
	fs := flag.NewFlagSet("executor", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return config.Load(cfg, fs, nil, s.Environ)
}

// OpenExecutor makes an executor. What it needs to know beyond the site it reads
// from variables of its own.
type OpenExecutor func(ctx context.Context, s Site) (executor.Executor, error)

// executors are the values of FAIRLEAD_EXECUTOR, with those of the program.
func executors(more map[string]OpenExecutor) map[string]OpenExecutor {
	all := map[string]OpenExecutor{"process": openProcess, "docker": openDocker}
	maps.Copy(all, more)
	return all
}

// defaultExecutor needs nothing but the agent's own machine.
const defaultExecutor = "process"

func executorName(cfg config.Runner) string { return cmp.Or(cfg.Executor, defaultExecutor) }

func newExecutor(ctx context.Context, cfg config.Runner, runner string, o Options) (executor.Executor, error) {
	if o.Executor != nil {
		return o.Executor, nil
	}
	name := executorName(cfg)
	kinds := executors(o.Executors)
	open, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("FAIRLEAD_EXECUTOR: %q is none that this program has: %s (kubernetes and ecs take a runner that was built with -tags clusters, as its image is)",
			name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	e, err := open(ctx, Site{Data: cfg.Data, Steps: filepath.Join(cfg.Data, stepsFolder), Runner: runner, Environ: o.Environ, command: o.StepCommand})
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", name, err)
	}
	return e, nil
}

func openProcess(_ context.Context, s Site) (executor.Executor, error) {
	return process.New(s.Steps, s.command), nil
}

// sharedFolders are those of the data folder that jobs use beside their own:
// states and plans in local storage, what was fetched or made once for all, and
// states that a tool could not save.
func sharedFolders() []string {
	return []string{"artifacts", "plans", "plugin-cache", "salvage", "state", "tools"}
}

func openDocker(_ context.Context, s Site) (executor.Executor, error) {
	var cfg config.Docker
	if err := s.Settings(&cfg); err != nil {
		return nil, err
	}
	return docker.New(docker.Options{Docker: cfg, Steps: s.Steps, Runner: s.Runner, Folders: sharedFolders()})
}
