package helm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// removals plans the objects that exist and are no longer wanted.
func (p *planner) removals(ctx context.Context, current, others map[id]*object, wanted map[id]bool) error {
	for _, i := range sortedIDs(current) {
		if o := current[i]; !wanted[i] {
			if err := p.remove(ctx, o, ""); err != nil {
				return err
			}
		}
	}
	for _, i := range sortedIDs(others) {
		o := others[i]
		if wanted[i] {
			continue
		}
		live, err := o.get(ctx, p.c.dynamic)
		if err != nil {
			return err
		}
		if live == nil || !p.e.owned(live) || keep(live) {
			continue
		}
		entry, err := reference(o, live, nil)
		if err != nil {
			return err
		}
		p.saved.Objects = append(p.saved.Objects, entry)
		p.saved.Leftovers = append(p.saved.Leftovers, entry)
		row := changeset.Change{Address: o.id().String(), Kind: o.kind(), Action: changeset.Delete, Reason: "left over from " + o.source}
		if err := p.row(row, live, nil); err != nil {
			return err
		}
	}
	return nil
}

func keep(u *unstructured.Unstructured) bool {
	return strings.ToLower(strings.TrimSpace(u.GetAnnotations()[annotationPolicy])) == policyKeep
}

// remove plans the removal of an object of the current revision.
func (p *planner) remove(ctx context.Context, o *object, reason string) error {
	live, err := o.get(ctx, p.c.dynamic)
	if err != nil || live == nil {
		return err
	}
	if err := p.remember(o, live, nil); err != nil {
		return err
	}
	row := changeset.Change{Address: o.id().String(), Kind: o.kind(), Action: changeset.Delete, Reason: reason}
	destroy := p.saved.Operation == opDestroy
	switch _, annotated := o.GetAnnotations()[annotationPolicy]; {
	// An upgrade obeys the live object's policy, and an uninstall the manifest's.
	case !destroy && live.GetAnnotations()[annotationPolicy] == policyKeep, destroy && annotated:
		row.Action, row.Reason = changeset.Forget, "its resource policy keeps it"
	case destroy && !p.e.owned(live):
		row.Action, row.Reason = changeset.Forget, "it lost the marks of this release, so Helm leaves it"
	case o.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		row.Reason = "all objects of this kind in the cluster are deleted with it"
	}
	if row.Action == changeset.Forget {
		return p.row(row, nil, nil)
	}
	return p.row(row, live, nil)
}

func sortedIDs(m map[id]*object) []id {
	var ids []id
	for i := range m {
		ids = append(ids, i)
	}
	slices.SortFunc(ids, func(a, b id) int { return strings.Compare(a.String()+" "+a.Group, b.String()+" "+b.Group) })
	return ids
}

// rollback plans what a failed apply would do, if it is to be undone.
func (p *planner) rollback(ctx context.Context) error {
	if !p.saved.RollbackOnFailure {
		return nil
	}
	row := changeset.Change{Address: "rollback-on-failure", Kind: kindRelease, Action: changeset.Run}
	if p.saved.Operation == opInstall {
		row.Reason = "if the install fails, Helm uninstalls the release"
		if err := p.row(row, nil, nil); err != nil {
			return err
		}
		for _, event := range []release.HookEvent{release.HookPreDelete, release.HookPostDelete} {
			if err := p.hooks(ctx, p.saved.Rendering.hooks, event, "if the install fails"); err != nil {
				return err
			}
		}
		return nil
	}
	i := slices.IndexFunc(p.all, func(r *record) bool {
		return r.status() == rcommon.StatusSuperseded || r.status() == rcommon.StatusDeployed
	})
	if i < 0 {
		return nil
	}
	row.Reason = fmt.Sprintf("if the upgrade fails, Helm returns to revision %d", p.all[i].rel.Version)
	if err := p.row(row, nil, nil); err != nil {
		return err
	}
	for _, event := range []release.HookEvent{release.HookPreRollback, release.HookPostRollback} {
		if err := p.hooks(ctx, p.all[i].rel.Hooks, event, "if the upgrade fails"); err != nil {
			return err
		}
	}
	return nil
}

// destroy plans the removal of the release.
func (p *planner) destroy(ctx context.Context) error {
	s := &p.saved
	s.Operation = opDestroy
	last := p.all.last()
	if last == nil {
		s.NoOp = true
		return nil
	}
	if err := p.hooks(ctx, last.rel.Hooks, s.before(), ""); err != nil {
		return err
	}
	current, others, err := p.earlier()
	if err != nil {
		return err
	}
	if err := p.removals(ctx, current, others, nil); err != nil {
		return err
	}
	if err := p.kept(ctx, last); err != nil {
		return err
	}
	if err := p.hooks(ctx, last.rel.Hooks, s.after(), ""); err != nil {
		return err
	}
	row := changeset.Change{Address: p.releaseAddress(), Kind: kindRelease, Action: changeset.Delete, Reason: "the records of all revisions"}
	if last.interrupted() {
		row.Reason = p.interruption(last) + "; " + row.Reason
	}
	return p.row(row, nil, nil)
}

// kept lists what stays in the cluster after a destroy: definitions from the folder crds, and objects that hooks made.
func (p *planner) kept(ctx context.Context, last *record) error {
	var objects []*object
	for name := range strings.SplitSeq(last.rel.Chart.Metadata.Annotations[annotationCRDs], ",") {
		if name == "" {
			continue
		}
		objects = append(objects, &object{source: "Helm does not delete the definitions of a chart's folder crds, because all their objects would go with them",
			Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name}}}})
	}
	for _, h := range last.rel.Hooks {
		hook, err := parse(h.Path, h.Manifest)
		if err != nil {
			return err
		}
		for _, o := range hook {
			if !slices.Contains(h.DeletePolicies, release.HookSucceeded) || !slices.ContainsFunc(h.Events, deletes) {
				o.source = "Helm does not delete the objects of hooks"
				objects = append(objects, o)
			}
		}
	}
	if err := p.e.locate(p.c.mapper, objects, nil, func(*object, error) error { return nil }); err != nil {
		return err
	}
	seen := map[id]bool{}
	for _, o := range objects {
		live, err := o.get(ctx, p.c.dynamic)
		if err != nil {
			return err
		}
		if live == nil || seen[o.id()] {
			continue
		}
		seen[o.id()] = true
		if err := p.row(changeset.Change{Address: o.id().String(), Kind: o.kind(), Action: changeset.Forget, Reason: o.source}, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func deletes(h release.HookEvent) bool {
	return h == release.HookPreDelete || h == release.HookPostDelete
}
