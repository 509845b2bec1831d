// Package manifest plans, applies and destroys the Kubernetes objects of one component.
//
// A plan compares each object with the cluster by a server-side dry run. The saved plan holds the exact objects, and a digest of
// each object of the cluster that will change. An apply refuses the plan if one of them, or the inventory, has changed since.
//
// The inventory is a Secret that lists the component's objects. An apply writes the union of the earlier and the new objects before
// its first change and trims it at the end, so an apply that is killed at any moment leaves no object that the next plan does not
// know. The inventory also names the attempt that wrote it, and each change first checks that no other attempt has written it since.
package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/kubernetes/cluster"
	"github.com/fairlead/fairlead/runner/plugin"
)

// FieldManager is the name under which the engine owns fields of objects.
const FieldManager = "fairlead"

// Owner names the component whose objects they are. Both names must be usable as values of labels.
type Owner struct{ Install, Component string }

func (o Owner) String() string { return o.Install + "/" + o.Component }

// Attempt names the attempt that applies. Epochs are numbers of one job only, so the job is a part of the name.
type Attempt struct {
	Job   string
	Epoch int64
}

// Limits are the longest times that an apply waits. A zero value is the default.
type Limits struct {
	Ready  time.Duration // until all objects are ready; 10 minutes
	Delete time.Duration // until deleted objects are gone; 10 minutes
	Retry  time.Duration // for an answer of the API server; 1 minute
	Poll   time.Duration // between two looks at an object; 1 second
}

// Engine works on the objects of one component. It keeps nothing between two calls. Not safe for concurrent use.
type Engine struct {
	Config    *rest.Config
	Log       io.Writer
	Mask      func(string) string // hides the job's secrets in a text; safe for concurrent use
	Now       func() time.Time
	Owner     Owner
	Namespace string  // of the inventory, and of namespaced objects that name none
	Attempt   Attempt // only of an apply
	Limits    Limits
}

// run is one operation.
type run struct {
	Engine
	cluster  *cluster.Cluster
	inv      inventory
	verified map[ref]string // resource versions of objects whose content is the planned one; of an apply
	logMu    sync.Mutex
	warned   map[string]bool // warnings of the API server that are in the log; guarded by logMu
}

func (e Engine) begin() (*run, error) {
	switch {
	case len(validation.IsValidLabelValue(e.Owner.Install)) > 0 || e.Owner.Install == "":
		return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "the install's identifier %q is not usable as a label", e.Owner.Install)
	case len(validation.IsValidLabelValue(e.Owner.Component)) > 0 || e.Owner.Component == "":
		return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "the component's name %q is not usable as a label", e.Owner.Component)
	case len(validation.IsDNS1123Label(e.Namespace)) > 0:
		return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "%q is not the name of a namespace", e.Namespace)
	}
	for value, standard := range map[*time.Duration]time.Duration{&e.Limits.Ready: 10 * time.Minute, &e.Limits.Delete: 10 * time.Minute,
		&e.Limits.Retry: time.Minute, &e.Limits.Poll: time.Second} {
		if *value <= 0 {
			*value = standard
		}
	}
	r := &run{Engine: e, verified: map[ref]string{}, warned: map[string]bool{}}
	c, err := cluster.Connect(e.Config, r.warn)
	r.cluster = c
	return r, err
}

// warn writes a warning of the API server to the log, once.
func (r *run) warn(text string) {
	r.logMu.Lock()
	known := r.warned[text]
	r.warned[text] = true
	r.logMu.Unlock()
	if !known {
		r.logf("The cluster warns: %s", text)
	}
}

func (r *run) logf(format string, args ...any) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	_, _ = io.WriteString(r.Log, r.Mask(fmt.Sprintf(format, args...))+"\n") // The log's writer reports its own failures.
}

// call repeats a request while its failure may pass.
func call[T any](ctx context.Context, r *run, f func(context.Context) (T, error)) (T, error) {
	return retried(ctx, r, cluster.Temporary, f)
}

func retried[T any](ctx context.Context, r *run, passing func(error) bool, f func(context.Context) (T, error)) (T, error) {
	return retry.Do(ctx, retry.Policy{First: 200 * time.Millisecond, Longest: 5 * time.Second, Within: r.Limits.Retry, Passing: passing}, f)
}

// action describes a request for the message of its failure.
type action struct {
	verb     string // of Kubernetes
	did      string // for a person, such as "read the inventory"
	ref      ref
	resource schema.GroupVersionResource
	place    string // of the object in the component's files; "": it is not there
	secret   bool   // the server's message may quote secrets
}

func (a action) object() string {
	if a.place == "" {
		return a.ref.String()
	}
	return a.place + ": " + a.ref.String()
}

