package manifest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
)

// crd returns the definition of Widgets in a group of the site, with a field of spec.
func (s *site) crd(field string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s.example.com}
spec:
  group: %[1]s.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {%[2]s: {type: string}}}}}}
---
`, s.ns, field)
}

func (s *site) widget(name, field string) string {
	return fmt.Sprintf("apiVersion: %s.example.com/v1\nkind: Widget\nmetadata: {name: %s}\nspec: {%s: x}\n---\n", s.ns, name, field)
}

func (s *site) widgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.ns + ".example.com", Version: "v1", Resource: "widgets"}
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func (s *site) dropDefinitions() {
	s.Cleanup(func() {
		s.dynamic.Resource(definitions).Delete(s.context(), "widgets."+s.ns+".example.com", metav1.DeleteOptions{})
	})
}

// The story of a component with its own kind and namespace: nothing of it exists at the plan.
func TestKindsAndNamespacesOfThePlanAreUnverified(t *testing.T) {
	s := newSite(t)
	s.dropDefinitions()
	ns := s.ns + "-two"
	text := s.crd("size") + s.widget("w", "size") + "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: " + ns + "}\n"
	p := s.plan(text)
	s.wantRows(p, "create CustomResourceDefinition/widgets.NS.example.com", "create Namespace/NS-two", "create ConfigMap/NS-two/c unverified", "create Widget.NS.example.com/NS/w unverified")
	s.apply(p)
	if !s.exists(s.widgets(), s.ns, "w") || !s.exists(configMaps, ns, "c") {
		t.Error("the objects do not exist")
	}
	if again := s.plan(text); !again.NoOp {
		t.Errorf("the next plan has %s", rows(again))
	}
	// A new field of the kind and its use come in one version.
	p = s.plan(strings.ReplaceAll(text, "size", "colour"))
	s.wantRows(p, "update CustomResourceDefinition/widgets.NS.example.com", "update Widget.NS.example.com/NS/w unverified")
	s.apply(p)
	p = s.planDestroy()
	if got := strings.ReplaceAll(rows(p), s.ns, "NS"); !strings.HasPrefix(got, "delete Widget.NS.example.com/NS/w; delete ConfigMap/NS-two/c; delete CustomResourceDefinition/widgets.NS.example.com; delete Namespace/NS-two; ") {
		t.Errorf("the destroy has %s", got)
	}
	s.apply(p)
	if s.exists(definitions, "", "widgets."+s.ns+".example.com") {
		t.Error("the definition stays")
	}
}

func TestPlanRefusesWhatTheClusterDoesNotAccept(t *testing.T) {
	s := newSite(t)
	s.Limits.Retry = time.Hour // None of these is an outage.
	for name, tc := range map[string]struct {
		text   string
		reason fairlead.Reason
		want   []string
	}{
		"an unknown kind":                      {"\napiVersion: example.com/v1\nkind: Unknown\nmetadata: {name: a}", fairlead.ReasonKindUnknown, []string{"web.yaml:2: ", "example.com/v1 Unknown", "CustomResourceDefinition"}},
		"a version that is not served":         {"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}", fairlead.ReasonKindUnknown, []string{"web.yaml:1: ", "apps/v1"}},
		"a namespace that does not exist":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: absent}", fairlead.ReasonNamespaceMissing, []string{"web.yaml:1: ", "absent"}},
		"a field that the kind does not have":  {strings.Replace(first, "replicas: 0", "replicsa: 0", 1), fairlead.ReasonObjectRefused, []string{"web.yaml:2: ", "replicsa"}},
		"a value that is not valid":            {strings.Replace(first, "containerPort: 80", "containerPort: 800000", 1), fairlead.ReasonObjectRefused, []string{"web.yaml:2: ", "containerPort"}},
		"a name that is not valid":             {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A_b}", fairlead.ReasonObjectRefused, []string{"web.yaml:1: ", "A_b"}},
		"a Secret that is not valid":           {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {\"a b\": hidden-value}", fairlead.ReasonObjectRefused, []string{"web.yaml:1: "}},
		"the annotation of another owner":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {fairlead.dev/owner: x/y}}", fairlead.ReasonManifestInvalid, []string{"web.yaml:1: ", "fairlead.dev/owner"}},
		"an object twice, once by its default": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: " + s.ns + "}", fairlead.ReasonManifestInvalid, []string{"web.yaml:5: ", "web.yaml:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			_, err := s.Plan(t.Context(), s.objects(tc.text), false)
			s.refused(err, tc.reason, tc.want...)
			if strings.Contains(err.Error(), "hidden-value") {
				t.Errorf("the message shows the Secret: %v", err)
			}
		})
	}
}

const clusterRole = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: role-NS}\nrules: []\n"

// A component creates the install's namespace if it is missing, as Helm does, also if its own objects are in no namespace: the list of
// its objects is there. Its destroy deletes the namespace.
func TestMissingNamespaceIsCreated(t *testing.T) {
	s := newSite(t)
	s.Namespace = s.ns + "-new"
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n" + strings.ReplaceAll(clusterRole, "NS", s.ns)
	p := s.plan(text)
	s.wantRows(p, "create Namespace/NS-new", "create ClusterRole/role-NS", "create ConfigMap/NS-new/a unverified")
	if c := s.row(p, "Namespace/NS-new"); c.Reason != "the install's namespace" {
		t.Errorf("the reason is %q", c.Reason)
	}
	s.apply(p)
	if again := s.plan(text); !again.NoOp {
		t.Errorf("the plan after the apply is not empty: %s", rows(again))
	}
	// Also a version whose only object is in no namespace keeps it.
	s.wantRows(s.plan(strings.ReplaceAll(clusterRole, "NS", s.ns)), "delete ConfigMap/NS-new/a")
	s.wantRows(s.planDestroy(), "delete ConfigMap/NS-new/a", "delete ClusterRole/role-NS", "delete Namespace/NS-new", "delete Secret/NS-new/"+s.inventoryName())
	s.apply(s.planDestroy())
	if s.exists(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", s.Namespace) {
		t.Error("the destroy left the namespace")
	}
}

// The destroy keeps a namespace that the component has created and in which others have objects, and names one of them.
func TestCreatedNamespaceStaysForOthers(t *testing.T) {
	s := newSite(t)
	s.Namespace = s.ns + "-new"
	t.Cleanup(func() { s.admin.CoreV1().Namespaces().Delete(s.context(), s.Namespace, metav1.DeleteOptions{}) })
	s.apply(s.plan("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"))
	o := s.other("api")
	o.apply(o.plan("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"))
	o.wantRows(o.planDestroy(), "delete ConfigMap/NS-new/b", "delete Secret/NS-new/"+o.inventoryName())
	p := s.planDestroy()
	if c := s.row(p, "Namespace/NS-new"); c.Action != changeset.Forget || !strings.Contains(c.Reason, "which this component does not delete") {
		t.Errorf("the namespace of two components: %+v", c)
	}
	s.apply(p)
	if !s.exists(configMaps, s.Namespace, "b") {
		t.Error("the destroy of one component deleted the object of the other")
	}
	if _, exists := s.inventory(); exists {
		t.Error("the destroy left its inventory")
	}
}

// A namespace that exists is not the component's, and an identity that may not see namespaces creates none.
func TestExistingNamespaceIsNotTakenOver(t *testing.T) {
	s := newSite(t)
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	s.deploy(text)
	s.wantRows(s.planDestroy(), "delete ConfigMap/NS/a", "delete Secret/NS/"+s.inventoryName())
	reader := s.identity(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"get", "create", "patch"}})
	s.Config = reader
	s.wantRows(s.plan(text))
}

// Values of Secrets are never in a change, and the job's secrets are nowhere in it.
func TestPlanShowsNoSecret(t *testing.T) {
	s := newSite(t)
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: first-value, b: same-value}\ndata: {c: Zm91cnRoLXZhbHVl}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {url: 'https://" + secret + "@host'}\n"
	p := s.plan(text)
	c := s.row(p, "Secret/NS/s")
	if strings.Join(c.Sensitive, " ") != "/data/a /data/b /data/c" {
		t.Errorf("sensitive are %v", c.Sensitive)
	}
	s.apply(p)
	// A person has used kubectl apply: the whole Secret is in an annotation.
	if _, err := s.admin.CoreV1().Secrets(s.ns).Patch(t.Context(), "s", types.MergePatchType, []byte(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"first-value"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	update := s.plan(strings.Replace(text, "first-value", "second-value", 1))
	c = s.row(update, "Secret/NS/s")
	if strings.Join(c.Changed, " ") != "/data/a" || strings.Join(c.Sensitive, " ") != "/data/a" {
		t.Errorf("the update is %+v", c)
	}
	s.apply(update)
	destroy := s.planDestroy()
	for _, p := range []manifest.Planned{p, update, destroy} {
		shown, err := json.Marshal(p.Changes)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"first-value", "second-value", "same-value", "fourth-value", "Zmlyc3", "c2Vjb25k", "c2FtZS", "Zm91cnR", secret} {
			if bytes.Contains(shown, []byte(value)) || strings.Contains(s.log.String(), value) {
				t.Errorf("%s is in the changes %s, or in the log %s", value, shown, s.log)
			}
		}
	}
	got, err := s.admin.CoreV1().Secrets(s.ns).Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || string(got.Data["a"]) != "second-value" || s.configMap("c").Data["url"] != "https://"+secret+"@host" {
		t.Errorf("the cluster has %v, %v", got.Data, err)
	}
}

// A key that leaves stringData leaves the Secret.
func TestRemovedKeyOfSecretIsRemoved(t *testing.T) {
	s := newSite(t)
	s.deploy("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: x, b: z}\n")
	s.deploy("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: x}\n")
	got, err := s.admin.CoreV1().Secrets(s.ns).Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil || len(got.Data) != 1 {
		t.Errorf("the Secret has %v, %v", got.Data, err)
	}
}

func TestSamePlanHasTheSameBytes(t *testing.T) {
	s := newSite(t)
	s.deploy(first)
	red := strings.Replace(first, "blue", "red", 1)
	p := s.plan(red)
	s.report("web")
	if again := s.plan(red); !bytes.Equal(again.Saved, p.Saved) {
		t.Errorf("a plan is\n%s, and again\n%s", p.Saved, again.Saved)
	}
}

// report writes a condition into the status of a Deployment, as a controller does.
func (s *site) report(name string) {
	s.Helper()
	d, err := s.admin.AppsV1().Deployments(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: "Example", Status: corev1.ConditionTrue, LastUpdateTime: metav1.Now()})
	if _, err := s.admin.AppsV1().Deployments(s.ns).UpdateStatus(s.Context(), d, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *site) patch(name, body string, o metav1.PatchOptions) {
	s.Helper()
	if _, err := s.admin.CoreV1().ConfigMaps(s.ns).Patch(s.Context(), name, types.MergePatchType, []byte(body), o); err != nil {
		s.Fatal(err)
	}
}

// What was approved is applied, or the plan is refused and nothing changes.
func TestPlanIsStaleAfterAChangeOfContentOnly(t *testing.T) {
	red := strings.NewReplacer("blue", "red", "web:1", "web:2").Replace(first)
	for name, tc := range map[string]struct {
		change func(*site)
		to     string
		stale  string // the object that the message names; "": the plan is applied
	}{
		"a person edits an object that the plan updates":        {func(s *site) { s.patch("settings", `{"data":{"colour":"green"}}`, metav1.PatchOptions{}) }, red, "ConfigMap/NS/settings"},
		"a person edits a field that the plan does not set":     {func(s *site) { s.patch("settings", `{"data":{"more":"x"}}`, metav1.PatchOptions{}) }, red, "ConfigMap/NS/settings"},
		"a person edits an object that the plan deletes":        {func(s *site) { s.patch("old", `{"data":{"a":"c"}}`, metav1.PatchOptions{}) }, red[:strings.LastIndex(red, "---")], "ConfigMap/NS/old"},
		"a person deletes an object that the plan updates":      {func(s *site) { s.delete("settings") }, red, "ConfigMap/NS/settings"},
		"a person creates it again with the same content":       {func(s *site) { s.again("settings") }, red, "ConfigMap/NS/settings"},
		"a person creates an object that the plan creates":      {func(s *site) { s.create("extra", nil) }, red + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}", "ConfigMap/NS/extra"},
		"a controller reports a status":                         {func(s *site) { s.report("web") }, red, ""},
		"a person edits an object that the plan does not touch": {func(s *site) { s.patch("old", `{"data":{"b":"x"}}`, metav1.PatchOptions{}) }, red, ""},
		"a backup program puts a label on the inventory":        {func(s *site) { s.labelInventory() }, red, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.deploy(first)
			before, _ := s.inventory()
			p := s.plan(tc.to)
			tc.change(s)
			err := s.try(p)
			if tc.stale == "" {
				if err != nil || s.configMap("settings").Data["colour"] != "red" {
					t.Errorf("the apply ended with %v", err)
				}
				return
			}
			s.refused(err, fairlead.ReasonPlanStale, strings.ReplaceAll(tc.stale, "NS", s.ns))
			if after, _ := s.inventory(); after.Revision != before.Revision || s.mutated {
				t.Errorf("the apply has changed the cluster: %+v", after)
			}
		})
	}
}

func (s *site) delete(name string) {
	s.Helper()
	if err := s.admin.CoreV1().ConfigMaps(s.ns).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *site) create(name string, annotations map[string]string) {
	s.Helper()
	if _, err := s.admin.CoreV1().ConfigMaps(s.ns).Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *site) again(name string) {
	s.Helper()
	c := s.configMap(name)
	s.delete(name)
	c.ResourceVersion, c.UID = "", ""
	if _, err := s.admin.CoreV1().ConfigMaps(s.ns).Create(s.Context(), c, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// A plan waits for its approval while an autoscaler works.
func TestPlanSurvivesAnAutoscaler(t *testing.T) {
	s := newSite(t)
	s.deploy(first)
	s.scale("web", 2)
	s.Limits.Ready = time.Second // The cluster has no node, so the two pods never start.
	p := s.plan(strings.NewReplacer("  replicas: 0\n", "", "web:1", "web:2", "blue", "red").Replace(first))
	s.wantRows(p, "update ConfigMap/NS/settings", "update Deployment/NS/web")
	s.scale("web", 3)
	s.refused(s.try(p), fairlead.ReasonNotReady, "Deployment/"+s.ns+"/web", "1s")
	d, err := s.admin.AppsV1().Deployments(s.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 || d.Spec.Template.Spec.Containers[0].Image != "example/web:2" || s.configMap("settings").Data["colour"] != "red" {
		t.Errorf("the Deployment is %v, %v", d.Spec, err)
	}
}

// scale sets the replicas of a Deployment by the subresource, as an autoscaler does.
func (s *site) scale(name string, replicas int32) {
	s.Helper()
	if _, err := s.admin.AppsV1().Deployments(s.ns).UpdateScale(s.Context(), name, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns},
		Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}, metav1.UpdateOptions{FieldManager: "autoscaler"}); err != nil {
		s.Fatal(err)
	}
}

func (s *site) labelInventory() {
	s.Helper()
	list, err := s.admin.CoreV1().Secrets(s.ns).List(s.Context(), metav1.ListOptions{LabelSelector: "fairlead.dev/component=web"})
	if err != nil || len(list.Items) != 1 {
		s.Fatal(err, list)
	}
	if _, err := s.admin.CoreV1().Secrets(s.ns).Patch(s.Context(), list.Items[0].Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"backup":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// A person changes an object after the apply has begun, and before it comes to that object.
func TestChangeDuringAnApplyIsNotOverwritten(t *testing.T) {
	to := strings.NewReplacer("blue", "red", "a: b", "a: c").Replace(first) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: zebra}\ndata: {k: ours}\n"
	for name, tc := range map[string]struct {
		at     int // the write before which it happens: 1 inventory, 2 old, 3 settings, 4 zebra
		change func(*site)
		object string
	}{
		"an edit":                       {2, func(s *site) { s.patch("settings", `{"data":{"colour":"green"}}`, metav1.PatchOptions{}) }, "settings"},
		"an edit at the last moment":    {3, func(s *site) { s.patch("settings", `{"data":{"colour":"green"}}`, metav1.PatchOptions{}) }, "settings"},
		"a creation":                    {2, func(s *site) { s.create("zebra", nil) }, "zebra"},
		"a creation at the last moment": {4, func(s *site) { s.create("zebra", nil) }, "zebra"},
		"a deletion":                    {2, func(s *site) { s.delete("settings") }, "settings"},
		"a deletion at the last moment": {3, func(s *site) { s.delete("settings") }, "settings"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.deploy(first)
			p := s.plan(to)
			s.wantRows(p, "update ConfigMap/NS/old", "update ConfigMap/NS/settings", "create ConfigMap/NS/zebra")
			s.Config = s.through(&writes{at: func(n int, _ *http.Request) error {
				if n == tc.at {
					tc.change(s)
				}
				return nil
			}})
			s.refused(s.try(p), fairlead.ReasonPlanStale, "ConfigMap/"+s.ns+"/"+tc.object)
			c, err := s.admin.CoreV1().ConfigMaps(s.ns).Get(t.Context(), tc.object, metav1.GetOptions{})
			if strings.HasPrefix(name, "a deletion") {
				if err == nil {
					t.Error("the object was created again")
				}
			} else if err != nil || c.Data["colour"] != "green" && c.Data["k"] != "v" {
				t.Errorf("the object has %v, %v", c.Data, err)
			}
			s.known()
		})
	}
}

// An earlier plan is refused after another apply, also if the objects are the same again.
func TestPlanIsStaleAfterAnotherApply(t *testing.T) {
	s := newSite(t)
	s.deploy(first)
	red := s.plan(strings.Replace(first, "blue", "red", 1))
	s.deploy(strings.Replace(first, "a: b", "a: c", 1))
	s.deploy(first)
	s.refused(s.try(red), fairlead.ReasonPlanStale)
	if s.configMap("settings").Data["colour"] != "blue" {
		t.Error("the earlier plan was applied")
	}
}

func TestPlanOfAnotherComponentIsRefused(t *testing.T) {
	s := newSite(t)
	p := s.plan(first)
	o := s.other("api")
	o.refused(o.try(p), fairlead.ReasonPlanElsewhere)
	o.refused(o.try(manifest.Planned{Saved: []byte("{")}), fairlead.ReasonPlanDigest)
}

// As Flux does, the component's files win, and the plan names the manager that loses.
func TestPlanNamesTheManagerWhoseFieldsItTakes(t *testing.T) {
	s := newSite(t)
	s.deploy(first)
	s.patch("settings", `{"data":{"colour":"green"}}`, metav1.PatchOptions{FieldManager: "kubectl-edit"})
	p := s.plan(first)
	s.wantRows(p, "update ConfigMap/NS/settings")
	c := s.row(p, "ConfigMap/NS/settings")
	if !strings.Contains(c.Reason, "kubectl-edit") || !strings.Contains(c.Reason, "data.colour") || strings.Join(c.Changed, " ") != "/data/colour" {
		t.Errorf("the change is %+v", c)
	}
	s.apply(p)
	if s.configMap("settings").Data["colour"] != "blue" {
		t.Error("the edit stays")
	}
	// A field that the files do not set stays.
	s.patch("settings", `{"data":{"more":"x"}}`, metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if p := s.plan(first); !p.NoOp {
		t.Errorf("the plan has %s", rows(p))
	}
}

func TestObjectWithoutOwnerIsImported(t *testing.T) {
	s := newSite(t)
	s.create("settings", nil)
	p := s.plan(first)
	s.wantRows(p, "create ConfigMap/NS/old", "import ConfigMap/NS/settings", "create Deployment/NS/web")
	if c := s.row(p, "ConfigMap/NS/settings"); strings.Join(c.Changed, " ") != "/data/colour /data/mode" {
		t.Errorf("the import changes %v", c.Changed)
	}
	s.deploy(first)
	// A component whose inventory is lost takes its objects over again.
	if err := s.admin.CoreV1().Secrets(s.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "fairlead.dev/component=web"}); err != nil {
		t.Fatal(err)
	}
	p = s.plan(first)
	s.wantRows(p, "import ConfigMap/NS/old", "import ConfigMap/NS/settings", "import Deployment/NS/web")
	for _, c := range p.Changes {
		if len(c.Changed) > 0 {
			t.Errorf("%s changes %v", c.Address, c.Changed)
		}
	}
	s.apply(p)
	if inv, _ := s.inventory(); len(inv.Objects) != 3 {
		t.Errorf("the inventory has %s", inv.names())
	}
}

func TestObjectOfAnotherComponentIsRefused(t *testing.T) {
	s := newSite(t)
	s.deploy(first)
	o := s.other("api")
	_, err := o.Plan(t.Context(), o.objects(first), false)
	o.refused(err, fairlead.ReasonObjectOwned, "web.yaml:", s.Owner.Install+"/web")
	// It also becomes another's between two plans of its first owner: then it is not deleted.
	s.patch("old", `{"metadata":{"annotations":{"fairlead.dev/owner":"`+s.Owner.Install+`/api"}}}`, metav1.PatchOptions{})
	without := first[:strings.LastIndex(first, "---")]
	p := s.plan(without)
	s.wantRows(p, "forget ConfigMap/NS/old")
	s.apply(p)
	if s.configMap("old").Annotations["fairlead.dev/owner"] != s.Owner.Install+"/api" {
		t.Error("the other owner's annotation is gone")
	}
	if inv, _ := s.inventory(); strings.Contains(inv.names(), "old") {
		t.Errorf("the inventory has %s", inv.names())
	}
}

func TestRefusedUpdateIsAReplacement(t *testing.T) {
	s := newSite(t)
	s.deploy(first + fixed)
	p := s.plan(first + strings.Replace(fixed, `"1"`, `"2"`, 1))
	s.wantRows(p, "replace ConfigMap/NS/fixed")
	c := s.row(p, "ConfigMap/NS/fixed")
	if c.Order != changeset.DeleteFirst || !strings.Contains(c.Reason, "immutable") || strings.Join(c.Changed, " ") != "/data/a" {
		t.Errorf("the change is %+v", c)
	}
	uid := s.configMap("fixed").UID
	s.apply(p)
	if now := s.configMap("fixed"); now.UID == uid || now.Data["a"] != "2" {
		t.Errorf("the object is %v", now)
	}
	// An update that is simply wrong replaces nothing.
	_, err := s.Plan(t.Context(), s.objects(strings.Replace(first, "containerPort: 80", "containerPort: -1", 1)), false)
	s.refused(err, fairlead.ReasonObjectRefused, "web.yaml:2: ")
}

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: pv, resources: {requests: {storage: 1Gi}}}
`

