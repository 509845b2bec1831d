package manifest_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
	"github.com/fairlead/fairlead/runner/plugin"
)

// link is a connection to the API server that can be cut.
type link struct {
	mu   sync.Mutex
	l    net.Listener
	open []net.Conn
}

// connect returns a configuration that reaches the API server through the link.
func (s *site) connect() (*link, *rest.Config) {
	s.Helper()
	to, err := url.Parse(s.Config.Host)
	if err != nil {
		s.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	k := &link{l: l}
	s.Cleanup(k.cut)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			on, err := net.Dial("tcp", to.Host)
			if err != nil {
				from.Close()
				continue
			}
			k.mu.Lock()
			k.open = append(k.open, from, on)
			k.mu.Unlock()
			go func() { io.Copy(on, from); on.Close() }()
			go func() { io.Copy(from, on); from.Close() }()
		}
	}()
	cfg := rest.CopyConfig(s.Config)
	cfg.Host = "https://" + l.Addr().String()
	return k, cfg
}

// cut closes all connections, and refuses others.
func (k *link) cut() {
	k.l.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.open {
		c.Close()
	}
}

func TestAPIServerThatGoesAwayEndsTheApply(t *testing.T) {
	s := newSite(t)
	p := s.plan(first)
	k, cfg := s.connect()
	direct := s.Config
	w := &writes{at: func(n int, _ *http.Request) error {
		if n == 3 { // the second object
			k.cut()
		}
		return nil
	}}
	s.Config, s.Limits.Retry = cfg, time.Second
	s.Config = s.through(w)
	began := time.Now()
	s.refused(s.try(p), fairlead.ReasonClusterUnreachable, "ConfigMap/"+s.ns+"/settings", "1s")
	if time.Since(began) > 30*time.Second {
		t.Errorf("the apply ended after %s", time.Since(began))
	}
	if !s.mutated {
		t.Error("the apply has changed the cluster and did not report it")
	}
	s.Config = direct
	s.known()
	s.wantRows(s.plan(first), "create ConfigMap/NS/settings", "create Deployment/NS/web")
	s.deploy(first)
}

func TestPlanWithoutAPIServerIsUnreachable(t *testing.T) {
	s := newSite(t)
	k, cfg := s.connect()
	k.cut()
	s.Config, s.Limits.Retry = cfg, 300*time.Millisecond
	_, err := s.Plan(t.Context(), s.objects(first), false)
	s.refused(err, fairlead.ReasonClusterUnreachable, "refused")
}

// A short outage does not end an apply.
func TestApplySurvivesAShortOutage(t *testing.T) {
	s := newSite(t)
	failures := 0
	direct := s.Config
	w := &writes{at: func(n int, req *http.Request) error {
		if n%3 == 1 {
			failures++
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		return nil
	}, got: func(n int) error {
		if n%3 == 2 { // The request succeeded, and its answer is lost.
			failures++
			return &net.OpError{Op: "read", Err: errors.New("connection reset")}
		}
		return nil
	}}
	s.Config = s.through(w)
	s.apply(s.plan(first + fixed))
	to := strings.NewReplacer("blue", "red", "web:1", "web:2", "name: old", "name: new", `"1"`, `"2"`).Replace(first + fixed)
	s.apply(s.plan(to))
	s.Config = direct
	if failures < 15 {
		t.Errorf("%d failures only", failures)
	}
	if p := s.plan(to); !p.NoOp {
		t.Errorf("the next plan has %s", rows(p))
	}
}

func TestDefinitionThatIsNotEstablishedFailsAtOnce(t *testing.T) {
	s := newSite(t)
	s.dropDefinitions()
	// Another definition has the kind's name already.
	other := strings.NewReplacer("widgets", "gadgets", "singular: widget,", "singular: gadget,").Replace(strings.TrimSuffix(strings.TrimSpace(s.crd("size")), "---"))
	objects := s.objects(other)
	if _, err := s.dynamic.Resource(definitions).Create(t.Context(), objects[0].Unstructured, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.dynamic.Resource(definitions).Delete(s.context(), "gadgets."+s.ns+".example.com", metav1.DeleteOptions{})
	})
	s.awaitKind(schema.GroupVersionResource{Group: s.ns + ".example.com", Version: "v1", Resource: "gadgets"})
	s.Limits.Ready = time.Hour
	err := s.try(s.plan(s.crd("size") + first))
	s.refused(err, fairlead.ReasonNotReady, "CustomResourceDefinition/widgets."+s.ns+".example.com")
	if s.exists(configMaps, s.ns, "settings") {
		t.Error("the apply went on")
	}
	s.known()
}

