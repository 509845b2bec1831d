package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/tools/testserver"
)

// seeds are objects of the kinds of which a new cluster has none. NS is a namespace.
const seeds = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: seed}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: seed}, data: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: seed}, stringData: {a: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: seed}, spec: {selector: {app: seed}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: seed}}
---
{apiVersion: v1, kind: Pod, metadata: {name: seed}, spec: {serviceAccountName: seed, containers: [{name: c, image: "registry.k8s.io/pause:3.10", ports: [{containerPort: 80}]}]}}
---
{apiVersion: v1, kind: PodTemplate, metadata: {name: seed}, template: {spec: {containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}
---
{apiVersion: v1, kind: ReplicationController, metadata: {name: seed}, spec: {replicas: 0, selector: {app: seed}, template: {metadata: {labels: {app: seed}}, spec: {containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: seed}, spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 1Ti}}]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: seed}, spec: {hard: {services.nodeports: "5"}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: seed}, spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: seed-NS}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: none, hostPath: {path: /none}}}
---
{apiVersion: v1, kind: Node, metadata: {name: seed-NS}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: seed}, spec: {replicas: 0, selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: seed}, spec: {replicas: 0, selector: {matchLabels: {app: r}}, template: {metadata: {labels: {app: r}}, spec: {containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: seed}, spec: {replicas: 0, serviceName: seed, selector: {matchLabels: {app: s}}, template: {metadata: {labels: {app: s}}, spec: {containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: seed}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {nodeSelector: {none: none}, containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}
---
{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: seed}, revision: 1, data: {}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: seed}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: seed}, spec: {suspend: true, schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]}}}}}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: seed}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: seed}}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: seed}, spec: {defaultBackend: {service: {name: seed, port: {number: 80}}}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: seed}, spec: {podSelector: {}}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: seed-NS}, spec: {controller: example.com/none}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: seed}, spec: {minAvailable: 0, selector: {matchLabels: {app: none}}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: seed}, rules: []}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: seed}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: seed}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: seed}, spec: {holderIdentity: me}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: seed}, addressType: IPv4, endpoints: []}
---
{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: seed}, eventTime: "2026-01-01T00:00:00.000000Z", action: none, reason: none, type: Normal, reportingController: example.com/none, reportingInstance: none, regarding: {kind: Pod, name: seed, namespace: NS}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: seed-NS}, provisioner: example.com/none}
---
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: seed-NS}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: seed-NS}, spec: {drivers: []}}
---
{apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, metadata: {name: seed}, storageClassName: none}
---
{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: seed-NS}, spec: {attacher: example.com, nodeName: none, source: {persistentVolumeName: none}}}
---
{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: seed-NS}, driverName: example.com, parameters: {a: b}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: seed-NS}, handler: none}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: seed-NS}, value: 1}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: seed-NS}, spec: {}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: seed}, spec: {}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: seed}, spec: {spec: {}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: seed-NS}, spec: {driver: example.com, allNodes: true, pool: {name: seed, resourceSliceCount: 1, generation: 1}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.NS.example.com}, spec: {group: NS.example.com, scope: Namespaced, names: {kind: Widget, plural: widgets}, versions: [{name: v1, served: true, storage: true, subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
---
{apiVersion: NS.example.com/v1, kind: Widget, metadata: {name: seed}, spec: {replicas: 1}}
`

// exempt are the kinds for which the API server asks no policy, because they configure admission. The chart gives plans no verb that
// writes them, and TestAccountOfPlansChangesNothing checks it.
const exempt = "admissionregistration.k8s.io"

// answers are the resources without objects: the API server answers a request to create one. Each has a valid request.
var answers = map[string]string{
	"tokenreviews.authentication.k8s.io":             `{"spec": {"token": "none"}}`,
	"subjectaccessreviews.authorization.k8s.io":      `{"spec": {"user": "none", "nonResourceAttributes": {"path": "/", "verb": "get"}}}`,
	"localsubjectaccessreviews.authorization.k8s.io": `{"metadata": {"namespace": "NS"}, "spec": {"user": "none", "resourceAttributes": {"namespace": "NS", "verb": "get", "resource": "pods"}}}`,
	"bindings": `{"metadata": {"name": "seed"}, "target": {"kind": "Node", "name": "seed-NS"}}`,
}

// permitted are the requests that each account may make. They store nothing.
var permitted = []string{"selfsubjectaccessreviews.authorization.k8s.io", "selfsubjectrulesreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io"}

// review reports whether the resource only answers a question. The API server asks no policy for it.
func (r resource) review() bool {
	return r.Group == "authentication.k8s.io" || r.Group == "authorization.k8s.io"
}

// resource is a resource or subresource that the API server serves.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	sub        string // "": the resource itself
	namespaced bool
	verbs      []string
}

func (r resource) String() string {
	name := r.GroupResource().String()
	if r.sub != "" {
		name += "/" + r.sub
	}
	return name
}

// resources lists everything that the API server serves, in each version.
func (r *chartRunner) resources() (all []resource) {
	r.Helper()
	_, lists, err := r.admin.Discovery().ServerGroupsAndResources()
	if err != nil {
		r.Fatal(err)
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			r.Fatal(err)
		}
		for _, a := range l.APIResources {
			name, sub, _ := strings.Cut(a.Name, "/")
			kind := schema.GroupVersionKind{Group: a.Group, Version: a.Version, Kind: a.Kind}
			if kind.Version == "" {
				kind.Group, kind.Version = gv.Group, gv.Version
			}
			all = append(all, resource{GroupVersionResource: gv.WithResource(name), kind: kind, sub: sub, namespaced: a.Namespaced, verbs: a.Verbs})
		}
	}
	return all
}

func (r *chartRunner) dynamic(cfg *rest.Config) *dynamic.DynamicClient {
	r.Helper()
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// objects returns a digest of each object of the cluster, by its place. Status, and what servers count by themselves, are left out.
func (r *chartRunner) objects() map[string]string {
	r.Helper()
	c, all := r.dynamic(r.cfg), map[string]string{}
	for _, of := range r.resources() {
		if of.sub != "" || !slices.Contains(of.verbs, "list") || slices.Contains([]string{"leases", "events", "componentstatuses"}, of.Resource) {
			continue
		}
		list, err := c.Resource(of.GroupVersionResource).List(r.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // a kind that an earlier test deletes
		}
		if err != nil {
			r.Fatalf("list %s: %v", of, err)
		}
		for _, item := range list.Items {
			// The tests before this one delete their namespaces, and the API server writes addresses of its own.
			if item.GetDeletionTimestamp() != nil {
				continue
			}
			place := fmt.Sprintf("%s %s/%s %s", of, item.GetNamespace(), item.GetName(), of.Version)
			unstructured.RemoveNestedField(item.Object, "status")
			for _, counted := range []string{"managedFields", "resourceVersion", "generation"} {
				unstructured.RemoveNestedField(item.Object, "metadata", counted)
			}
			text, err := json.Marshal(item.Object)
			if err != nil {
				r.Fatal(err)
			}
			all[place] = string(text)
		}
	}
	return all
}

// difference names the objects that differ.
func difference(before, after map[string]string) string {
	var all []string
	for place, text := range after {
		if was, ok := before[place]; !ok {
			all = append(all, "new: "+place)
		} else if was != text {
			all = append(all, "changed: "+place+": "+was+" is now "+text)
		}
	}
	for place := range before {
		if _, ok := after[place]; !ok {
			all = append(all, "gone: "+place)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// seed makes the objects of seeds as the administrator.
func (r *chartRunner) seed(ns string) {
	r.Helper()
	c := r.dynamic(r.cfg)
	byKind := func() map[schema.GroupVersionKind]resource {
		found := map[schema.GroupVersionKind]resource{}
		for _, of := range r.resources() {
			if of.sub == "" {
				found[of.kind] = of
			}
		}
		return found
	}
	kinds := byKind()
	for doc := range strings.SplitSeq(strings.ReplaceAll(seeds, "NS", ns), "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			r.Fatal(err)
		}
		testserver.Until(r.T, "the API server serves "+u.GroupVersionKind().String(), func() bool { // a new kind is served some time after its definition
			if _, ok := kinds[u.GroupVersionKind()]; !ok {
				kinds = byKind()
			}
			_, ok := kinds[u.GroupVersionKind()]
			return ok
		})
		of := kinds[u.GroupVersionKind()]
		var client dynamic.ResourceInterface = c.Resource(of.GroupVersionResource)
		if of.namespaced {
			u.SetNamespace(ns)
			client = c.Resource(of.GroupVersionResource).Namespace(ns)
		} else {
			r.Cleanup(func() { _ = client.Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}) })
		}
		if _, err := client.Create(r.Context(), u, metav1.CreateOptions{}); err != nil {
			r.Fatalf("make a seed: %v\n%s", err, doc)
		}
	}
	csr := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(signingRequest(r.T, ns)), &csr.Object); err != nil {
		r.Fatal(err)
	}
	if _, err := c.Resource(kinds[csr.GroupVersionKind()].GroupVersionResource).Create(r.Context(), csr, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = c.Resource(kinds[csr.GroupVersionKind()].GroupVersionResource).Delete(context.Background(), csr.GetName(), metav1.DeleteOptions{})
	})
}

// signingRequest returns a request for a certificate, as JSON.
func signingRequest(t *testing.T, ns string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "seed"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return fmt.Sprintf(`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "seed-%s"},
		"spec": {"request": %q, "signerName": "example.com/none", "usages": ["client auth"]}}`, ns, text)
}

// request is one request to the API server.
type request struct {
	verb string
	of   resource
	send func(dry []string) error
}

func (q request) String() string { return q.verb + " " + q.of.String() + " " + q.of.Version }

// requests returns requests with each verb that writes, on each resource and subresource, with an object that exists. The
// identity is the one of c.
func (r *chartRunner) requests(cfg *rest.Config, ns string) (all []request) {
	r.Helper()
	ctx, c, admin := r.Context(), r.dynamic(cfg), r.dynamic(r.cfg)
	served := r.resources()
	example := map[schema.GroupVersionResource]*unstructured.Unstructured{}
	for _, of := range served {
		if of.sub != "" || !slices.Contains(of.verbs, "list") || !slices.Contains(of.verbs, "create") || of.Group == exempt {
			continue
		}
		list, err := admin.Resource(of.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			r.Fatal(err)
		}
		i := slices.IndexFunc(list.Items, func(u unstructured.Unstructured) bool {
			return strings.HasPrefix(u.GetName(), "seed") && (!of.namespaced || u.GetNamespace() == ns)
		})
		if i < 0 {
			i = slices.IndexFunc(list.Items, func(u unstructured.Unstructured) bool { return u.GetDeletionTimestamp() == nil })
		}
		if i < 0 {
			r.Errorf("the cluster has no object of %s: add one to seeds", of)
			continue
		}
		u := list.Items[i]
		u.SetManagedFields(nil)
		example[of.GroupVersionResource] = &u
	}
	for _, of := range served {
		u, has := example[of.GroupVersionResource]
		if text, is := answers[of.GroupResource().String()]; is && of.sub == "" {
			u, has = &unstructured.Unstructured{}, true
			if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "NS", ns)), &u.Object); err != nil {
				r.Fatal(err)
			}
			if of.namespaced {
				u.SetNamespace(ns)
			}
			u.SetGroupVersionKind(of.kind)
		}
		if !has {
			if !slices.Contains(permitted, of.GroupResource().String()) && of.Group != exempt && slices.ContainsFunc(of.verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) }) {
				r.Errorf("no request for %s: add it to a table", of)
			}
			continue
		}
		var client dynamic.ResourceInterface = c.Resource(of.GroupVersionResource)
		if of.namespaced {
			client = c.Resource(of.GroupVersionResource).Namespace(u.GetNamespace())
		}
		all = append(all, r.requestsOf(of, u, client)...)
	}
	return all
}

// marked returns a copy of an object with one more annotation.
func marked(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	a := u.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a["example.com/plan"] = "was here"
	u.SetAnnotations(a)
	return u
}

// bodies are what creates a subresource that has no content to change.
var bodies = map[string]string{
	"pods/eviction":         `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "seed"}}`,
	"pods/binding":          `{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "seed"}, "target": {"kind": "Node", "name": "none"}}`,
	"serviceaccounts/token": `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "seed"}, "spec": {}}`,
}

// connects are the subresources by which a request reaches a program in the cluster. Each is tried with each of its verbs.
var connects = map[string]string{"pods/exec": "?command=id&stdout=true", "pods/attach": "?stdout=true", "pods/portforward": "?ports=80", "pods/proxy": "", "services/proxy": "", "nodes/proxy": ""}

func (r *chartRunner) requestsOf(of resource, u *unstructured.Unstructured, client dynamic.ResourceInterface) (all []request) {
	ctx := r.Context()
	add := func(verb string, send func(dry []string) error) { all = append(all, request{verb, of, send}) }
	var sub []string
	if of.sub != "" {
		sub = []string{of.sub}
	}
	if _, ok := connects[of.String()]; ok {
		return nil // see connectRequests
	}
	for _, verb := range of.verbs {
		switch verb {
		case "create":
			add(verb, func(dry []string) error {
				n := u.DeepCopy()
				if text, is := bodies[of.String()]; is {
					if err := json.Unmarshal([]byte(text), &n.Object); err != nil {
						return err
					}
					n.SetName(u.GetName())
				} else if of.sub == "" && u.GetName() != "" && of.Resource != "bindings" {
					n.SetName("plan-" + u.GetName())
				}
				if n.GetKind() == "Job" { // the server sets both from the UID
					unstructured.RemoveNestedField(n.Object, "spec", "selector")
					unstructured.RemoveNestedField(n.Object, "spec", "template", "metadata", "labels")
				}
				for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "ownerReferences"} {
					unstructured.RemoveNestedField(n.Object, "metadata", field)
				}
				for _, field := range []string{"clusterIP", "clusterIPs"} { // of a Service
					unstructured.RemoveNestedField(n.Object, "spec", field)
				}
				_, err := client.Create(ctx, n, metav1.CreateOptions{DryRun: dry}, sub...)
				return err
			})
		case "update":
			add(verb, func(dry []string) error {
				n := marked(u)
				if of.sub != "" && of.kind.Kind != u.GetKind() { // such as scale, which has a content of its own
					now, err := r.dynamic(r.cfg).Resource(of.GroupVersionResource).Namespace(u.GetNamespace()).Get(ctx, u.GetName(), metav1.GetOptions{}, of.sub)
					if err != nil {
						return err
					}
					n = marked(now)
				}
				_, err := client.Update(ctx, n, metav1.UpdateOptions{DryRun: dry}, sub...)
				return err
			})
		case "patch":
			merge := []byte(`{"metadata": {"annotations": {"example.com/plan": "was here"}}}`)
			add(verb, func(dry []string) error {
				_, err := client.Patch(ctx, u.GetName(), types.MergePatchType, merge, metav1.PatchOptions{DryRun: dry}, sub...)
				return err
			})
			if of.sub == "" {
				add("apply", func(dry []string) error {
					n := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": u.GetName(), "annotations": map[string]any{"example.com/plan": "was here"}}}}
					n.SetGroupVersionKind(of.kind)
					text, err := n.MarshalJSON()
					if err != nil {
						return err
					}
					_, err = client.Patch(ctx, u.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{DryRun: dry, FieldManager: "plan"}, sub...)
					return err
				})
			}
		case "delete":
			add(verb, func(dry []string) error {
				return client.Delete(ctx, u.GetName(), metav1.DeleteOptions{DryRun: dry}, sub...)
			})
		case "deletecollection":
			add(verb, func(dry []string) error {
				return client.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{FieldSelector: "metadata.name=" + u.GetName()})
			})
		}
	}
	return all
}

// invalid are creations that the API server refuses before it asks a policy, because the name of such an object is a part of its
// content.
var invalid = []string{"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io", "ipaddresses.networking.k8s.io"}

// refusesWrites checks that each request that could change something is refused to an identity, also each creation of a token, and
// each request as another user. reason is a part of the answers; "": any refusal.
func (r *chartRunner) refusesWrites(cfg *rest.Config, ns, reason string) {
	r.Helper()
	tried := 0
	check := func(q request, dry []string) {
		if reason == byPolicy && q.of.review() {
			return
		}
		err := q.send(dry)
		tried++
		if apierrors.IsInvalid(err) && q.verb == "create" && slices.Contains(invalid, q.of.String()) {
			return
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason) {
			r.Errorf("%s (dry run: %v) is answered with %v, want a refusal with %q", q, dry, err, reason)
		}
	}
	for _, q := range r.requests(cfg, ns) {
		check(q, nil)
		if q.of.sub != "" {
			check(q, []string{metav1.DryRunAll}) // A token is real, also from a dry run.
		}
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		r.Fatal(err)
	}
	names := map[string]string{"pods": "namespaces/" + ns + "/pods/seed", "services": "namespaces/" + ns + "/services/seed", "nodes": "nodes/seed-" + ns}
	for _, of := range r.resources() {
		query, is := connects[of.String()]
		if !is {
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			path := cfg.Host + "/api/v1/" + names[of.Resource] + "/" + of.sub + query
			status, answer, err := send(r.Context(), client, method, path)
			tried++
			if status != http.StatusMethodNotAllowed && (err != nil || status != http.StatusForbidden || !strings.Contains(answer, reason)) {
				r.Errorf("%s %s is answered with %d %s (%v), want a refusal with %q", method, path, status, answer, err, reason)
			}
		}
	}
	if tried < 300 {
		r.Errorf("only %d requests were tried", tried)
	}
}

// send sends one request with an empty body.
func send(ctx context.Context, c *http.Client, method, url string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return resp.StatusCode, string(text), err
}

// byPolicy is a part of the answer of the policy.
const byPolicy = "ValidatingAdmissionPolicy"

// A person who steals the token of a plan changes nothing in the cluster, runs no program in it and becomes no other account: with
// the chart's permissions, and also if a person has made the account an administrator.
func TestAccountOfPlansChangesNothing(t *testing.T) {
	r := installRunner(t, map[string]any{"clusterAdmin": true})
	ns := r.newNamespace("seeds-")
	r.awaitPolicy(ns)
	r.seed(ns)
	plans := r.as(planAccount)
	before := r.stable()

	t.Run("with the permissions of the chart", func(t *testing.T) {
		sub := r.in(t)
		sub.refusesWrites(plans, ns, "")
		c, err := kubernetes.NewForConfig(plans)
		if err != nil {
			t.Fatal(err)
		}
		for _, account := range []string{"seed", "default"} {
			for _, dry := range [][]string{nil, {metav1.DryRunAll}} {
				_, err := c.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{DryRun: dry})
				if !apierrors.IsForbidden(err) {
					t.Errorf("a token of %s is answered with %v", account, err)
				}
			}
		}
		// Admission does not see these: a reader of nodes/proxy runs programs by the kubelet, and another user is not bounded.
		for _, a := range []authorizationv1.ResourceAttributes{
			{Verb: "get", Resource: "nodes", Subresource: "proxy"}, {Verb: "create", Resource: "nodes", Subresource: "proxy"}, {Verb: "get", Resource: "pods", Subresource: "exec"},
			{Verb: "get", Resource: "services", Subresource: "proxy"}, {Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
			{Verb: "impersonate", Resource: "users"}, {Verb: "impersonate", Resource: "serviceaccounts"}, {Verb: "approve", Group: "certificates.k8s.io", Resource: "signers"},
			{Verb: "delete", Group: exempt, Resource: "validatingadmissionpolicies"}, {Verb: "delete", Group: exempt, Resource: "validatingadmissionpolicybindings"},
		} {
			review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}, metav1.CreateOptions{})
			if err != nil || review.Status.Allowed {
				t.Errorf("the account of plans may %s %s/%s (%v)", a.Verb, a.Resource, a.Subresource, err)
			}
		}
		other := rest.CopyConfig(plans)
		for _, as := range []rest.ImpersonationConfig{{UserName: "admin"}, {UserName: "system:serviceaccount:" + r.ns + ":" + jobsAccount + "-deploy"}, {UserName: "admin", Groups: []string{"system:masters"}}} {
			other.Impersonate = as
			_, err := r.dynamic(other).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns).List(t.Context(), metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("a request as %v is answered with %v", as, err)
			}
		}
		for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			client := r.dynamic(plans).Resource(schema.GroupVersionResource{Group: exempt, Version: "v1", Resource: kind})
			err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "none=none"})
			if _, listErr := client.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || listErr != nil {
				t.Errorf("%s: a deletion is answered with %v, a list with %v", kind, err, listErr)
			}
		}
	})
	t.Run("with the permissions of an administrator", func(t *testing.T) {
		sub := r.in(t)
		binding, err := r.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "mistake-"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: planAccount, Namespace: r.ns}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
		c, err := kubernetes.NewForConfig(plans)
		if err != nil {
			t.Fatal(err)
		}
		testserver.Until(t, "the account is an administrator", func() bool {
			_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil
		})
		sub.refusesWrites(plans, ns, byPolicy)
		// The same requests are dry runs that the server accepts, so it is the policy that refuses them.
		for _, q := range sub.requests(plans, ns) {
			if q.of.sub != "" || q.of.review() {
				continue
			}
			err := q.send([]string{metav1.DryRunAll})
			var status apierrors.APIStatus
			if err != nil && (!errors.As(err, &status) || !apierrors.IsInvalid(err) || q.verb != "create" || !slices.Contains(invalid, q.of.String())) {
				t.Errorf("a dry run of %s is answered with %v", q, err)
			}
		}
		if err := r.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if after := r.objects(); !maps.Equal(before, after) {
		t.Errorf("the account changed the cluster: %s", difference(before, after))
	}
}

// in returns the release for a part of the test.
func (r *chartRunner) in(t *testing.T) *chartRunner {
	c := *r
	c.T = t
	return &c
}

// stable returns the objects of the cluster when its controllers have finished with the seeds.
func (r *chartRunner) stable() map[string]string {
	r.Helper()
	last := r.objects()
	testserver.Until(r.T, "the cluster does not change any more", func() bool {
		now := r.objects()
		same := maps.Equal(last, now)
		last = now
		return same
	})
	return last
}