// failed makes the typed error of a request.
func (r *run) failed(ctx context.Context, a action, err error) error {
	if _, typed := errors.AsType[*plugin.Error](err); typed {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s of %s: %w", a.did, a.ref, ctx.Err())
	}
	wrap := func(reason fairlead.Reason, format string, args ...any) error {
		return &plugin.Error{Reason: reason, Err: err, Message: r.Mask(fmt.Sprintf(format, args...))}
	}
	answer := r.answer(a, err)
	switch {
	case a.verb == "patch" && unexplained(err):
		return wrap(fairlead.ReasonObjectRefused, "%s: the API server refused to %s: %s", a.object(), a.did, answer)
	case cluster.Temporary(err):
		return wrap(fairlead.ReasonClusterUnreachable, "%s: could not %s, and repeated for %s: %s. Check the cluster's API server, then plan again",
			a.object(), a.did, r.Limits.Retry, answer)
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return wrap(fairlead.ReasonDeletionStuck, "%s: could not %s, because the namespace is being deleted. Wait until it is gone, then plan again", a.object(), a.did)
	case apierrors.IsUnauthorized(err):
		return wrap(fairlead.ReasonClusterForbidden, "%s: could not %s: the cluster does not accept the job's credentials", a.object(), a.did)
	case byWebhook(err), apierrors.IsForbidden(err) && r.permitted(ctx, a):
		return wrap(fairlead.ReasonAdmissionRefused, "%s: a rule of the cluster refused to %s: %s", a.object(), a.did, answer)
	case apierrors.IsForbidden(err):
		return wrap(fairlead.ReasonClusterForbidden, "%s: the job's identity may not %s: grant it the verb %q for %s", a.object(), a.did, a.verb, resourceName(a.resource))
	}
	return wrap(fairlead.ReasonObjectRefused, "%s: the API server refused to %s: %s", a.object(), a.did, answer)
}

// byWebhook reports whether a webhook refused a request and gave no reason of its own. The API server itself gives a reason with each
// status from 400 to 499.
func byWebhook(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonUnknown && status.Status().Code >= 400 && status.Status().Code < 500
}

func resourceName(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// answer returns the server's message.
func (r *run) answer(a action, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fairlead.Clip(err.Error(), 300) // of the connection
	}
	if a.secret {
		return string(status.Status().Reason) + " (the message is not shown, because it can quote the Secret)"
	}
	return fairlead.Clip(status.Status().Message, 1000)
}

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

// permitted asks the API server whether the job's identity may do the action. If so, an admission rule refused it, because the
// server answers both refusals with the same status.
func (r *run) permitted(ctx context.Context, a action) bool {
	attributes := map[string]any{"verb": a.verb, "group": a.resource.Group, "version": a.resource.Version, "resource": a.resource.Resource, "name": a.ref.Name}
	if a.ref.Namespace != "" {
		attributes["namespace"] = a.ref.Namespace
	}
	review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"metadata": map[string]any{}, "spec": map[string]any{"resourceAttributes": attributes}}}
	answer, err := call(ctx, r, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.cluster.Objects.Resource(accessReviews).Create(ctx, review, metav1.CreateOptions{})
	})
	if err != nil {
		return false
	}
	allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed
}

// client returns the client of a resource in the object's namespace.
func (r *run) client(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return r.cluster.Objects.Resource(resource)
	}
	return r.cluster.Objects.Resource(resource).Namespace(namespace)
}

// get reads an object of the cluster; nil: there is none.
func (r *run) get(ctx context.Context, resource schema.GroupVersionResource, of ref, place string) (*unstructured.Unstructured, error) {
	u, err := call(ctx, r, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.client(resource, of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, r.failed(ctx, action{verb: "get", did: "read the object", ref: of, resource: resource, place: place}, err)
	}
	return u, nil
}

// find reads an object, in its version if the cluster serves it, and otherwise in the version that the cluster prefers; nil: the
// object or its kind does not exist.
func (r *run) find(ctx context.Context, of ref) (*unstructured.Unstructured, schema.GroupVersionResource, error) {
	m, err := r.mapping(ctx, of, of.Version)
	if m == nil && err == nil && of.Version != "" {
		m, err = r.mapping(ctx, of, "")
	}
	if m == nil || err != nil {
		return nil, schema.GroupVersionResource{}, err
	}
	u, err := r.get(ctx, m.Resource, of, "")
	return u, m.Resource, err
}

// mapping returns the resource of an object's kind; nil: the cluster does not know the kind in this version.
func (r *run) mapping(ctx context.Context, of ref, version string) (*meta.RESTMapping, error) {
	m, err := call(ctx, r, func(ctx context.Context) (*meta.RESTMapping, error) {
		return r.cluster.Mapping(ctx, of.groupKind(), version)
	})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, r.failed(ctx, action{verb: "get", did: "find the kind of the object", ref: of}, err)
	}
	return m, nil
}

// onlyIf returns the options of a deletion that succeeds only if the object is still this one. An empty resourceVersion permits
// changes of the object.
func onlyIf(uid, resourceVersion string) *metav1.DeleteOptions {
	id, background := types.UID(uid), metav1.DeletePropagationBackground
	o := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &id}, PropagationPolicy: &background}
	if resourceVersion != "" {
		o.Preconditions.ResourceVersion = &resourceVersion
	}
	return o
}
