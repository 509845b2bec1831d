package manifest

import (
	"sort"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// ref names an object of the cluster.
type ref struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"` // in which the component last wrote it; not a part of the object's identity
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func refOf(u *unstructured.Unstructured) ref {
	k := u.GroupVersionKind()
	return ref{Group: k.Group, Version: k.Version, Kind: k.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// identity returns the reference without the version: all versions of a kind show the same objects.
func (r ref) identity() ref {
	r.Version = ""
	return r
}

func (r ref) groupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// custom reports whether the kind is not part of Kubernetes.
func (r ref) custom() bool { return !scheme.Scheme.IsGroupRegistered(r.Group) && !isCRD(r) }

func isCRD(r ref) bool {
	return r.Group == "apiextensions.k8s.io" && r.Kind == "CustomResourceDefinition"
}

func isNamespace(r ref) bool { return r.Group == "" && r.Kind == "Namespace" }

func isWebhook(r ref) bool {
	return r.Group == "admissionregistration.k8s.io" && (r.Kind == "ValidatingWebhookConfiguration" || r.Kind == "MutatingWebhookConfiguration")
}

// String returns the address of the object: its kind, namespace and name. The kind has its group unless Kubernetes itself has the
// kind.
func (r ref) String() string {
	kind := r.Kind
	if r.custom() {
		kind += "." + r.Group
	}
	if r.Namespace == "" {
		return kind + "/" + r.Name
	}
	return strings.Join([]string{kind, r.Namespace, r.Name}, "/")
}

// kind returns the kind with its version, such as "apps/v1 Deployment".
func (r ref) kind() string {
	return strings.TrimSpace(schema.GroupVersion{Group: r.Group, Version: r.Version}.String() + " " + r.Kind)
}

func (r ref) metadata() object.ObjMetadata {
	return object.ObjMetadata{Namespace: r.Namespace, Name: r.Name, GroupKind: r.groupKind()}
}

// inOrder sorts what has references in the order in which Flux applies kinds: definitions first, webhooks last.
func inOrder[T any](all []T, of func(T) ref) {
	metas := make(map[object.ObjMetadata]int, len(all))
	sorted := make(ssa.SortableMetas, len(all))
	for i, e := range all {
		sorted[i] = of(e).metadata()
	}
	sort.Sort(sorted)
	for i, m := range sorted {
		metas[m] = i
	}
	sort.SliceStable(all, func(i, j int) bool { return metas[of(all[i]).metadata()] < metas[of(all[j]).metadata()] })
}
