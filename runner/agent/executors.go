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

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/executor/docker"
	"github.com/fairlead/fairlead/runner/internal/executor/ecs"
	"github.com/fairlead/fairlead/runner/internal/executor/kubernetes"
	"github.com/fairlead/fairlead/runner/internal/executor/process"
)

// site is what an executor is made for.
type site struct {
	cfg     config.Runner // Data is absolute
	options Options
	runner  string // its id
}

func (s site) steps() string { return filepath.Join(s.cfg.Data, stepsFolder) }

// settings fills the struct that cfg points to from the environment.
func (s site) settings(cfg any) error {
	fs := flag.NewFlagSet("executor", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return config.Load(cfg, fs, nil, s.options.Environ)
}

// executors are the values of FAIRLEAD_EXECUTOR. What one needs to know beyond
// the site it reads from variables of its own.
func executors() map[string]func(ctx context.Context, s site) (executor.Executor, error) {
	return map[string]func(context.Context, site) (executor.Executor, error){
		"process":    openProcess,
		"docker":     openDocker,
		"kubernetes": openKubernetes,
		"ecs":        openECS,
	}
}

// defaultExecutor needs nothing but the agent's own machine.
const defaultExecutor = "process"

func newExecutor(ctx context.Context, s site) (executor.Executor, error) {
	if s.options.Executor != nil {
		return s.options.Executor, nil
	}
	name := cmp.Or(s.cfg.Executor, defaultExecutor)
	kinds := executors()
	open, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("FAIRLEAD_EXECUTOR: %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	e, err := open(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", name, err)
	}
	return e, nil
}

func openProcess(_ context.Context, s site) (executor.Executor, error) {
	return process.New(s.steps(), s.options.StepCommand), nil
}

// sharedFolders are those of the data folder that jobs use beside their own:
// states and plans in local storage, what was fetched or made once for all, and
// states that a tool could not save.
func sharedFolders() []string {
	return []string{"artifacts", "plans", "plugin-cache", "salvage", "state", "tools"}
}

func openDocker(_ context.Context, s site) (executor.Executor, error) {
	var cfg config.Docker
	if err := s.settings(&cfg); err != nil {
		return nil, err
	}
	return docker.New(docker.Options{Docker: cfg, Steps: s.steps(), Runner: s.runner, Folders: sharedFolders()})
}

func openKubernetes(_ context.Context, s site) (executor.Executor, error) {
	var cfg config.Kubernetes
	if err := s.settings(&cfg); err != nil {
		return nil, err
	}
	return kubernetes.New(kubernetes.Options{Kubernetes: cfg, Runner: s.runner})
}

func openECS(ctx context.Context, s site) (executor.Executor, error) {
	var cfg config.ECS
	if err := s.settings(&cfg); err != nil {
		return nil, err
	}
	ac, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment itself, as every program on the SDK does
	if err != nil {
		return nil, fmt.Errorf("AWS configuration: %w", err)
	}
	return ecs.New(ecs.Options{ECS: cfg, Steps: s.steps(), Runner: s.runner, AWS: ac})
}
