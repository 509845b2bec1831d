package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/plugin"
)

// stage returns when an object is deleted: the objects of a stage are gone before the next stage begins. Webhooks go first, because
// they would refuse changes when their service is gone. A custom resource goes before the workloads, because its controller may
// have to remove a finalizer. Definitions and namespaces go last, because their deletion deletes everything in them.
func (r ref) stage() int {
	switch {
	case isWebhook(r):
		return 0
	case r.custom():
		return 1
	case isCRD(r):
		return 3
	case isNamespace(r):
		return 4
	}
	return 2
}

// removals decides what happens to the objects that earlier applies may have created and that are not wanted any more.
func (p *planner) removals(ctx context.Context, old []ref) ([]removal, error) {
	var all []removal
	for _, o := range old {
		if slices.ContainsFunc(p.all, func(w *wanted) bool { return w.ref.identity() == o.identity() }) {
			continue
		}
		u, _, err := p.find(ctx, o)
		if err != nil {
			return nil, err
		}
		if u == nil {
			continue
		}
		m := removal{Ref: o, UID: u.GetUID(), live: u}
		if m.Live, err = digest(u); err != nil {
			return nil, err
		}
		switch owner := ownerOf(u); {
		case owner != "" && owner != p.Owner.String():
			m.reason = "the object now belongs to the component " + owner
		case owner == "":
			m.reason = "the object has lost the annotation " + ownerAnnotation + ", so it may be another one"
		case boundVolume(o, u):
			m.reason = "the volume holds data"
		}
		m.Forget = m.reason != ""
		all = append(all, m)
	}
	inOrder(all, func(m removal) ref { return m.Ref })
	slices.Reverse(all)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Ref.stage() < all[j].Ref.stage() })
	for i := range all {
		m := &all[i]
		if m.Forget {
			continue
		}
		var err error
		if m.reason, err = p.mustStay(ctx, m.live, p.refs(), all); err != nil {
			return nil, err
		}
		m.Forget = m.reason != ""
	}
	return all, nil
}

// boundVolume reports whether the object is a volume, or the claim of one, that was in use.
func boundVolume(of ref, u *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return of.Group == "" && (of.Kind == "PersistentVolumeClaim" && phase != "Pending" || of.Kind == "PersistentVolume" && phase != "Available" && phase != "Pending")
}

// mustStay returns why an object must not be deleted, or "": its deletion would delete data that is not the component's.
func (r *run) mustStay(ctx context.Context, u *unstructured.Unstructured, wanted []ref, removals []removal) (string, error) {
	switch of := refOf(u); {
	case boundVolume(of, u):
		return "the volume holds data", nil
	case isCRD(of):
		return r.instances(ctx, u, removals)
	case isNamespace(of):
		return r.residents(ctx, of.Name, wanted, removals)
	}
	return "", nil
}

// instances returns why a definition must stay, or "": it has objects that the plan does not delete.
func (r *run) instances(ctx context.Context, crd *unstructured.Unstructured, removals []removal) (string, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		fields, _ := v.(map[string]any)
		if fields["served"] != true {
			continue
		}
		other, err := r.others(ctx, schema.GroupVersionResource{Group: group, Version: textOf(fields, "name"), Resource: plural}, kind, "", removals)
		if err != nil || other == "" {
			return "", err
		}
		return other + ", which would be deleted with its definition", nil
	}
	return "", nil
}

// transient lists resources whose objects are no data: a controller writes them again when it needs them.
var transient = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}, {Resource: "endpoints"},
	{Group: "discovery.k8s.io", Resource: "endpointslices"}, {Group: "coordination.k8s.io", Resource: "leases"}, {Group: "metrics.k8s.io", Resource: "pods"}}

// residents returns why a namespace must stay, or "".
func (r *run) residents(ctx context.Context, namespace string, wanted []ref, removals []removal) (string, error) {
	for _, w := range wanted {
		if w.Namespace == namespace {
			return fmt.Sprintf("it has %s, which this component keeps", r.Mask(w.String())), nil
		}
	}
	if namespace == r.Namespace && len(wanted) > 0 {
		return "it has the list of this component's objects", nil
	}
	kinds, err := r.cluster.Listable(ctx)
	if err != nil {
		return "not all kinds of the cluster can be listed, so it may have objects of others", nil
	}
	resources := make([]schema.GroupVersionResource, 0, len(kinds))
	for resource := range kinds {
		if !slices.Contains(transient, resource.GroupResource()) {
			resources = append(resources, resource)
		}
	}
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	for _, resource := range resources {
		other, err := r.others(ctx, resource, kinds[resource], namespace, removals)
		if err != nil || other != "" {
			return other, err
		}
	}
	return "", nil
}

// deletes reports whether the removals delete the object with this UID.
func deletes(removals []removal, uid types.UID) bool {
	return slices.ContainsFunc(removals, func(m removal) bool { return !m.Forget && m.UID == uid })
}

