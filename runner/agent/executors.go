package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/executor/process"
)

// site is what an executor is made for.
type site struct {
	cfg     config.Runner // Data is absolute
	options Options
}

// executors are the values of FAIRLEAD_EXECUTOR. What one needs to know beyond
// the site it reads from variables of its own.
func executors() map[string]func(ctx context.Context, s site) (executor.Executor, error) {
	return map[string]func(context.Context, site) (executor.Executor, error){
		"process": newProcess,
	}
}

func newExecutor(ctx context.Context, cfg config.Runner, o Options) (executor.Executor, error) {
	if o.Executor != nil {
		return o.Executor, nil
	}
	kinds := executors()
	cfg.Executor = cmp.Or(cfg.Executor, "process")
	open, ok := kinds[cfg.Executor]
	if !ok {
		return nil, fmt.Errorf("FAIRLEAD_EXECUTOR: %q is none of %s", cfg.Executor, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	e, err := open(ctx, site{cfg, o})
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", cfg.Executor, err)
	}
	return e, nil
}

func newProcess(_ context.Context, s site) (executor.Executor, error) {
	return process.New(filepath.Join(s.cfg.Data, stepsFolder), s.options.StepCommand), nil
}
