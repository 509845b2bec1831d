package helm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The marks by which Helm recognises the objects of a release.
const (
	labelManagedBy       = "app.kubernetes.io/managed-by"
	managedByHelm        = "Helm"
	annotationRelease    = "meta.helm.sh/release-name"
	annotationNamespace  = "meta.helm.sh/release-namespace"
	annotationPolicy     = "helm.sh/resource-policy"
	policyKeep           = "keep"
	annotationApplied    = "kubectl.kubernetes.io/last-applied-configuration" // repeats the whole object
	annotationDeployment = "deployment.kubernetes.io/revision"                // the controller counts here
)

// object is an object of a manifest.
type object struct {
	*unstructured.Unstructured
	source   string // file of the chart
	resource schema.GroupVersionResource
	known    bool // whether the cluster has the kind
}

// id identifies an object in a cluster.
type id struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (o *object) id() id {
	return id{Group: o.GroupVersionKind().Group, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (i id) String() string {
	if i.Namespace == "" {
		return i.Kind + "/" + i.Name
	}
	return i.Kind + "/" + i.Namespace + "/" + i.Name
}

// kind returns the version and kind, as people write them.
func (o *object) kind() string { return o.GetAPIVersion() + " " + o.GetKind() }

func (o *object) at(c dynamic.Interface) dynamic.ResourceInterface {
	if ns := o.GetNamespace(); ns != "" {
		return c.Resource(o.resource).Namespace(ns)
	}
	return c.Resource(o.resource)
}

// get reads the live object. It returns nil if there is none.
func (o *object) get(ctx context.Context, c dynamic.Interface) (*unstructured.Unstructured, error) {
	if !o.known || o.GetName() == "" {
		return nil, nil
	}
	live, err := o.at(c).Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.id(), err)
	}
	return live, nil
}

// parse reads the objects of one document. A List becomes its items.
func parse(source, doc string) ([]*object, error) {
	text, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		return nil, invalid("read %s: %w", source, err)
	}
	if string(text) == "null" {
		return nil, nil // only comments
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(text); err != nil {
		return nil, invalid("read %s: %w", source, err)
	}
	if !u.IsList() {
		return []*object{{Unstructured: &u, source: source}}, nil
	}
	var all []*object
	err = u.EachListItem(func(item runtime.Object) error {
		all = append(all, &object{Unstructured: item.(*unstructured.Unstructured), source: source})
		return nil
	})
	if err != nil {
		return nil, invalid("read the list in %s: %w", source, err)
	}
	return all, nil
}

// parseManifest reads the objects of a stored manifest.
func parseManifest(manifest string) ([]*object, error) {
	docs := releaseutil.SplitManifests(manifest)
	var all []*object
	for i := range len(docs) {
		objects, err := parse("the release's record", docs[fmt.Sprintf("manifest-%d", i)])
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// locate finds the resources of the objects, and gives namespaced objects the release's namespace. Kinds that defined has
// need not exist yet. For each other unknown kind it calls unknown.
func (e *Engine) locate(mapper meta.RESTMapper, objects []*object, defined map[schema.GroupVersionKind]bool, unknown func(*object, error) error) error {
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		namespaced := false
		switch {
		case err == nil:
			o.resource, o.known, namespaced = m.Resource, true, m.Scope.Name() == meta.RESTScopeNameNamespace
		case !meta.IsNoMatchError(err):
			return fmt.Errorf("find the kind %s: %w", o.kind(), err)
		default:
			var ok bool
			if namespaced, ok = defined[gvk]; !ok {
				if err := unknown(o, err); err != nil {
					return err
				}
				continue
			}
		}
		if !namespaced {
			o.SetNamespace("")
		} else if o.GetNamespace() == "" {
			o.SetNamespace(e.Namespace)
		}
	}
	return nil
}

// own adds the marks that Helm adds.
func (e *Engine) own(o *object) *unstructured.Unstructured {
	u := o.DeepCopy()
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[labelManagedBy] = managedByHelm
	annotations[annotationRelease], annotations[annotationNamespace] = e.Release, e.Namespace
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	return u
}

// owned reports whether a live object has the marks of this release.
func (e *Engine) owned(live *unstructured.Unstructured) bool {
	a := live.GetAnnotations()
	return live.GetLabels()[labelManagedBy] == managedByHelm && a[annotationRelease] == e.Release && a[annotationNamespace] == e.Namespace
}

// clean returns what people decide about an object: all but its status and what the server counts.
func clean(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	c := u.DeepCopy().Object
	delete(c, "status")
	if m, ok := c["metadata"].(map[string]any); ok {
		for _, name := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"} {
			delete(m, name)
		}
		if a, ok := m["annotations"].(map[string]any); ok {
			delete(a, annotationApplied)
			delete(a, annotationDeployment)
			if len(a) == 0 {
				delete(m, "annotations")
			}
		}
	}
	return c
}

