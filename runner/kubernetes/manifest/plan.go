package manifest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/cluster"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Comparison is how a plan compared the objects with the cluster.
type Comparison string

// The comparisons.
const (
	ByServer Comparison = "server" // the API server answered a dry run for each object whose kind and namespace exist
	ByRunner Comparison = "runner" // the identity of the plan may not do dry runs, so the engine merged some objects itself
)

// Planned is the result of a plan.
type Planned struct {
	Saved      []byte // for Apply; it holds the secrets of the objects
	NoOp       bool
	Changes    []changeset.Change
	Base       *changeset.Base // nil: the component had no inventory
	Comparison Comparison
}

// concurrency is the number of objects that a plan reads at the same time.
const concurrency = 8

// wanted is an object of the component's files during a plan.
type wanted struct {
	Object
	ref      ref
	resource schema.GroupVersionResource // empty: the cluster does not know the kind yet
	served   bool                        // the cluster serves the version
	live     *unstructured.Unstructured  // nil: does not exist
	change   *changeset.Change           // nil: nothing changes
	byRunner bool
}

// definition is a CustomResourceDefinition of the component's files.
type definition struct {
	*wanted
	namespaced bool
	versions   map[string]bool // served ones
}

// planner is a plan in progress.
type planner struct {
	*run
	all         []*wanted
	definitions map[schema.GroupKind]definition
	namespaces  map[string]*wanted
	mu          sync.Mutex
	local       map[string]bool // resources without permission for a dry run, by name
}

// Plan compares the objects with the cluster and changes nothing. With destroy it plans the deletion of all objects in the
// inventory, and objects must be empty.
func (e Engine) Plan(ctx context.Context, objects []Object, destroy bool) (Planned, error) {
	r, err := e.begin()
	if err != nil {
		return Planned{}, err
	}
	if destroy == (len(objects) > 0) {
		return Planned{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "a plan has objects, and a plan of a destroy has none; this one has %d", len(objects))
	}
	if r.inv, err = r.readInventory(ctx); err != nil {
		return Planned{}, err
	}
	p := &planner{run: r, definitions: map[schema.GroupKind]definition{}, namespaces: map[string]*wanted{}, local: map[string]bool{}}
	if !destroy {
		if objects, err = p.withNamespace(ctx, objects); err != nil {
			return Planned{}, err
		}
	}
	if err := p.prepare(ctx, objects); err != nil {
		return Planned{}, err
	}
	old, err := p.earlier(ctx)
	if err != nil {
		return Planned{}, err
	}
	if _, err := r.union(old, p.refs()).encode(); err != nil {
		return Planned{}, err
	}
	if err := p.compareAll(ctx); err != nil {
		return Planned{}, err
	}
	removals, err := p.removals(ctx, old)
	if err != nil {
		return Planned{}, err
	}
	return p.result(destroy, removals)
}

// union returns the record of an apply's first write.
func (r *run) union(old, wanted []ref) record {
	all := slices.Clone(wanted)
	for _, o := range old {
		if !slices.ContainsFunc(all, func(w ref) bool { return w.identity() == o.identity() }) {
			all = append(all, o)
		}
	}
	return record{V: inventoryV, Install: r.Owner.Install, Component: r.Owner.Component, Revision: r.inv.Revision + 1, Job: r.Attempt.Job, Objects: all}
}

func (p *planner) refs() []ref {
	all := make([]ref, len(p.all))
	for i, w := range p.all {
		all[i] = w.ref
	}
	return all
}

// installNamespace is the place of the install's namespace if it is not in the component's files.
const installNamespace = "the install's namespace"

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// withNamespace adds the install's namespace to the objects if the component creates it, or has created it, and its files do not
// have it. A namespace of others is not the component's.
func (p *planner) withNamespace(ctx context.Context, objects []Object) ([]Object, error) {
	of := ref{Version: "v1", Kind: "Namespace", Name: p.Namespace}
	if slices.ContainsFunc(objects, func(o Object) bool { return refOf(o.Unstructured).identity() == of.identity() }) {
		return objects, nil
	}
	u, err := p.get(ctx, namespaces, of, "")
	switch {
	case plugin.ReasonOf(err) == fairlead.ReasonClusterForbidden:
		return objects, nil // Such an identity could not create the namespace. A missing one fails the first dry run in it.
	case err != nil:
		return nil, err
	case u != nil && ownerOf(u) != p.Owner.String():
		return objects, nil
	}
	own := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": p.Namespace}}}
	return append(slices.Clone(objects), Object{Unstructured: own}), nil
}