// others returns that a resource has an object which the removals do not delete, or "". Objects that go with their controller do not
// count: the controller of an object in a namespace is in that namespace, or it is not in any namespace and counts itself. Nor do
// objects that Kubernetes puts into each namespace.
func (r *run) others(ctx context.Context, resource schema.GroupVersionResource, kind, namespace string, removals []removal) (string, error) {
	o := metav1.ListOptions{Limit: 500}
	for {
		list, err := call(ctx, r, func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
			if namespace == "" {
				return r.cluster.Metadata.Resource(resource).List(ctx, o)
			}
			return r.cluster.Metadata.Resource(resource).Namespace(namespace).List(ctx, o)
		})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return "", nil
		case apierrors.IsForbidden(err):
			return fmt.Sprintf("the job's identity may not list %s, so it may have objects of others", resourceName(resource)), nil
		case err != nil:
			return "", r.failed(ctx, action{verb: "list", did: "list what would be deleted", ref: ref{Group: resource.Group, Kind: kind, Namespace: namespace}, resource: resource}, err)
		}
		for _, item := range list.Items {
			of := ref{Group: resource.Group, Kind: kind, Namespace: item.Namespace, Name: item.Name}
			switch controller := metav1.GetControllerOf(&item); {
			case controller != nil && (namespace != "" || deletes(removals, controller.UID)), of == r.inventoryRef().identity(),
				of.Group == "" && kind == "ServiceAccount" && item.Name == "default", of.Group == "" && kind == "ConfigMap" && item.Name == "kube-root-ca.crt":
			case slices.ContainsFunc(removals, func(m removal) bool { return !m.Forget && m.Ref.identity() == of }):
			default:
				return fmt.Sprintf("it has %s, which this component does not delete", r.Mask(of.String())), nil
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return "", nil
		}
	}
}

// remove deletes the objects of a plan, stage by stage, and gives up those that stay.
func (r *run) remove(ctx context.Context, all []removal, wanted []ref) error {
	for stage := range 5 {
		waiting := map[ref]types.UID{}
		for _, m := range all {
			if m.Ref.stage() != stage {
				continue
			}
			uid, err := r.removeOne(ctx, m, wanted, all)
			if err != nil {
				return err
			}
			if uid != "" {
				waiting[m.Ref] = uid
			}
		}
		if err := r.awaitGone(ctx, waiting); err != nil {
			return err
		}
	}
	return nil
}

// removeOne deletes or gives up one object. It returns the object's UID if its deletion may not be finished.
func (r *run) removeOne(ctx context.Context, m removal, wanted []ref, all []removal) (types.UID, error) {
	for range attemptsOfConflict {
		u, resource, err := r.find(ctx, m.Ref)
		if err != nil || u == nil || ownerOf(u) != r.Owner.String() {
			return "", err // gone, or given up before
		}
		if u.GetDeletionTimestamp() != nil && !m.Forget {
			return u.GetUID(), nil
		}
		if !m.Forget {
			// The status and the content of a volume, a kind or a namespace can have changed since the plan.
			why, err := r.mustStay(ctx, u, wanted, all)
			if err != nil {
				return "", err
			}
			if why != "" {
				return "", plugin.Errorf(fairlead.ReasonPlanStale, "%s was not deleted, because of this since the plan: %s. Plan again", r.Mask(m.Ref.String()), why)
			}
		}
		if err := r.fence(ctx); err != nil {
			return "", err
		}
		at := action{verb: "delete", did: "delete the object", ref: m.Ref, resource: resource}
		if m.Forget {
			at.verb, at.did = "patch", "give up the object"
			err = r.release(ctx, resource, u)
		} else {
			_, err = call(ctx, r, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, r.client(resource, m.Ref.Namespace).Delete(ctx, m.Ref.Name, *onlyIf(string(u.GetUID()), ""))
			})
		}
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return "", r.failed(ctx, at, err)
		case m.Forget:
			r.logf("%s: given up; it stays in the cluster.", m.Ref)
			return "", nil
		}
		r.logf("%s: deleted.", m.Ref)
		return u.GetUID(), nil
	}
	return "", plugin.Errorf(fairlead.ReasonPlanStale, "%s changed each time that the runner tried to delete it: plan again", m.Ref)
}

// release removes the owner's annotation, so that another component can take the object over.
func (r *run) release(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "annotations": map[string]any{ownerAnnotation: nil}}})
	if err != nil {
		return err
	}
	_, err = call(ctx, r, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.client(resource, u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: FieldManager})
	})
	return err
}

// awaitGone waits until the objects with these UIDs do not exist.
func (r *run) awaitGone(ctx context.Context, waiting map[ref]types.UID) error {
	until := r.Now().Add(r.Limits.Delete)
	for logged := len(waiting); ; {
		var last *unstructured.Unstructured
		for _, of := range slices.SortedFunc(maps.Keys(waiting), func(a, b ref) int { return strings.Compare(a.String(), b.String()) }) {
			u, _, err := r.find(ctx, of)
			if err != nil {
				return err
			}
			if u == nil || u.GetUID() != waiting[of] {
				delete(waiting, of)
			} else {
				last = u
			}
		}
		if last == nil {
			return nil
		}
		if len(waiting) != logged {
			logged = len(waiting)
			r.logf("Waiting until %d objects are gone, such as %s%s.", logged, refOf(last), finalizers(last))
		}
		if !r.Now().Before(until) {
			return plugin.Errorf(fairlead.ReasonDeletionStuck, "%s was deleted and is still there after %s%s. Find out why its controller does not finish, then plan again",
				r.Mask(refOf(last).String()), r.Limits.Delete.Round(time.Second), finalizers(last))
		}
		if err := retry.Sleep(ctx, r.Limits.Poll); err != nil {
			return fmt.Errorf("wait for the end of deletions: %w", err)
		}
	}
}