func TestVolumeIsNeverReplaced(t *testing.T) {
	s := newSite(t)
	s.bind(claim)
	_, err := s.Plan(t.Context(), s.objects(strings.Replace(claim, "fast", "slow", 1)), false)
	s.refused(err, fairlead.ReasonObjectImmutable, "web.yaml:2: ", "data")
}

// bind deploys a claim and plays the controller that binds it.
func (s *site) bind(text string) {
	s.Helper()
	p := s.plan(text)
	done := make(chan error)
	go func() { done <- s.try(p) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				s.Fatal(err)
			}
			return
		default:
		}
		c, err := s.admin.CoreV1().PersistentVolumeClaims(s.ns).Get(s.Context(), "data", metav1.GetOptions{})
		if err != nil || c.Status.Phase == corev1.ClaimBound {
			continue
		}
		c.Status.Phase = corev1.ClaimBound
		_, _ = s.admin.CoreV1().PersistentVolumeClaims(s.ns).UpdateStatus(s.Context(), c, metav1.UpdateOptions{}) // repeated after a conflict
	}
}

// The list of 3,000 objects with long names does not fit a Secret.
func TestInventoryOverItsBoundIsRefusedAtThePlan(t *testing.T) {
	s := newSite(t)
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-%d}\n", strings.Repeat("n", 240), i)
	}
	text := b.String()
	_, err := s.Plan(t.Context(), s.objects(text), false)
	s.refused(err, fairlead.ReasonInventoryTooLarge, "4000 objects", "1024 KiB")
}