// awaitKind waits until the API server serves a resource.
func (s *site) awaitKind(r schema.GroupVersionResource) {
	s.Helper()
	s.await("the server serves "+r.String(), func() bool {
		_, err := s.dynamic.Resource(r).List(s.Context(), metav1.ListOptions{})
		return err == nil
	})
}

// webhook makes the API server ask before each change of a ConfigMap or a Secret in the site's namespace.
func (s *site) webhook(code int32, refuse func(*admissionv1.AdmissionRequest) string) {
	s.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		message := refuse(review.Request)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: message == "", Result: &metav1.Status{Message: message, Code: code}}
		review.Request = nil
		json.NewEncoder(w).Encode(review)
	}))
	s.Cleanup(server.Close)
	none, fail, url := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, server.URL
	name := "refuse." + s.ns + ".example.com"
	_, err := s.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(s.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps", "secrets"}}}},
		}}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		s.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(s.context(), name, metav1.DeleteOptions{})
	})
	// The API server reads configurations of webhooks with a delay.
	s.await("the webhook refuses", func() bool {
		_, err = s.admin.CoreV1().ConfigMaps(s.ns).Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
}

func TestWebhookThatRefusesIsShown(t *testing.T) {
	for _, code := range []int32{0, http.StatusForbidden} {
		s := newSite(t)
		s.webhook(code, func(r *admissionv1.AdmissionRequest) string {
			if r.Name == "probe" || r.Name == "settings" {
				return "colours are not permitted " + secret
			}
			return ""
		})
		_, err := s.Plan(t.Context(), s.objects(first), false)
		s.refused(err, fairlead.ReasonAdmissionRefused, "web.yaml:12: ", "ConfigMap/"+s.ns+"/settings", "colours are not permitted (sensitive)")
	}
}

// A rule that holds for real changes only ends the apply.
func TestWebhookThatRefusesTheApplyIsShown(t *testing.T) {
	s := newSite(t)
	s.webhook(0, func(r *admissionv1.AdmissionRequest) string {
		if r.Name == "probe" || r.Name == "settings" && (r.DryRun == nil || !*r.DryRun) {
			return "not today"
		}
		return ""
	})
	p := s.plan(first)
	s.refused(s.try(p), fairlead.ReasonAdmissionRefused, "web.yaml:12: ", "not today")
	if !s.mutated || !s.exists(configMaps, s.ns, "old") {
		t.Error("the objects before it do not exist")
	}
	s.known()
}

// A webhook may quote what it refuses.
func TestWebhookThatQuotesASecretIsNotShown(t *testing.T) {
	s := newSite(t)
	s.webhook(0, func(r *admissionv1.AdmissionRequest) string {
		if r.Name == "probe" || r.Name == "s" {
			return "not permitted: " + string(r.Object.Raw)
		}
		return ""
	})
	_, err := s.Plan(t.Context(), s.objects("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hidden-value}\n"), false)
	s.refused(err, fairlead.ReasonAdmissionRefused, "web.yaml:1: ", "Secret/"+s.ns+"/s")
	if strings.Contains(err.Error(), "aGlkZGVu") || strings.Contains(err.Error(), "hidden-value") {
		t.Errorf("the message shows the Secret: %v", err)
	}
}

func TestQuotaThatIsExceededIsShown(t *testing.T) {
	s := newSite(t)
	hard := corev1.ResourceList{"count/configmaps": resource.MustParse("2"), "count/services": resource.MustParse("0")}
	q, err := s.admin.CoreV1().ResourceQuotas(s.ns).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The cluster of the tests has no controller that counts.
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{"count/configmaps": resource.MustParse("1"), "count/services": resource.MustParse("0")}}
	if _, err := s.admin.CoreV1().ResourceQuotas(s.ns).UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The API server reads quotas with a delay.
	s.await("the quota holds", func() bool {
		_, err := s.Plan(t.Context(), s.objects(service), false)
		return plugin.ReasonOf(err) == fairlead.ReasonAdmissionRefused && strings.Contains(err.Error(), "exceeded quota")
	})
	// Each ConfigMap fits the quota alone, so only the apply finds that both do not.
	s.refused(s.try(s.plan(first)), fairlead.ReasonAdmissionRefused, "web.yaml:12: ", "exceeded quota")
	s.known()
}

