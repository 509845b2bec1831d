package appspec

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Runner declares which runners an app can use.
type Runner struct {
	// Kinds holds the kinds of runners, sorted, without repetition.
	Kinds []string `json:"kinds" must:"true" check:"runnerkinds" alias:"kind types type" doc:"The kinds of runners that can run the app's jobs, such as kubernetes and aws-eks. An install on a runner of another kind is refused."`
}

// canonical returns a sorted copy, or nil if nothing is declared.
func (r *Runner) canonical() *Runner {
	if r == nil || len(r.Kinds) == 0 {
		return nil
	}
	kinds := slices.Clone(r.Kinds)
	slices.Sort(kinds)
	return &Runner{Kinds: slices.Compact(kinds)}
}

// RunnerKinds returns the kinds of runners that the app can use, sorted; none if it can use every kind. They are those that
// it declares, that can run on its sandbox, and that start jobs in an image of their own if the app has such jobs.
func (a *App) RunnerKinds() []string {
	var kinds []string
	if a.Runner != nil {
		kinds = slices.Clone(a.Runner.Kinds)
	}
	only := func(fit []string) {
		if kinds == nil {
			kinds = fit
			slices.Sort(kinds)
			return
		}
		kinds = slices.DeleteFunc(kinds, func(k string) bool { return !slices.Contains(fit, k) })
	}
	if a.Sandbox != nil {
		only(kindsOn(a.sandboxKind()))
	}
	if a.OwnImage() != "" {
		only(kindsWithImages())
	}
	return kinds
}

// runnerKinds returns the names of all kinds of runners.
func runnerKinds() []string {
	var names []string
	for _, k := range runnerspec.Kinds() {
		names = append(names, string(k))
	}
	return names
}

// checkRunner reports each kind of runner that does not exist.
func checkRunner(report reporter, a *App) {
	if a.Runner == nil {
		return
	}
	for i, kind := range a.Runner.Kinds {
		if !slices.Contains(runnerKinds(), kind) {
			report(fmt.Sprintf("runner.kinds.%d", i+1), "unknown-runner-kind", fmt.Sprintf("%s is not a kind of runner", yamlnode.Quote(kind)), yamlnode.DidYouMean(kind, "kinds", runnerKinds()))
		}
	}
}