// contentDigest returns the digest of a live object; "" if there is none. The number of replicas counts only if the manifest
// sets it, because otherwise an autoscaler does.
func contentDigest(live, planned *unstructured.Unstructured) (string, error) {
	if live == nil {
		return "", nil
	}
	c := clean(live)
	if planned != nil {
		if _, set, _ := unstructured.NestedFieldNoCopy(planned.Object, "spec", "replicas"); !set {
			unstructured.RemoveNestedField(c, "spec", "replicas")
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// setValues sets the masked values of a change.
func setValues(c *changeset.Change, before, after *unstructured.Unstructured, mask func(string) string) error {
	b, err := decoded(clean(before))
	if err != nil {
		return err
	}
	a, err := decoded(clean(after))
	if err != nil {
		return err
	}
	c.SetValues(b, a, changeset.Marks{BeforeSensitive: secretMarks(before), AfterSensitive: secretMarks(after)}, mask)
	return nil
}

// secretMarks marks each value of a Secret.
func secretMarks(u *unstructured.Unstructured) any {
	if u == nil || u.GetKind() != "Secret" || u.GroupVersionKind().Group != "" {
		return nil
	}
	marks := map[string]any{}
	for _, field := range []string{"data", "stringData"} {
		values, ok := u.Object[field].(map[string]any)
		if !ok {
			marks[field] = true
			continue
		}
		leaves := map[string]any{}
		for name := range values {
			leaves[name] = true
		}
		marks[field] = leaves
	}
	return marks
}

// decoded returns a value with numbers of type json.Number; nil for an absent one.
func decoded(m map[string]any) (any, error) {
	if m == nil {
		return nil, nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return decodeObject(text)
}

func decodeObject(text []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var m map[string]any
	err := dec.Decode(&m)
	return m, err
}

// outcome is what an apply will make of an object.
type outcome struct {
	after      *unstructured.Unstructured
	reason     string
	unverified bool // computed here, without the server's defaults and admission
}

// predict asks the server, by a dry run, what Helm's server-side apply will make of the object. If the server does not
// permit that, it computes the change from the earlier manifest, the new one and the live object.
func (e *Engine) predict(ctx context.Context, c dynamic.Interface, o *object, old, live *unstructured.Unstructured) (outcome, error) {
	wanted := e.own(o)
	text, err := wanted.MarshalJSON()
	if err != nil {
		return outcome{}, err
	}
	var reason string
	for _, force := range []bool{false, true} {
		opts := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, Force: &force}
		after, err := o.at(c).Patch(ctx, o.GetName(), types.ApplyPatchType, text, opts)
		switch {
		case err == nil:
			return outcome{after: after, reason: reason}, nil
		case apierrors.IsConflict(err) && !force:
			reason = "takes over " + conflicts(err)
			continue
		}
		refused, checkErr := e.noDryRun(ctx, c, o, live, text, err)
		switch {
		case checkErr != nil:
			return outcome{}, errors.Join(fmt.Errorf("dry run of %s from %s: %w", o.id(), o.source, err), checkErr)
		case !refused && (apierrors.IsForbidden(err) || byWebhook(err)):
			return outcome{}, &plugin.Error{Reason: fairlead.ReasonAdmissionRefused, Err: err, Message: fmt.Sprintf(
				"A rule of the cluster refuses %s from %s: %s Correct the object in the chart, or the quota, policy or webhook that refuses it.", o.id(), o.source, sentence(brief(err)))}
		case !refused:
			return outcome{}, fmt.Errorf("dry run of %s from %s: %w", o.id(), o.source, err)
		}
		e.logf("The server permits no dry run of %s: its change is computed here, without the server's defaults and admission. The server's answer: %s", o.id(), brief(err))
		break
	}
	after, err := mergeLocally(old, wanted, live)
	if err != nil {
		return outcome{}, fmt.Errorf("compute the change of %s: %w", o.id(), err)
	}
	return outcome{after: after, unverified: true, reason: "the server permits no dry run, so the runner compared the object itself"}, nil
}

// byWebhook reports whether a webhook refused a request and gave no reason of its own. The API server itself gives a reason with each
// status from 400 to 499.
func byWebhook(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Reason == metav1.StatusReasonUnknown && status.ErrStatus.Code >= 400 && status.ErrStatus.Code < 500
}

// noDryRun reports whether the server refused the dry run itself and not the object: the role lacks the permission, or a
// webhook has side effects. The server gives both refusals the same reason, so it is asked again.
func (e *Engine) noDryRun(ctx context.Context, c dynamic.Interface, o *object, live *unstructured.Unstructured, text []byte, err error) (bool, error) {
	switch {
	case byWebhook(err):
		return false, nil
	case apierrors.IsForbidden(err):
		verbs := []any{"patch"}
		if live == nil {
			verbs = append(verbs, "create")
		}
		for _, verb := range verbs {
			review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
				"spec": map[string]any{"resourceAttributes": map[string]any{"verb": verb, "namespace": o.GetNamespace(), "name": o.GetName(),
					"group": o.resource.Group, "version": o.resource.Version, "resource": o.resource.Resource}}}}
			answer, err := c.Resource(accessReviews).Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return false, err
			}
			if allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed"); !allowed {
				return true, nil
			}
		}
		return false, nil // a quota or an admission policy refuses the object
	case apierrors.IsBadRequest(err):
		force := true
		_, err := o.at(c).Patch(ctx, o.GetName(), types.ApplyPatchType, text,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager, FieldValidation: metav1.FieldValidationIgnore, Force: &force})
		return apierrors.IsBadRequest(err), nil // nil: the object has a field that its kind does not have
	}
	return false, nil
}

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