// earlier returns the objects that earlier applies may have created. An apply that was killed after it created the inventory's own
// namespace has left that namespace without an inventory.
func (p *planner) earlier(ctx context.Context) ([]ref, error) {
	if p.inv.uid != "" {
		return p.inv.Objects, nil
	}
	of := ref{Version: "v1", Kind: "Namespace", Name: p.Namespace}
	u, err := p.get(ctx, namespaces, of, "")
	switch {
	case plugin.ReasonOf(err) == fairlead.ReasonClusterForbidden:
		return nil, nil // Such an identity could not create the namespace.
	case err != nil:
		return nil, err
	case u == nil || ownerOf(u) != p.Owner.String():
		return nil, nil
	}
	return []ref{of}, nil
}

func ownerOf(u *unstructured.Unstructured) string { return u.GetAnnotations()[ownerAnnotation] }

// prepare gives each object its owner and its namespace, finds the kinds, and sorts the objects in the order of the apply.
func (p *planner) prepare(ctx context.Context, objects []Object) error {
	for _, o := range objects {
		w := &wanted{Object: Object{Unstructured: o.DeepCopy(), File: o.File, Line: o.Line}}
		if other := ownerOf(w.Unstructured); other != "" && other != p.Owner.String() {
			return plugin.Errorf(fairlead.ReasonManifestInvalid, "%s: the object has the annotation %s: remove it, because the runner sets it", o.place(), ownerAnnotation)
		}
		a := w.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a[ownerAnnotation] = p.Owner.String()
		w.SetAnnotations(a)
		p.all = append(p.all, w)
		switch kind := refOf(w.Unstructured); {
		case isCRD(kind):
			if gk, d, ok := defined(w); ok {
				p.definitions[gk] = d
			}
		case isNamespace(kind):
			p.namespaces[w.GetName()] = w
		}
	}
	for _, w := range p.all {
		if err := p.resolve(ctx, w); err != nil {
			return err
		}
	}
	byRef := map[ref]Object{}
	for _, w := range p.all {
		w.ref = refOf(w.Unstructured)
		if w.ref.identity() == p.inventoryRef().identity() {
			return plugin.Errorf(fairlead.ReasonManifestInvalid, "%s: the Secret has the name of the component's inventory: give it another name", w.place())
		}
		if other, twice := byRef[w.ref.identity()]; twice {
			return invalid(w.File, w.Line, "the object %s is already at %s: remove one of the two", w.ref, other.place())
		}
		byRef[w.ref.identity()] = w.Object
	}
	inOrder(p.all, func(w *wanted) ref { return w.ref })
	return nil
}