// identity returns a configuration of a service account with these rules in the site's namespace.
func (s *site) identity(rules ...rbacv1.PolicyRule) *rest.Config {
	s.Helper()
	ctx := s.Context()
	if _, err := s.admin.CoreV1().ServiceAccounts(s.ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.admin.RbacV1().Roles(s.ns).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.admin.RbacV1().RoleBindings(s.ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "job"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "job"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "job", Namespace: s.ns}}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	token, err := s.admin.CoreV1().ServiceAccounts(s.ns).CreateToken(ctx, "job", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(s.Config)
	cfg.BearerToken = token.Status.Token
	return cfg
}

var readOnly = []rbacv1.PolicyRule{
	{APIGroups: []string{"", "apps"}, Resources: []string{"configmaps", "secrets", "deployments", "services"}, Verbs: []string{"get", "list"}},
}

const service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80, name: http}, {port: 81, name: more}]}\n"

// The plan of a role that may only read equals the plan of the API server, for what the runner can know.
func TestReadOnlyPlanIsComparedByTheRunner(t *testing.T) {
	s := newSite(t)
	reader := s.identity(readOnly...)
	admin := s.Config
	s.Config = reader
	p := s.plan(first + service)
	s.wantRows(p, "create ConfigMap/NS/old unverified", "create ConfigMap/NS/settings unverified", "create Service/NS/web unverified", "create Deployment/NS/web unverified")
	if p.Comparison != manifest.ByRunner || !strings.Contains(s.log.String(), "dry runs of deployments.apps") {
		t.Errorf("the comparison is %s, the log %s", p.Comparison, s.log)
	}
	s.Config = admin
	s.deploy(first + service)
	for name, tc := range map[string]struct {
		replace []string
		changed string // pointers; "": no change
	}{
		"nothing":                           {nil, ""},
		"a value":                           {[]string{"blue", "red"}, "/data/colour"},
		"a value is removed":                {[]string{`colour: blue, `, ``}, "/data/colour"},
		"an item's value":                   {[]string{"web:1", "web:2"}, "/spec/template/spec/containers/0/image"},
		"an item is added":                  {[]string{"[{containerPort: 80}]", "[{containerPort: 80}, {containerPort: 81}]"}, "/spec/template/spec/containers/0/ports"},
		"an item is removed":                {[]string{", {port: 81, name: more}", ""}, "/spec/ports"},
		"all items are removed":             {[]string{", ports: [{containerPort: 80}]", ""}, "/spec/template/spec/containers/0/ports"},
		"a field with a default is removed": {[]string{"  replicas: 0\n", ""}, "/spec/replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			text := strings.NewReplacer(tc.replace...).Replace(first + service)
			if len(tc.replace) == 0 {
				text = first + service
			}
			byServer := s.plan(text)
			s.Config = reader
			byRunner := s.plan(text)
			if tc.changed == "" {
				if !byRunner.NoOp || !byServer.NoOp {
					t.Errorf("the plans have %s and %s", rows(byServer), rows(byRunner))
				}
				return
			}
			if len(byRunner.Changes) != 1 || len(byServer.Changes) != 1 || byRunner.Changes[0].Address != byServer.Changes[0].Address || !byRunner.Changes[0].Unverified {
				t.Fatalf("the plans have %s and %s", rows(byServer), rows(byRunner))
			}
			for by, c := range map[string][]string{"server": byServer.Changes[0].Changed, "runner": byRunner.Changes[0].Changed} {
				// A protocol or an app's default that the server adds to a new item is not known to the runner.
				if got := strings.Join(c, " "); !strings.HasPrefix(got+"/", tc.changed+"/") {
					t.Errorf("the %s finds changes of %s, want %s", by, got, tc.changed)
				}
			}
		})
	}
	// What such a role planned can be applied by the role of the apply.
	s.Config = reader
	p = s.plan(strings.Replace(first, "blue", "red", 1) + service)
	s.refused(s.try(p), fairlead.ReasonClusterForbidden, `"update"`, "secrets")
	s.Config = admin
	s.apply(p)
	if s.configMap("settings").Data["colour"] != "red" {
		t.Error("the plan was not applied")
	}
}