// conflicts names the fields of a conflict, each with the server's message, which names the manager.
func conflicts(err error) string {
	s, ok := err.(apierrors.APIStatus)
	if !ok || s.Status().Details == nil {
		return "fields of another manager"
	}
	var fields []string
	for _, cause := range s.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, fmt.Sprintf("%s (%s)", cause.Field, cause.Message))
		}
	}
	slices.Sort(fields)
	if len(fields) > 5 {
		fields = append(fields[:5], fmt.Sprintf("%d more", len(fields)-5))
	}
	return strings.Join(fields, ", ")
}

// mergeLocally applies the difference of two manifests to a live object: a value that the earlier manifest has and the new
// one lacks goes, and all values of the new one win.
func mergeLocally(old, wanted, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if live == nil {
		return wanted, nil
	}
	if old == nil {
		old = wanted
	}
	before, err := old.MarshalJSON()
	if err != nil {
		return nil, err
	}
	next, err := wanted.MarshalJSON()
	if err != nil {
		return nil, err
	}
	current, err := live.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var merged []byte
	if typed, err := scheme.Scheme.New(wanted.GroupVersionKind()); err == nil {
		m, err := strategicpatch.NewPatchMetaFromStruct(typed)
		if err != nil {
			return nil, err
		}
		patch, err := strategicpatch.CreateThreeWayMergePatch(before, next, current, m, true)
		if err != nil {
			return nil, err
		}
		if merged, err = strategicpatch.StrategicMergePatch(current, patch, typed); err != nil {
			return nil, err
		}
	} else {
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, next, current)
		if err != nil {
			return nil, err
		}
		if merged, err = jsonpatch.MergePatch(current, patch); err != nil {
			return nil, err
		}
	}
	var u unstructured.Unstructured
	return &u, u.UnmarshalJSON(merged)
}

// same reports whether two objects differ only in what the server counts.
func same(a, b *unstructured.Unstructured) bool { return reflect.DeepEqual(clean(a), clean(b)) }

// definitions reads the custom resource definitions of the chart's folder crds. The map has each kind, and whether it is
// namespaced.
func (r *rendering) definitions() (crds []*object, kinds map[schema.GroupVersionKind]bool, err error) {
	kinds = map[schema.GroupVersionKind]bool{}
	for _, f := range r.CRDs {
		docs := releaseutil.SplitManifests(f.Data)
		for i := range len(docs) {
			objects, err := parse(f.Name, docs[fmt.Sprintf("manifest-%d", i)])
			if err != nil {
				return nil, nil, err
			}
			for _, o := range objects {
				if gk := o.GroupVersionKind().GroupKind(); gk != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
					return nil, nil, plugin.Errorf(fairlead.ReasonChartInvalid,
						"The file %s has an object of kind %s, and the folder crds may have only custom resource definitions. Move the object to the folder templates.", f.Name, gk)
				}
				crds = append(crds, o)
				group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
				kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
				scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
				versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
				for _, v := range versions {
					if v, ok := v.(map[string]any); ok {
						name, _ := v["name"].(string)
						kinds[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = scope == "Namespaced"
					}
				}
			}
		}
	}
	return crds, kinds, nil
}

// crdNames lists the names of the chart's definitions.
func (r *rendering) crdNames() []string {
	crds, _, err := r.definitions()
	if err != nil {
		return nil
	}
	var names []string
	for _, o := range crds {
		names = append(names, o.GetName())
	}
	return names
}