// defined reads a CustomResourceDefinition.
func defined(w *wanted) (schema.GroupKind, definition, bool) {
	group, _, _ := unstructured.NestedString(w.Object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(w.Object.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(w.Object.Object, "spec", "scope")
	versions, _, _ := unstructured.NestedSlice(w.Object.Object, "spec", "versions")
	d := definition{wanted: w, namespaced: scope == "Namespaced", versions: map[string]bool{}}
	for _, v := range versions {
		if fields, ok := v.(map[string]any); ok && fields["served"] == true {
			d.versions[textOf(fields, "name")] = true
		}
	}
	return schema.GroupKind{Group: group, Kind: kind}, d, group != "" && kind != ""
}

// resolve finds the resource of an object's kind, and gives a namespaced object its namespace.
func (p *planner) resolve(ctx context.Context, w *wanted) error {
	gvk := w.GroupVersionKind()
	find := func(version string) (*meta.RESTMapping, error) { return p.mapping(ctx, refOf(w.Unstructured), version) }
	m, err := find(gvk.Version)
	if err != nil {
		return err
	}
	var namespaced bool
	if m != nil {
		w.resource, w.served, namespaced = m.Resource, true, m.Scope.Name() == meta.RESTScopeNameNamespace
	} else {
		d, ok := p.definitions[gvk.GroupKind()]
		other, err := find("")
		switch {
		case err != nil:
			return err
		case ok && d.versions[gvk.Version] && other != nil:
			w.resource, namespaced = other.Resource, d.namespaced
		case ok && d.versions[gvk.Version]:
			namespaced = d.namespaced
		case other != nil:
			return plugin.Errorf(fairlead.ReasonKindUnknown, "%s: the cluster does not serve %s, but %s: change the object's apiVersion", w.place(), refOf(w.Unstructured).kind(), other.GroupVersionKind.GroupVersion())
		default:
			return plugin.Errorf(fairlead.ReasonKindUnknown, "%s: the cluster does not know the kind %s: add its CustomResourceDefinition to the component, or install it first", w.place(), refOf(w.Unstructured).kind())
		}
	}
	switch {
	case !namespaced && w.GetNamespace() != "":
		p.logf("%s: %s is not in a namespace; its metadata.namespace is ignored.", w.place(), refOf(w.Unstructured))
		unstructured.RemoveNestedField(w.Object.Object, "metadata", "namespace")
	case namespaced && w.GetNamespace() == "":
		w.SetNamespace(p.Namespace)
	}
	return nil
}

// compareAll compares all objects with the cluster: definitions and namespaces first, because others depend on what happens to them.
func (p *planner) compareAll(ctx context.Context) error {
	first := func(w *wanted) bool { return isCRD(w.ref) || isNamespace(w.ref) }
	for _, stage := range []bool{true, false} {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(concurrency)
		for _, w := range p.all {
			if first(w) == stage {
				g.Go(func() error { return p.compare(ctx, w) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// attemptsOfConflict is how often a write or a dry run is repeated because the object changed at the same time.
const attemptsOfConflict = 10

// compare sets the change of one object.
func (p *planner) compare(ctx context.Context, w *wanted) error {
	for range attemptsOfConflict {
		if w.resource.Resource != "" {
			var err error
			if w.live, err = p.get(ctx, w.resource, w.ref, w.place()); err != nil {
				return err
			}
		}
		if err := p.mayWrite(w); err != nil {
			return err
		}
		moved, err := p.dryRun(ctx, w)
		if err != nil || !moved {
			return err
		}
	}
	return plugin.Errorf(fairlead.ReasonNotReady, "%s: %s changes all the time, so no plan can describe it: find out who changes it", w.place(), w.ref)
}

// mayWrite refuses an object of another component, and one that is being deleted.
func (p *planner) mayWrite(w *wanted) error {
	if w.live == nil {
		return nil
	}
	if other := ownerOf(w.live); other != "" && other != p.Owner.String() {
		return plugin.Errorf(fairlead.ReasonObjectOwned, "%s: %s belongs to the component %s: remove the object from one of the two components, or destroy the other one first", w.place(), w.ref, other)
	}
	if w.live.GetDeletionTimestamp() != nil {
		return plugin.Errorf(fairlead.ReasonDeletionStuck, "%s: %s is being deleted%s: wait until it is gone, then plan again", w.place(), w.ref, finalizers(w.live))
	}
	return nil
}

// finalizers names what a deletion waits for.
func finalizers(u *unstructured.Unstructured) string {
	names := u.GetFinalizers()
	if of, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "finalizers"); isNamespace(refOf(u)) {
		names = append(names, of...)
	}
	if len(names) == 0 {
		return ""
	}
	return ", and waits for " + strings.Join(names, ", ")
}

// dryRun asks the API server for the object after an apply, and sets the change. moved: the object changed after it was read.
func (p *planner) dryRun(ctx context.Context, w *wanted) (moved bool, err error) {
	if !w.served || w.live == nil && p.needsFirst(w) {
		return false, p.predicted(w, "")
	}
	p.mu.Lock()
	local := p.local[w.resource.String()]
	p.mu.Unlock()
	if local {
		return false, p.compared(w)
	}
	after, err := p.apply(ctx, w.resource, w.Unstructured, w.live, false, true)
	var taken string
	if causes := conflicts(err); len(causes) > 0 {
		taken = p.Mask("takes fields over: " + strings.Join(causes, "; "))
		after, err = p.apply(ctx, w.resource, w.Unstructured, w.live, true, true)
	}
	at := action{verb: "patch", did: "compare the object", ref: w.ref, resource: w.resource, place: w.place(), secret: isSecret(w.Unstructured)}
	switch {
	case err == nil:
		return false, p.set(w, after, taken)
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsForbidden(err) && !p.permitted(ctx, at):
		p.mu.Lock()
		if !p.local[w.resource.String()] {
			p.logf("The job's identity may not do dry runs of %s, so the runner compares them itself.", resourceName(w.resource))
		}
		p.local[w.resource.String()] = true
		p.mu.Unlock()
		return false, p.compared(w)
	case noNamespace(err):
		return false, plugin.Errorf(fairlead.ReasonNamespaceMissing, "%s: the namespace %s of %s does not exist: create it, or add it to the component's files", w.place(), w.ref.Namespace, w.ref)
	case apierrors.IsNotFound(err):
		return true, nil // deleted after it was read
	case p.definitionChanges(w) && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || unexplained(err)):
		return false, p.predicted(w, taken) // the object fits the new definition only
	case apierrors.IsInvalid(err) && w.live != nil:
		return false, p.replace(ctx, w, at, err)
	}
	return false, p.failed(ctx, at, err)
}

// noNamespace reports whether a request failed because the object's namespace does not exist.
func noNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// needsFirst reports whether the apply creates the object's namespace.
func (p *planner) needsFirst(w *wanted) bool {
	ns := p.namespaces[w.ref.Namespace]
	return ns != nil && ns.live == nil
}

// definitionChanges reports whether the apply changes the definition of the object's kind.
func (p *planner) definitionChanges(w *wanted) bool {
	d, ok := p.definitions[w.ref.groupKind()]
	return ok && d.change != nil
}

// apply applies an object by server-side apply. With dry the server changes nothing. If live is not nil, the
// object must still be this one, in this version. With force the engine takes over fields of other managers.
func (r *run) apply(ctx context.Context, resource schema.GroupVersionResource, u, live *unstructured.Unstructured, force, dry bool) (*unstructured.Unstructured, error) {
	if live != nil {
		u = u.DeepCopy()
		u.SetResourceVersion(live.GetResourceVersion())
		u.SetUID(live.GetUID()) // The server creates an object that does not exist, also if the request has a version, but not if it has a UID.
	}
	body, err := encodeObject(u)
	if err != nil {
		return nil, err
	}
	o := metav1.PatchOptions{FieldManager: FieldManager, Force: &force}
	if dry {
		o.DryRun = []string{metav1.DryRunAll}
	}
	tries := 0
	return retried(ctx, r, func(err error) bool {
		tries++
		return cluster.Temporary(err) && (tries < triesOfUnexplained || !unexplained(err))
	}, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.client(resource, u.GetNamespace()).Patch(ctx, u.GetName(), types.ApplyPatchType, body, o)
	})
}

// triesOfUnexplained is how often an apply is tried if the server answers with an error that it does not explain.
const triesOfUnexplained = 3

// unexplained reports whether the server answered with status 500 and no reason. It does so for an object that does not fit the
// schema of its kind, but also if its database fails, so only an apply that fails in this way several times is a refused object.
func unexplained(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError && status.Status().Reason == metav1.StatusReasonUnknown
}

// conflicts lists the fields that other managers own, with the managers; nil: err is no such conflict.
func conflicts(err error) (causes []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			causes = append(causes, strings.TrimPrefix(c.Field, ".")+", "+c.Message)
		}
	}
	slices.Sort(causes)
	return causes
}

// set sets the change of an object from the server's answer.
func (p *planner) set(w *wanted, after *unstructured.Unstructured, reason string) error {
	c := p.newChange(w.ref)
	if c.Reason = reason; w.File == "" {
		c.Reason = strings.TrimPrefix(reason+"; "+installNamespace, "; ")
	}
	known := p.inv.has(w.ref)
	switch {
	case w.live == nil:
		c.Action, after = changeset.Create, w.Unstructured // without the server's defaults, some of which differ each time
	case !known:
		c.Action = changeset.Import
	case same(w.live, after):
		return nil
	default:
		c.Action = changeset.Update
	}
	before := w.live
	if c.Action != changeset.Update {
		before, after = withoutOwner(before), withoutOwner(after)
	}
	if err := p.setValues(&c, before, after); err != nil {
		return err
	}
	w.change = &c
	return nil
}

// withoutOwner returns a copy without the annotation that each object gets.
func withoutOwner(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u == nil {
		return nil
	}
	u = u.DeepCopy()
	dropAnnotations(u, ownerAnnotation)
	return u
}

func (p *planner) newChange(of ref) changeset.Change {
	return changeset.Change{Address: p.Mask(of.String()), Kind: of.kind()}
}

// compared sets the change of an object for which the job's identity may not do dry runs.
func (p *planner) compared(w *wanted) error {
	w.byRunner = true
	return p.predicted(w, "the job's identity may not do dry runs, so the runner compared the object itself")
}

// predicted sets the change of an object that the server cannot compare.
func (p *planner) predicted(w *wanted, reason string) error {
	after := w.Unstructured
	if w.live != nil {
		after = predict(w.live, w.Unstructured)
	}
	if err := p.set(w, after, reason); err != nil {
		return err
	}
	if w.change != nil {
		w.change.Unverified = true
	}
	return nil
}

// replace plans the deletion and creation of an object whose update the server refuses, if the server would accept the object as a
// new one. So a refused transition is distinguished from an invalid object by the server's decision, and not by the text of its message.
func (p *planner) replace(ctx context.Context, w *wanted, at action, refused error) error {
	probe := w.DeepCopy()
	probe.SetName("fairlead-dry-run-" + p.Owner.inventoryName()[len("fairlead-inventory-"):])
	_, err := call(ctx, p.run, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return p.client(w.resource, w.ref.Namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: FieldManager})
	})
	if err != nil {
		return p.failed(ctx, at, refused)
	}
	if holdsData(w.ref) {
		return &plugin.Error{Reason: fairlead.ReasonObjectImmutable, Err: refused, Message: p.Mask(fmt.Sprintf(
			"%s: %s cannot get this change, and a new one would lose the data of the old one: %s. Undo the change, or replace the object by hand", w.place(), w.ref, p.answer(at, refused)))}
	}
	c := p.newChange(w.ref)
	c.Action, c.Order, c.Reason = changeset.Replace, changeset.DeleteFirst, p.Mask("the update is refused: "+p.answer(at, refused))
	if err := p.setValues(&c, w.live, predict(w.live, w.Unstructured)); err != nil {
		return err
	}
	w.change = &c
	return nil
}

// holdsData reports whether the deletion of such an object deletes data that is not in the component's files.
func holdsData(r ref) bool {
	return isCRD(r) || isNamespace(r) || r.Group == "" && (r.Kind == "PersistentVolumeClaim" || r.Kind == "PersistentVolume")
}

// result makes the saved plan and the change set.
func (p *planner) result(destroy bool, removals []removal) (Planned, error) {
	out := Planned{Base: p.inv.base(), Comparison: ByServer, Changes: []changeset.Change{}}
	s := saved{V: savedV, Owner: p.Owner.String(), Namespace: p.Namespace, Destroy: destroy, Base: out.Base}
	for _, w := range p.all {
		step := savedObject{Ref: w.ref, Place: w.place()}
		if w.byRunner {
			out.Comparison = ByRunner
		}
		if w.change != nil {
			step.Action, step.Object = w.change.Action, w.Object.Object
			out.Changes = append(out.Changes, *w.change)
		}
		if w.live != nil && w.change != nil {
			var err error
			if step.Live, err = digest(w.live); err != nil {
				return Planned{}, err
			}
		}
		s.Objects = append(s.Objects, step)
	}
	for _, r := range removals {
		c := p.newChange(r.Ref)
		c.Action, c.Reason = changeset.Delete, r.reason
		if r.Forget {
			c.Action = changeset.Forget
		} else if err := p.setValues(&c, r.live, nil); err != nil {
			return Planned{}, err
		}
		out.Changes = append(out.Changes, c)
		s.Removals = append(s.Removals, r)
	}
	if destroy && p.inv.uid != "" {
		c := p.newChange(p.inventoryRef())
		c.Action, c.Reason = changeset.Delete, "the list of the component's objects"
		out.Changes = append(out.Changes, c)
	}
	out.NoOp = len(out.Changes) == 0
	var err error
	out.Saved, err = s.encode()
	return out, err
}