func TestPlanWithoutPermissionToReadNamesIt(t *testing.T) {
	s := newSite(t)
	s.Config = s.identity(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	_, err := s.Plan(t.Context(), s.objects(first), false)
	s.refused(err, fairlead.ReasonClusterForbidden, "web.yaml:", `"get"`)
}

// A destroy keeps what holds data of others.
func TestDestroyKeepsWhatHoldsOthersData(t *testing.T) {
	s := newSite(t)
	s.dropDefinitions()
	ns := s.ns + "-two"
	text := s.crd("size") + s.widget("w", "size") + claim + "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: empty}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n" +
		"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: " + ns + "}\n"
	s.Limits.Ready = 3 * time.Second // The claim "empty" is never bound.
	s.dynamic.Resource(definitions).Create(t.Context(), s.objects(s.crd("size"))[0].Unstructured, metav1.CreateOptions{})
	s.awaitKind(s.widgets())
	bound := make(chan struct{})
	go func() {
		defer close(bound)
		for t.Context().Err() == nil {
			c, err := s.admin.CoreV1().PersistentVolumeClaims(s.ns).Get(t.Context(), "data", metav1.GetOptions{})
			if err == nil && c.Status.Phase == corev1.ClaimBound {
				return
			}
			if err == nil {
				c.Status.Phase = corev1.ClaimBound
				s.admin.CoreV1().PersistentVolumeClaims(s.ns).UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
			}
		}
	}()
	s.refused(s.try(s.plan(text)), fairlead.ReasonNotReady, "empty")
	<-bound
	other := s.objects(s.widget("others", "size"))[0].Unstructured
	if _, err := s.dynamic.Resource(s.widgets()).Namespace(s.ns).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "others"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.admin.CoreV1().Namespaces().Delete(s.context(), ns, metav1.DeleteOptions{}) })

	// The cluster of the tests has no controller that permits the deletion of an unused claim.
	if _, err := s.admin.CoreV1().PersistentVolumeClaims(s.ns).Patch(t.Context(), "empty", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p := s.planDestroy()
	want := map[string]string{"CustomResourceDefinition/widgets.NS.example.com": "Widget." + s.ns + ".example.com/" + s.ns + "/others", "Namespace/NS-two": "Secret/" + ns + "/others", "PersistentVolumeClaim/NS/data": "data"}
	for address, reason := range want {
		if c := s.row(p, address); c.Action != "forget" || !strings.Contains(c.Reason, reason) {
			t.Errorf("%s: %s because %q", address, c.Action, c.Reason)
		}
	}
	for _, address := range []string{"Widget.NS.example.com/NS/w", "PersistentVolumeClaim/NS/empty", "ConfigMap/NS-two/c"} {
		if c := s.row(p, address); c.Action != "delete" {
			t.Errorf("%s: %s because %q", address, c.Action, c.Reason)
		}
	}
	s.apply(p)
	for _, kept := range []struct {
		r        schema.GroupVersionResource
		ns, name string
	}{{definitions, "", "widgets." + s.ns + ".example.com"}, {schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", ns},
		{schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, s.ns, "data"}} {
		u, err := s.dynamic.Resource(kept.r).Namespace(kept.ns).Get(t.Context(), kept.name, metav1.GetOptions{})
		if err != nil || u.GetDeletionTimestamp() != nil || u.GetAnnotations()["fairlead.dev/owner"] != "" {
			t.Errorf("%s: %v, %v", kept.name, u, err)
		}
	}
	if s.exists(s.widgets(), s.ns, "w") || !s.exists(s.widgets(), s.ns, "others") || s.exists(configMaps, ns, "c") {
		t.Error("the wrong objects were deleted")
	}
	// The next component can take over what stays.
	o := s.other("api")
	if c := o.row(o.plan(claim), "PersistentVolumeClaim/NS/data"); c.Action != "import" {
		t.Errorf("the claim is %s", c.Action)
	}
}

// An operator has made further objects of the kind from the component's object. They go with it, and so does the kind.
func TestChildrenOfOwnObjectsDoNotKeepTheKind(t *testing.T) {
	s := newSite(t)
	s.dropDefinitions()
	s.deploy(s.crd("size") + s.widget("w", "size"))
	widgets := s.dynamic.Resource(s.widgets()).Namespace(s.ns)
	parent, err := widgets.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child := s.objects(s.widget("child", "size"))[0].Unstructured
	child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(parent, parent.GroupVersionKind())})
	if _, err := widgets.Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := s.planDestroy()
	if c := s.row(p, "CustomResourceDefinition/widgets.NS.example.com"); c.Action != "delete" {
		t.Fatalf("the definition: %s because %s", c.Action, c.Reason)
	}
	s.apply(p)
	if s.exists(definitions, "", "widgets."+s.ns+".example.com") {
		t.Error("the definition stays")
	}
}

