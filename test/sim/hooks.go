package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// hook is an action that a deployment runs before or after an operation of a component.
type hook struct {
	name      string
	when      string // "before" or "after"
	component string
	operation string // "apply" or "destroy"
}

// drawHooks returns the hooks of the app. Two fifths of the apps have some.
func drawHooks(w *world, app []component) (hooks []hook) {
	if w.unit("hooks") >= 0.4 {
		return nil
	}
	for _, k := range []hook{{"migrate", "before", "", "apply"}, {"verify", "after", "", "apply"}, {"export", "before", "", "destroy"}, {"report-end", "after", "", "destroy"}} {
		if w.unit("hook "+k.name) < 0.5 {
			k.component = app[w.intn("component of "+k.name, len(app))].name
			hooks = append(hooks, k)
		}
	}
	return hooks
}

// hook returns the hook whose part of the app has the name.
func (s scenario) hook(part string) (hook, bool) {
	i := slices.IndexFunc(s.hooks, func(k hook) bool { return appspec.ActionPrefix+k.name == part })
	if i < 0 {
		return hook{}, false
	}
	return s.hooks[i], true
}

// retried returns the deployment, the one that it retries, the one that this one retries, and so on. The caller holds the world's
// lock.
func (w *world) retried(id fairlead.DeploymentID) (all []fairlead.DeploymentID) {
	for ; id != ""; id = w.deployments[id].RetryOf {
		all = append(all, id)
	}
	return all
}

// began returns the tools that began the hook's operation in the deployments. The caller holds the world's lock.
func (w *world) began(k hook, install string, in []fairlead.DeploymentID) (tools []*applied) {
	for _, a := range w.applies[install+"/"+k.component] {
		if a.run.spec.Operation == k.operation && slices.Contains(in, a.dep) {
			tools = append(tools, a)
		}
	}
	return tools
}

// required reports whether the deployment must run the hook around its operation. A teardown has the hooks of the version that is
// deployed. The caller holds the world's lock.
func (w *world) required(k hook, d store.Deployment) bool {
	return k.operation == "apply" || d.Kind == deployment.Teardown && w.whole[d.InstallName]
}

// hooksCameFirst checks, when a tool begins to change a component, that the actions before its operation have succeeded.
func (w *world) hooksCameFirst(r *run) {
	w.mu.Lock()
	d := w.deployments[r.spec.Deployment]
	var missing []string
	for _, k := range w.plan.hooks {
		if k.when != "before" || k.component != r.spec.Component || k.operation != r.spec.Operation || !w.required(k, d) {
			continue
		}
		if !slices.ContainsFunc(w.retried(d.ID), func(id fairlead.DeploymentID) bool { return w.ran[string(id)+" "+appspec.ActionPrefix+k.name] != "" }) {
			missing = append(missing, k.name)
		}
	}
	w.mu.Unlock()
	if missing != nil {
		w.violate("hooks-come-first", "%s begins the %s of %s in deployment %s, but %s has not run before it with success", r.p.name, r.spec.Operation, r.key, d.ID, strings.Join(missing, ", "))
	}
}

// hookRuns checks the place of a hook when it begins: before the first change of its component, or after the last.
func (w *world) hookRuns(spec plugin.Spec) {
	k, ok := w.plan.hook(spec.Component)
	if !ok {
		return
	}
	w.mu.Lock()
	var wrong string
	switch k.when {
	case "before":
		if tools := w.began(k, spec.InstallName, []fairlead.DeploymentID{spec.Deployment}); len(tools) > 0 {
			wrong = tools[0].run.p.name + " began before it"
		}
	case "after":
		tools := w.began(k, spec.InstallName, w.retried(spec.Deployment))
		if len(tools) == 0 && w.stats.Unleased == 0 { // a tool without a lease may have begun
			wrong = "the operation did not begin"
		}
		for _, a := range tools {
			if j := w.jobs[a.job]; a.alive && a.run.p.alive() && (j.State != job.Lost || j.Reason != fairlead.ReasonLeaseExpired) {
				wrong = a.run.p.name + " has not ended"
			}
		}
	}
	w.mu.Unlock()
	if wrong != "" {
		w.violate("hooks-keep-their-place", "%s runs %s of %s, which comes %s the %s of %s, in deployment %s, but %s", attempt.ID(spec.Job, spec.Epoch), k.name, spec.InstallName, k.when, k.operation, k.component, spec.Deployment, wrong)
	}
}

// actionEnds records that a run of an action succeeded.
func (w *world) actionEnds(spec plugin.Spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ran[string(spec.Deployment)+" "+spec.Component] = attempt.ID(spec.Job, spec.Epoch)
}

// hooksRan checks, when a deployment has succeeded, that each action after an operation which succeeded has run.
func (w *world) hooksRan(d store.Deployment) {
	if d.PlanOnly || d.Kind == deployment.Action {
		return
	}
	w.mu.Lock()
	var missing []string
	for _, k := range w.plan.hooks {
		if k.when != "after" || !w.required(k, d) || w.ran[string(d.ID)+" "+appspec.ActionPrefix+k.name] != "" {
			continue
		}
		for _, j := range w.jobs {
			if j.Deployment == d.ID && j.Component == k.component && string(j.Operation) == k.operation && j.State == job.Succeeded {
				missing = append(missing, fmt.Sprintf("%s after the %s of %s", k.name, k.operation, k.component))
			}
		}
	}
	w.whole[d.InstallName] = d.Kind == deployment.Deploy
	w.mu.Unlock()
	if missing != nil {
		w.violate("success-means-done", "deployment %s of %s succeeded, but it did not run %s", d.ID, d.InstallName, missing[0])
	}
}
