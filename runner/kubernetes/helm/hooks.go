package helm

import (
	"context"
	"fmt"
	"slices"
	"sort"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// hooks plans the hooks of one event, in the order in which Helm runs them.
func (p *planner) hooks(ctx context.Context, all []*release.Hook, event release.HookEvent, condition string) error {
	for _, h := range ordered(all, event) {
		objects, err := parse(h.Path, h.Manifest)
		if err != nil {
			return err
		}
		if err := p.e.locate(p.c.mapper, objects, nil, func(*object, error) error { return nil }); err != nil {
			return err
		}
		for _, o := range objects {
			row := changeset.Change{Address: hookAddress(event, o.id()), Kind: o.kind(), Action: changeset.Run, Reason: condition}
			if condition == "" {
				if row.Reason, err = p.ran(ctx, event, o); err != nil {
					return err
				}
			}
			if err := p.row(row, nil, o.Unstructured); err != nil {
				return err
			}
		}
	}
	return nil
}

func hookAddress(event release.HookEvent, i id) string { return fmt.Sprintf("hook %s %s", event, i) }

// ordered returns the hooks of an event in Helm's order.
func ordered(all []*release.Hook, event release.HookEvent) []*release.Hook {
	var hooks []*release.Hook
	for _, h := range all {
		if slices.Contains(h.Events, event) {
			hooks = append(hooks, h)
		}
	}
	sort.SliceStable(hooks, func(i, j int) bool {
		if hooks[i].Weight != hooks[j].Weight {
			return hooks[i].Weight < hooks[j].Weight
		}
		return hooks[i].Name < hooks[j].Name
	})
	return hooks
}

// ran returns the reason of a hook that has already begun for a revision that was not deployed. Helm records that a hook
// begins, and records its end only with the next hook or with the end of the operation. So a hook can have ended that the
// record still shows as running.
func (p *planner) ran(ctx context.Context, event release.HookEvent, o *object) (string, error) {
	for _, rec := range p.all {
		if s := rec.status(); s == rcommon.StatusDeployed || s == rcommon.StatusSuperseded || s == rcommon.StatusUninstalled {
			break
		}
		for _, h := range ordered(rec.rel.Hooks, event) {
			// A hook has one record for all its events: before an uninstall it may have run for the install.
			earlier := rec.status() == rcommon.StatusUninstalling && h.LastRun.StartedAt.Before(rec.rel.Info.Deleted)
			if h.LastRun.Phase == "" || earlier || h.Kind != o.GetKind() || h.Name != o.GetName() {
				continue
			}
			return p.phase(ctx, rec.rel.Version, h.LastRun.Phase, o)
		}
	}
	return "", nil
}

func (p *planner) phase(ctx context.Context, revision int, phase release.HookPhase, o *object) (string, error) {
	switch phase {
	case release.HookPhaseSucceeded:
		return fmt.Sprintf("it succeeded in revision %d, which was not deployed, and runs again", revision), nil
	case release.HookPhaseFailed:
		return fmt.Sprintf("it failed in revision %d, and runs again", revision), nil
	}
	live, err := o.get(ctx, p.c.dynamic)
	switch {
	case err != nil:
		return "", err
	case jobIs(live, batchv1.JobComplete):
		return fmt.Sprintf("it completed in revision %d, whose attempt died afterwards, and runs again", revision), nil
	case jobIs(live, batchv1.JobFailed):
		return fmt.Sprintf("it failed in revision %d, whose attempt died, and runs again", revision), nil
	}
	return fmt.Sprintf("unknown: the attempt of revision %d died while this hook ran, so it may have run in part or as a whole; it runs again", revision), nil
}

// unfinished lists the hooks that the record shows as running.
func (p *planner) unfinished(rec *record) []string {
	var names []string
	for _, h := range rec.rel.Hooks {
		if h.LastRun.Phase == release.HookPhaseRunning || h.LastRun.Phase == release.HookPhaseUnknown {
			names = append(names, fmt.Sprintf("hook %s %s", h.Kind, h.Name))
		}
	}
	return names
}

func jobIs(u *unstructured.Unstructured, condition batchv1.JobConditionType) bool {
	if u == nil || u.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == string(condition) && m["status"] == "True"
	})
}