// Data that came after the plan is not deleted by it.
func TestDestroyStopsAtDataThatCameAfterThePlan(t *testing.T) {
	pending := strings.Replace(claim, "volumeName: pv, ", "", 1)
	for name, tc := range map[string]struct {
		text string
		data func(*site)
		kept string
	}{
		"a claim was bound": {pending, func(s *site) {
			c, err := s.admin.CoreV1().PersistentVolumeClaims(s.ns).Get(s.Context(), "data", metav1.GetOptions{})
			if err == nil {
				c.Status.Phase = corev1.ClaimBound
				_, err = s.admin.CoreV1().PersistentVolumeClaims(s.ns).UpdateStatus(s.Context(), c, metav1.UpdateOptions{})
			}
			if err != nil {
				s.Fatal(err)
			}
		}, "PersistentVolumeClaim/NS/data"},
		"others use the kind": {"crd", func(s *site) {
			if _, err := s.dynamic.Resource(s.widgets()).Namespace(s.ns).Create(s.Context(), s.objects(s.widget("others", "size"))[0].Unstructured, metav1.CreateOptions{}); err != nil {
				s.Fatal(err)
			}
		}, "CustomResourceDefinition/widgets.NS.example.com"},
		"others use the namespace": {"namespace", func(s *site) {
			if _, err := s.admin.CoreV1().Secrets(s.ns+"-two").Create(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "others"}}, metav1.CreateOptions{}); err != nil {
				s.Fatal(err)
			}
		}, "Namespace/NS-two"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.dropDefinitions()
			s.Limits.Ready = 2 * time.Second
			text := map[string]string{"crd": s.crd("size"), "namespace": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + s.ns + "-two}\n"}[tc.text]
			if text == "" {
				text = tc.text
			}
			if err := s.try(s.plan(text)); err != nil && plugin.ReasonOf(err) != fairlead.ReasonNotReady { // a claim that waits
				t.Fatal(err)
			}
			t.Cleanup(func() { s.admin.CoreV1().Namespaces().Delete(s.context(), s.ns+"-two", metav1.DeleteOptions{}) })
			if tc.text == "crd" {
				s.awaitKind(s.widgets())
			}
			p := s.planDestroy()
			if c := s.row(p, tc.kept); c.Action != "delete" {
				t.Fatalf("the plan is %s because %s", c.Action, c.Reason)
			}
			tc.data(s)
			s.refused(s.try(p), fairlead.ReasonPlanStale, strings.ReplaceAll(tc.kept, "NS", s.ns))
			if c := s.row(s.planDestroy(), tc.kept); c.Action != "forget" {
				t.Errorf("the next plan is %s", c.Action)
			}
		})
	}
}

// A custom resource has a finalizer, which the workload of its operator removes. So the workload must exist until then.
func TestCustomResourceIsGoneBeforeItsWorkload(t *testing.T) {
	s := newSite(t)
	s.dropDefinitions()
	text := s.crd("size") + strings.Replace(s.widget("w", "size"), "{name: w}", "{name: w, finalizers: [example.com/clean]}", 1) + first
	s.deploy(text)
	p := s.planDestroy()
	// The destroy looks whether the resource is gone several times after its deletion.
	looks, waits := 0, make(chan struct{})
	w := &writes{}
	w.at = func(n int, req *http.Request) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n == 0 && strings.HasSuffix(req.URL.Path, "/widgets/w") && len(w.log) > 0 && strings.HasPrefix(w.log[len(w.log)-1], "DELETE") {
			if looks++; looks == 3 {
				close(waits)
			}
		}
		return nil
	}
	s.Config = s.through(w)
	ended := make(chan error, 1)
	go func() { ended <- s.try(p) }()
	select {
	case <-waits:
	case err := <-ended:
		t.Fatalf("the destroy ended with %v", err)
	}
	w.mu.Lock()
	if got := w.log; len(got) != 2 || !strings.HasSuffix(got[1], "/widgets/w") { // after the inventory
		t.Errorf("the destroy has sent %v", got)
	}
	w.mu.Unlock()
	if _, err := s.dynamic.Resource(s.widgets()).Namespace(s.ns).Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if s.exists(definitions, "", "widgets."+s.ns+".example.com") || len(s.ours()) > 0 {
		t.Error("the destroy left objects")
	}
}

func TestDeletionThatDoesNotEndNamesTheFinalizer(t *testing.T) {
	s := newSite(t)
	s.deploy(strings.Replace(first, "{name: old}", "{name: old, finalizers: [example.com/never]}", 1))
	t.Cleanup(func() {
		s.admin.CoreV1().ConfigMaps(s.ns).Patch(s.context(), "old", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	s.Limits.Delete = 500 * time.Millisecond
	without := first[:strings.LastIndex(first, "---")]
	s.refused(s.try(s.plan(without)), fairlead.ReasonDeletionStuck, "ConfigMap/"+s.ns+"/old", "example.com/never")
	// The next plan goes on, and a plan that wants the object waits for its end.
	s.wantRows(s.plan(without), "delete ConfigMap/NS/old")
	_, err := s.Plan(t.Context(), s.objects(first), false)
	s.refused(err, fairlead.ReasonDeletionStuck, "web.yaml:", "example.com/never")
}

// A rollout that cannot succeed fails before the end of the wait.
func TestRolloutThatFailedEndsTheApply(t *testing.T) {
	s := newSite(t)
	s.Limits.Ready = time.Hour
	p := s.plan(strings.Replace(first, "replicas: 0", "replicas: 1\n  progressDeadlineSeconds: 1", 1)) // The cluster has no node.
	s.refused(s.try(p), fairlead.ReasonNotReady, "Deployment/"+s.ns+"/web", "Progress")
	s.known()
}

func TestCanceledApplyEndsAtOnce(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := s.plan(strings.Replace(first, "replicas: 0", "replicas: 1", 1))
	s.Limits.Ready = time.Hour
	s.Log = writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), "Waiting for Deployment") {
			cancel()
		}
		return len(b), nil
	})
	s.Attempt = manifest.Attempt{Job: "job_canceled", Epoch: 1}
	err := s.Apply(ctx, p.Saved, func() {})
	if !errors.Is(err, context.Canceled) || plugin.ReasonOf(err) != fairlead.ReasonInternal {
		t.Errorf("the apply ended with %v", err)
	}
}

func TestApplyThatIsCanceledInARequestIsNoOutage(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := s.plan(first)
	s.Config = s.through(&writes{at: func(n int, _ *http.Request) error {
		if n == 2 {
			cancel()
			return errDead
		}
		return nil
	}})
	s.Attempt = manifest.Attempt{Job: "job_canceled", Epoch: 1}
	if err := s.Apply(ctx, p.Saved, func() {}); !errors.Is(err, context.Canceled) || plugin.ReasonOf(err) != fairlead.ReasonInternal {
		t.Errorf("the apply ended with %v", err)
	}
}

// The server shows a new kind some time after it has accepted the definition. This transport gives the answers of before for a
// while.
type slowDiscovery struct {
	http.RoundTripper
	mu      sync.Mutex
	answers map[string][]byte
	types   map[string]string
	slow    int // answers that are still given again
}

func (d *slowDiscovery) RoundTrip(req *http.Request) (*http.Response, error) {
	discovery := req.URL.Path == "/apis" || req.URL.Path == "/api"
	d.mu.Lock()
	old, known := d.answers[req.URL.Path]
	if discovery && known && d.slow > 0 {
		d.slow--
		defer d.mu.Unlock()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {d.types[req.URL.Path]}}, Body: io.NopCloser(strings.NewReader(string(old))), Request: req}, nil
	}
	d.mu.Unlock()
	resp, err := d.RoundTripper.RoundTrip(req)
	if err != nil || !discovery {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !known {
		d.answers[req.URL.Path], d.types[req.URL.Path] = body, resp.Header.Get("Content-Type")
	}
	return resp, err
}

func TestKindThatIsServedLateIsAwaited(t *testing.T) {
	s := newSite(t)
	s.dropDefinitions()
	d := &slowDiscovery{answers: map[string][]byte{}, types: map[string]string{}}
	cfg := rest.CopyConfig(s.Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { d.RoundTripper = rt; return d })
	s.Config = cfg
	p := s.plan(s.crd("size") + s.widget("w", "size"))
	d.slow = 8
	s.apply(p)
	if d.slow != 0 || !s.exists(s.widgets(), s.ns, "w") {
		t.Errorf("%d answers are left", d.slow)
	}
}

// A program changes the labels of the inventory's Secret while an apply works.
func TestRelabeledInventoryDoesNotStopAnApply(t *testing.T) {
	s := newSite(t)
	p := s.plan(first)
	direct := s.Config
	s.Config = s.through(&writes{at: func(n int, _ *http.Request) error {
		if n == 3 {
			s.labelInventory()
		}
		return nil
	}})
	s.apply(p)
	s.Config = direct
	if p := s.plan(first); !p.NoOp {
		t.Errorf("the next plan has %s", rows(p))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWarningsOfTheClusterAreInTheLogOnce(t *testing.T) {
	s := newSite(t)
	s.plan("apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: b}\n")
	if n := strings.Count(s.log.String(), "The cluster warns: "); n != 1 {
		t.Errorf("%d warnings in %s", n, s.log)
	}
}

// A kind whose API server is down is not an unknown kind.
func TestKindOfASilentGroupIsUnreachable(t *testing.T) {
	s := newSite(t)
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	group := s.ns + ".example.com"
	api := decode(t, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.`+group+`"},"spec":{"group":"`+group+`","version":"v1",
		"groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"name":"absent","namespace":"`+s.ns+`"}}}`)
	if _, err := s.dynamic.Resource(services).Create(t.Context(), api, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.dynamic.Resource(services).Delete(s.context(), "v1."+group, metav1.DeleteOptions{})
	})
	s.Limits.Retry = 300 * time.Millisecond
	s.await("the plan fails because of the silent group", func() bool { // The API server reads the registration with a delay.
		_, err := s.Plan(t.Context(), s.objects(s.widget("w", "size")), false)
		return plugin.ReasonOf(err) == fairlead.ReasonClusterUnreachable
	})
}
