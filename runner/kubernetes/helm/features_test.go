package helm_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
)

// record returns the release as Helm reads it.
func (w *world) record() *releaseRecord {
	w.Helper()
	rel, err := action.NewGet(w.actions()).Run("web")
	if err != nil {
		w.Fatal(err)
	}
	var r releaseRecord
	if err := json.Unmarshal([]byte(encode(w.T, rel)), &r); err != nil {
		w.Fatal(err)
	}
	return &r
}

type releaseRecord struct {
	Manifest string
	Hooks    []struct{ Manifest string }
	Config   map[string]any
	Info     struct{ Status, Description, Notes string }
	Chart    struct{ Templates, Files []any }
}

// actions returns Helm's own actions, as its command line has them.
func (w *world) actions() *action.Configuration {
	w.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	file := cluster.Kubeconfig(w.T)
	flags.KubeConfig, flags.Namespace = &file, &w.ns
	cfg := action.NewConfiguration()
	if err := cfg.Init(flags, w.ns, "secret"); err != nil {
		w.Fatal(err)
	}
	return cfg
}

// A chart with random values renders differently each time. The cluster gets what was approved, byte for byte.
func TestApprovedBytesAreApplied(t *testing.T) {
	w := newWorld(t)
	content := files{
		"values.yaml":          "extra: 'at {{ .Release.Name }}'\n",
		"templates/a.yaml":     configMap("a", "random", "{{ randAlphaNum 16 | quote }}", "extra", "{{ tpl .Values.extra . | quote }}", "yes", "\"on\" # a comment stays"),
		"templates/b.yaml":     "---\n" + configMap("b1", "r", "{{ uuidv4 }}") + "---   \n" + configMap("b2", "text", "\"<no value>\" # {{ \"}}\" }} \\ ` é") + "---\n",
		"templates/hook.yaml":  hook("h", "pre-install", "random", "{{ randAlphaNum 16 }}"),
		"templates/ca.yaml":    "{{- $ca := genCA \"web\" 365 }}\napiVersion: v1\nkind: Secret\nmetadata: {name: ca}\ndata: {tls.crt: {{ $ca.Cert | b64enc }}}\n",
		"templates/_help.tpl":  "{{- define \"x\" }}{{ end }}",
		"templates/empty.yaml": "{{- if false }}\nx: 1\n{{- end }}\n",
		"templates/NOTES.txt":  "Random: {{ randAlphaNum 16 }}\n",
	}
	c := chart(t, "1.0.0", content)
	p, other := w.plan(c, nil), w.plan(c, nil)
	var plan, second struct {
		Rendering struct{ Files map[string]string }
	}
	for _, x := range []struct {
		text []byte
		to   any
	}{{p.Saved, &plan}, {other.Saved, &second}} {
		if err := json.Unmarshal(x.text, x.to); err != nil {
			t.Fatal(err)
		}
	}
	w.apply(p)
	rec := w.record()
	for name, text := range plan.Rendering.Files {
		if text == second.Rendering.Files[name] && name != "web/templates/b.yaml" {
			t.Errorf("%s is not random", name)
		}
	}
	f := plan.Rendering.Files
	want := "---\n# Source: web/templates/ca.yaml\n" + strings.TrimLeft(f["web/templates/ca.yaml"], "\n") + "\n---\n# Source: web/templates/a.yaml\n" + f["web/templates/a.yaml"] + "\n"
	if !strings.HasPrefix(rec.Manifest, want) || rec.Hooks[0].Manifest != f["web/templates/hook.yaml"] || rec.Info.Notes != f["web/templates/NOTES.txt"] {
		t.Errorf("the record has\n%s\nand not\n%s", rec.Manifest, want)
	}
	if len(rec.Chart.Templates)+len(rec.Chart.Files) > 0 {
		t.Error("the record repeats the manifest as templates")
	}
	if got := w.configMap("a")["random"]; !strings.Contains(f["web/templates/a.yaml"], `"`+got+`"`) || got == "" || w.configMap("a")["extra"] != "at web" {
		t.Errorf("%v", w.configMap("a"))
	}
	w.settled(c, nil)
	// An unchanged chart with drift repeats the deployed values, not new random ones.
	random := w.configMap("a")["random"]
	w.edit("b1", "r", "by hand")
	w.apply(w.plan(c, nil))
	if w.configMap("a")["random"] != random || w.history() != "1 superseded, 2 deployed" {
		t.Errorf("%v, %s", w.configMap("a"), w.history())
	}
}

// What a person's Helm would render is what the plan renders.
func TestPlanRendersAsHelmDoes(t *testing.T) {
	for name, content := range publicLike() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			dir := folder(t, "1.0.0", content)
			c, err := helm.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := loader.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			i := action.NewInstall(w.actions())
			i.ReleaseName, i.Namespace, i.DryRunStrategy = "web", w.ns, action.DryRunServer
			want, err := i.Run(loaded, map[string]any{})
			if err != nil {
				t.Fatal(err)
			}
			var stock releaseRecord
			if err := json.Unmarshal([]byte(encode(t, want)), &stock); err != nil {
				t.Fatal(err)
			}
			w.deploy(c, nil)
			rec := w.record()
			if rec.Manifest != stock.Manifest || fmt.Sprint(rec.Hooks) != fmt.Sprint(stock.Hooks) {
				t.Errorf("the release is\n%s\nand with Helm\n%s", rec.Manifest, stock.Manifest)
			}
			w.settled(c, nil)
			w.apply(w.planDestroy())
			if got := w.history(); got != "" {
				t.Error(got)
			}
		})
	}
}

// publicLike returns charts that use the features of well-known ones, and nothing random.
func publicLike() map[string]files {
	return map[string]files{
		"a database: StatefulSet, headless Service, chart of helpers, disabled subchart": {
			"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: '>=1.20.0-0'\ndependencies:\n- {name: common, version: 2.x.x, repository: 'oci://x.example'}\n" +
				"- {name: metrics, version: 1.0.0, repository: 'https://x.example', condition: metrics.enabled}\n- {name: cache, alias: sessions, version: 1.0.0, repository: 'https://x.example'}\n",
			"values.yaml":                          "replicas: 0\nmetrics: {enabled: false}\nsessions: {size: 3}\nglobal: {team: blue}\ncommonLabels: {a: b}\n",
			"charts/common/Chart.yaml":             "apiVersion: v2\nname: common\nversion: 2.1.0\ntype: library\n",
			"charts/common/templates/_labels.tpl":  "{{- define \"common.labels\" -}}\napp: {{ .Chart.Name }}\nteam: {{ .Values.global.team }}\n{{- with .Values.commonLabels }}\n{{ toYaml . }}\n{{- end }}\n{{- end }}",
			"charts/metrics/Chart.yaml":            "apiVersion: v2\nname: metrics\nversion: 1.0.0\n",
			"charts/metrics/templates/bad.yaml":    "{{ fail \"the subchart is disabled\" }}",
			"charts/cache/Chart.yaml":              "apiVersion: v2\nname: cache\nversion: 1.0.0\n",
			"charts/cache/values.yaml":             "size: 1\n",
			"charts/cache/templates/cache.yaml":    configMap("{{ .Release.Name }}-{{ .Chart.Name }}", "size", "{{ .Values.size | quote }}", "team", "{{ .Values.global.team }}"),
			"templates/service.yaml":               "apiVersion: v1\nkind: Service\nmetadata:\n  name: db\n  labels: {{- include \"common.labels\" . | nindent 4 }}\nspec:\n  clusterIP: None\n  ports: [{name: db, port: 5432}]\n  selector: {app: web}\n",
			"templates/statefulset.yaml":           "apiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: db\n  annotations:\n    checksum/config: {{ include (print $.Template.BasePath \"/config.yaml\") . | sha256sum }}\nspec:\n  replicas: {{ .Values.replicas }}\n  serviceName: db\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: db, image: 'x.example/db'}]}\n  volumeClaimTemplates:\n  - metadata: {name: data}\n    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
			"templates/config.yaml":                configMap("config", "files", "{{ (.Files.Glob \"conf/*\").AsConfig | quote }}"),
			"conf/db.conf":                         "max = 10\n",
			"templates/tests/test-connection.yaml": hook("test", "test"),
		},
		"an operator: definitions, webhook, roles, jobs as hooks with weights": {
			"values.yaml":         "names: [one, two]\n",
			"templates/rbac.yaml": "{{- range .Values.names }}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: {{ . }}}\nrules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: {{ . }}}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ . }}}\nsubjects: [{kind: ServiceAccount, name: {{ . }}}]\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: {{ . }}}\n{{- end }}\n",
			"templates/hooks.yaml": strings.Replace(hook("second", "pre-install,pre-upgrade"), "helm.sh/hook:", "helm.sh/hook-weight: \"5\"\n    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded\n    helm.sh/hook:", 1) +
				"---\n" + strings.Replace(hook("first", "pre-install,pre-upgrade"), "helm.sh/hook:", "helm.sh/hook-weight: \"-5\"\n    helm.sh/hook:", 1),
			"templates/list.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: l1}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: l2}\n",
			"templates/NOTES.txt": "Done.\n",
		},
		"a web application: Deployment, Ingress, HorizontalPodAutoscaler, capabilities": {
			"values.yaml":           "ingress:\n  enabled: true\n  hosts: [a.example, b.example]\n",
			"templates/web.yaml":    strings.Replace(deployment, "  replicas: 0\n", "  replicas: 0\n  paused: true\n", 1),
			"templates/hpa.yaml":    "{{- if .Capabilities.APIVersions.Has \"autoscaling/v2\" }}\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec:\n  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n  maxReplicas: 3\n{{- end }}\n",
			"templates/ing.yaml":    "{{- if .Values.ingress.enabled }}\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\nspec:\n  rules:\n  {{- range .Values.ingress.hosts }}\n  - host: {{ . | quote }}\n    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}\n  {{- end }}\n{{- end }}\n",
			"templates/pdb.yaml":    "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec:\n  minAvailable: 0\n  selector: {matchLabels: {app: web}}\n",
			"templates/secret.yaml": "{{- $old := lookup \"v1\" \"Secret\" .Release.Namespace \"web-key\" }}\napiVersion: v1\nkind: Secret\nmetadata: {name: web-key}\ndata:\n  key: {{ if $old }}{{ $old.data.key }}{{ else }}{{ \"first\" | b64enc }}{{ end }}\n",
		},
	}
}

func TestDefinitionsAreCreatedAndNeverChanged(t *testing.T) {
	w := newWorld(t)
	w.owners()
	group := w.ns + ".example.com"
	content := files{"crds/widgets.yaml": definition(group), "templates/w.yaml": widget(group, "w", "1")}
	c := chart(t, "1.0.0", content)
	p := w.plan(c, nil)
	w.wantRows(p, "create CustomResourceDefinition/widgets.NS.example.com (definition from web/crds/widgets.yaml)", "create Widget/NS/w unverified")
	w.apply(p)
	w.settled(c, nil)

	content["crds/widgets.yaml"] = strings.Replace(definition(group), "metadata: {", "metadata: {labels: {new: label}, ", 1)
	content["templates/w.yaml"] = widget(group, "w", "2")
	c = chart(t, "2.0.0", content)
	p = w.plan(c, nil)
	w.wantRows(p, "update Widget/NS/w /spec/size")
	w.apply(p)
	crd, err := w.dynamic.Resource(definitions).Get(t.Context(), "widgets."+group, metav1.GetOptions{})
	if err != nil || len(crd.GetLabels()) > 0 {
		t.Errorf("%v, labels %v", err, crd.GetLabels())
	}

	p = w.planDestroy()
	row := w.row(p, "CustomResourceDefinition/widgets.NS.example.com")
	if row.Action != changeset.Forget || row.Reason == "" {
		t.Errorf("%+v", row)
	}
	w.apply(p)
	if _, err := w.dynamic.Resource(definitions).Get(t.Context(), "widgets."+group, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	// The definition exists now, so the next install does not create it.
	w.wantRows(w.plan(c, nil), "create Widget/NS/w")
}

func TestKeptObjectsAreForgotten(t *testing.T) {
	w := newWorld(t)
	keep := strings.Replace(configMap("kept", "k", "v"), "metadata:\n", "metadata:\n  annotations: {helm.sh/resource-policy: keep}\n", 1)
	also := strings.Replace(keep, "kept", "also", 1)
	w.deploy(chart(t, "1.0.0", files{"templates/k.yaml": keep, "templates/l.yaml": also, "templates/a.yaml": configMap("a")}), nil)
	p := w.plan(chart(t, "2.0.0", files{"templates/l.yaml": also, "templates/a.yaml": configMap("a")}), nil)
	w.wantRows(p, "forget ConfigMap/NS/kept (its resource policy keeps it)")
	w.apply(p)
	p = w.planDestroy()
	w.wantRows(p, "delete ConfigMap/NS/a", "forget ConfigMap/NS/also (its resource policy keeps it)", "delete release NS/web (the records of all revisions)")
	w.apply(p)
	if got := strings.Join(w.configMaps(), " "); got != "also kept" {
		t.Error(got)
	}
}

// A template can read a Secret of the cluster and write it into an object that is no Secret.
func TestSecretsThatTemplatesReadAreMasked(t *testing.T) {
	w := newWorld(t)
	w.secret = "s3cret-of-the-job"
	if _, err := w.client.CoreV1().Secrets(w.ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
		StringData: map[string]string{"password": "customers-password"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := chart(t, "1.0.0", files{
		"templates/a.yaml": configMap("a", "stolen", "{{ (lookup \"v1\" \"Secret\" .Release.Namespace \"theirs\").data.password | b64dec | quote }}",
			"listed", "{{ (index (lookup \"v1\" \"Secret\" .Release.Namespace \"\").items 0).data.password | quote }}", "own", "{{ .Values.password | quote }}"),
		"templates/s.yaml":    "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {plain: in-a-secret, own: {{ .Values.password | quote }}}\n",
		"templates/NOTES.txt": "{{ .Values.password }}\n",
	})
	values := map[string]any{"password": w.secret}
	p := w.plan(c, values)
	text := encode(t, p.Changes)
	for _, secret := range []string{"customers-password", "Y3VzdG9tZXJzLXBhc3N3b3Jk", "in-a-secret", w.secret} {
		if strings.Contains(text, secret) {
			t.Errorf("the change set has %s: %s", secret, text)
		}
	}
	w.apply(p)
	if got := w.configMap("a"); got["stolen"] != "customers-password" || got["own"] != w.secret {
		t.Errorf("the cluster got %v", got)
	}
	text = encode(t, w.plan(c, map[string]any{"password": "another-secret-1"}).Changes) + encode(t, w.planDestroy().Changes)
	for _, secret := range []string{"in-a-secret", w.secret, "aW4tYS1zZWNyZXQ="} {
		if strings.Contains(text, secret) || strings.Contains(w.log.String(), secret) {
			t.Errorf("%s: %s\n%s", secret, text, w.log)
		}
	}
}

func TestHooksOfAFailedReleaseAreShown(t *testing.T) {
	w := newWorld(t)
	w.options.Timeout = 3 * time.Second
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a"), "templates/h.yaml": jobHook("migrate", "pre-install")})
	p := w.plan(c, nil)
	w.wantRows(p, "run hook pre-install Job/NS/migrate", "create ConfigMap/NS/a")
	_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
	if msg := w.refused(err, fairlead.ReasonHookTimeout); !strings.Contains(msg, "within 3s") || !strings.Contains(msg, "migrate") {
		t.Error(msg)
	}
	if w.history() != "1 failed" || w.configMap("a") != nil {
		t.Error(w.history())
	}
	p = w.plan(c, nil)
	w.wantRows(p, "run hook pre-install Job/NS/migrate (it failed in revision 1, and runs again)", "create ConfigMap/NS/a")
	w.options.Timeout = time.Minute
	w.completeJobs("migrate")
	w.apply(w.plan(c, nil))
	if w.history() != "1 failed, 2 deployed" || w.configMap("a") == nil {
		t.Error(w.history())
	}
	w.settled(c, nil)
}

func TestFailedHookHasAReason(t *testing.T) {
	w := newWorld(t)
	w.finishJobs(false, "migrate")
	p := w.plan(chart(t, "1.0.0", files{"templates/h.yaml": jobHook("migrate", "pre-install")}), nil)
	_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
	w.refused(err, fairlead.ReasonHookFailed)
}

// The attempt dies while a hook runs. The hook may have done anything.
func TestHookOfADeadAttemptIsUnknown(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a"), "templates/h.yaml": jobHook("migrate", "pre-install")})
	p := w.plan(c, nil)
	e := w.engine()
	var writes func() []string
	e.Config, writes = w.dying(4, true) // the record, the deletion of an earlier hook, the record with the hook, the hook
	if _, err := e.Apply(t.Context(), p.Saved, func() {}); err == nil {
		t.Fatal("the attempt survived")
	}
	if w.job("migrate") == nil || w.history() != "1 pending-install" {
		t.Fatalf("%s: %v", w.history(), writes())
	}
	p = w.plan(c, nil)
	w.wantRows(p, "recover release NS/web (revision 1 is pending-install: an operation on it did not end, and it may have run hook Job migrate; it is marked as failed)",
		"run hook pre-install Job/NS/migrate (unknown: the attempt of revision 1 died while this hook ran, so it may have run in part or as a whole; it runs again)",
		"create ConfigMap/NS/a")
	w.completeJobs("migrate")
	w.until("the hook completes", func() bool {
		return w.job("migrate").Status.Succeeded == 1 && len(w.job("migrate").Status.Conditions) > 0 && w.job("migrate").Status.CompletionTime != nil
	})
	if row := w.row(w.plan(c, nil), "hook pre-install Job/NS/migrate"); !strings.HasPrefix(row.Reason, "it completed in revision 1") {
		t.Errorf("%+v", row)
	}
	w.apply(p) // what a Job does is status
	if w.history() != "1 failed, 2 deployed" {
		t.Error(w.history())
	}
}

func TestUnreadyObjectsAreNamed(t *testing.T) {
	w := newWorld(t)
	w.options.Timeout = 2 * time.Second
	p := w.plan(chart(t, "1.0.0", files{"templates/web.yaml": strings.Replace(deployment, "replicas: 0", "replicas: 1", 1)}), nil)
	_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
	if msg := w.refused(err, fairlead.ReasonNotReady); !strings.Contains(msg, "Deployment/"+w.ns+"/web") || !strings.Contains(msg, "within 2s") {
		t.Error(msg)
	}
	if w.history() != "1 failed" {
		t.Error(w.history())
	}
}

func TestDeletionThatHangsIsNamed(t *testing.T) {
	w := newWorld(t)
	w.options.Timeout = 2 * time.Second
	held := strings.Replace(configMap("held"), "metadata:\n", "metadata:\n  finalizers: [example.com/holds]\n", 1)
	w.deploy(chart(t, "1.0.0", files{"templates/a.yaml": held}), nil)
	p := w.planDestroy()
	_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
	if msg := w.refused(err, fairlead.ReasonDeletionStuck); !strings.Contains(msg, "held") {
		t.Error(msg)
	}
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Patch(t.Context(), "held", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestReleaseAboveTheLimitIsRefused(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "big", "{{ randAlphaNum 900000 }}"), "templates/b.yaml": configMap("b", "big", "{{ randAlphaNum 900000 }}")})
	_, err := w.engine().Plan(t.Context(), c, nil, false)
	if msg := w.refused(err, fairlead.ReasonReleaseTooLarge); !strings.Contains(msg, "1048576") {
		t.Error(msg)
	}
	// The limit is on the compressed size, as Helm stores it.
	p := w.plan(chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "big", "{{ repeat 900000 \"x\" }}"), "templates/b.yaml": configMap("b", "big", "{{ repeat 900000 \"x\" }}")}), nil)
	w.apply(p)
}

func TestRefusalsOfTheClusterAppearInThePlan(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*world)
		files  files
		reason fairlead.Reason
		want   string
	}{
		"a kind that the cluster does not have":   {nil, files{"templates/x.yaml": "apiVersion: none.example.com/v1\nkind: Nothing\nmetadata: {name: x}\n"}, fairlead.ReasonKindUnknown, "none.example.com/v1 Nothing"},
		"a field that the kind does not have":     {nil, files{"templates/x.yaml": configMap("x") + "datum: 1\n"}, fairlead.ReasonObjectRefused, "datum"},
		"a value that validation refuses":         {nil, files{"templates/x.yaml": strings.Replace(deployment, "matchLabels: {app: web}", "matchLabels: {app: other}", 1)}, fairlead.ReasonObjectRefused, "selector"},
		"a quota":                                 {quota, files{"templates/x.yaml": configMap("x"), "templates/z.yaml": configMap("z")}, fairlead.ReasonAdmissionRefused, "exceeded quota"},
		"an object of another owner":              {foreign, files{"templates/x.yaml": configMap("x")}, fairlead.ReasonObjectOwned, "ConfigMap/NS/x exists"},
		"another namespace, which does not exist": {nil, files{"templates/x.yaml": strings.Replace(configMap("x"), "metadata:", "metadata:\n  namespace: no-such-namespace", 1)}, fairlead.ReasonObjectRefused, "no-such-namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.before != nil {
				tc.before(w)
			}
			_, err := w.engine().Plan(t.Context(), chart(t, "1.0.0", tc.files), nil, false)
			if msg := w.refused(err, tc.reason); !strings.Contains(strings.ReplaceAll(msg, w.ns, "NS"), tc.want) {
				t.Error(msg)
			}
		})
	}
}

func quota(w *world) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}}}
	if _, err := w.client.CoreV1().ResourceQuotas(w.ns).Create(w.Context(), q, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}} // no controller counts here
	w.until("the quota is in force", func() bool {
		current, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(w.Context(), "q", metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		current.Status = q.Status
		if _, err := w.client.CoreV1().ResourceQuotas(w.ns).UpdateStatus(w.Context(), current, metav1.UpdateOptions{}); err != nil {
			return false
		}
		_, err = w.client.CoreV1().ConfigMaps(w.ns).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}, metav1.CreateOptions{DryRun: []string{"All"}})
		return apierrors.IsForbidden(err)
	})
}

func foreign(w *world) {
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// compared is the end of a row whose change the server did not check.
const compared = " (the server permits no dry run, so the runner compared the object itself)"

// A role without the permission to change objects can plan: the change is computed on this side.
func TestPlanWithoutDryRunComputesTheChange(t *testing.T) {
	w := newWorld(t)
	one := files{"templates/a.yaml": configMap("a", "gone", "x", "k", "one"), "templates/web.yaml": strings.Replace(deployment, "x\n", "x\n", 1), "templates/old.yaml": configMap("old")}
	w.deploy(chart(t, "1.0.0", one), nil)
	w.edit("a", "by-hand", "stays")
	reader := w.reader()
	two := chart(t, "2.0.0", files{"templates/a.yaml": configMap("a", "k", "two"), "templates/web.yaml": strings.Replace(deployment, "x.example", "y.example", 1), "templates/new.yaml": configMap("new")})
	e := w.engine()
	e.Config = reader
	p, err := e.Plan(t.Context(), two, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	w.wantRows(p, "update ConfigMap/NS/a /data/gone,/data/k unverified"+compared, "create ConfigMap/NS/new unverified"+compared, "delete ConfigMap/NS/old")
	if !p.ClientDiff || !strings.Contains(w.log.String(), "The server permits no dry run of ConfigMap/"+w.ns+"/a") {
		t.Errorf("ClientDiff %v\n%s", p.ClientDiff, w.log)
	}
	// The apply with the same role fails with the reason, and changes nothing.
	e = w.engine()
	e.Config = reader
	_, err = e.Apply(t.Context(), p.Saved, func() {})
	w.refused(err, fairlead.ReasonClusterForbidden)
	if w.configMap("a")["k"] != "one" {
		t.Error(w.configMap("a"))
	}
	w.apply(p)
	w.settled(two, nil)
}

// reader returns a connection that may read the namespace, and change nothing.
func (w *world) reader() *rest.Config {
	w.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}}
	if _, err := w.client.RbacV1().Roles(w.ns).Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "reader"}}}
	if _, err := w.client.RbacV1().RoleBindings(w.ns).Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	cfg := rest.CopyConfig(w.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "reader", Groups: []string{"system:authenticated"}}
	w.until("the role is in force", func() bool {
		r := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
			"spec": map[string]any{"user": "reader", "resourceAttributes": map[string]any{"namespace": w.ns, "verb": "list", "resource": "secrets"}}}}
		got, err := w.dynamic.Resource(schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}).Create(w.Context(), r, metav1.CreateOptions{})
		if err != nil {
			w.Fatal(err)
		}
		ok, _, _ := unstructured.NestedBool(got.Object, "status", "allowed")
		return ok
	})
	return cfg
}

func TestMissingNamespaceIsCreated(t *testing.T) {
	w := newWorld(t)
	w.ns += "-new"
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", "v")})
	p := w.plan(c, nil)
	w.wantRows(p, "create Namespace/NS (the release's namespace)", "create ConfigMap/NS/a unverified")
	w.apply(p)
	if w.configMap("a")["k"] != "v" {
		t.Error(w.configMap("a"))
	}
	w.settled(c, nil)
}

// A revision that failed can have created objects that no later revision has.
func TestObjectsOfAFailedRevisionAreRemoved(t *testing.T) {
	w := newWorld(t)
	w.options.Timeout = 2 * time.Second
	one := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a")})
	w.deploy(one, nil)
	p := w.plan(chart(t, "2.0.0", files{"templates/a.yaml": configMap("a"), "templates/b.yaml": configMap("only-in-failed"), "templates/web.yaml": strings.Replace(deployment, "replicas: 0", "replicas: 1", 1)}), nil)
	_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
	w.refused(err, fairlead.ReasonNotReady)
	p = w.plan(one, nil)
	w.wantRows(p, "delete ConfigMap/NS/only-in-failed (left over from revision 2)", "delete Deployment/NS/web (left over from revision 2)")
	w.apply(p)
	if got := strings.Join(w.configMaps(), " "); got != "a" || w.history() != "1 superseded, 2 failed, 3 deployed" {
		t.Errorf("%s; %s", got, w.history())
	}
	w.settled(one, nil)
}

func TestRollbackIsShownAndHappens(t *testing.T) {
	w := newWorld(t)
	w.options.Timeout, w.options.RollbackOnFailure = 2*time.Second, true
	one := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", "one"), "templates/h.yaml": hook("undo", "pre-rollback")})
	w.wantRows(w.plan(one, nil), "create ConfigMap/NS/a", "run rollback-on-failure (if the install fails, Helm uninstalls the release)")
	w.deploy(one, nil)
	p := w.plan(chart(t, "2.0.0", files{"templates/a.yaml": configMap("a", "k", "two"), "templates/web.yaml": strings.Replace(deployment, "replicas: 0", "replicas: 1", 1)}), nil)
	w.wantRows(p, "update ConfigMap/NS/a /data/k", "create Deployment/NS/web", "run rollback-on-failure (if the upgrade fails, Helm returns to revision 1)", "run hook pre-rollback ConfigMap/NS/undo (if the upgrade fails)")
	_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
	w.refused(err, fairlead.ReasonNotReady)
	if w.configMap("a")["k"] != "one" || w.history() != "1 superseded, 2 failed, 3 deployed" {
		t.Errorf("%v, %s", w.configMap("a"), w.history())
	}
}

// A release that a person made or changed with Helm's command line is shown and taken over.
func TestReleaseOfAPersonIsTakenOver(t *testing.T) {
	w := newWorld(t)
	dir := folder(t, "1.0.0", files{"values.yaml": "k: one\n", "templates/a.yaml": configMap("a", "k", "{{ .Values.k }}")})
	loaded, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	i := action.NewInstall(w.actions())
	i.ReleaseName, i.Namespace, i.WaitStrategy = "web", w.ns, "hookOnly"
	if _, err := i.Run(loaded, map[string]any{"k": "by-a-person"}); err != nil {
		t.Fatal(err)
	}
	c, err := helm.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := w.plan(c, nil)
	w.wantRows(p, "import release NS/web (revision 1 was made by another program)", "update ConfigMap/NS/a /data/k")
	w.apply(p)
	w.settled(c, nil)

	// The labels of our revision go over to a person's revision.
	loaded, err = loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	u := action.NewUpgrade(w.actions())
	u.Namespace, u.WaitStrategy = w.ns, "hookOnly"
	if _, err := u.Run("web", loaded, map[string]any{"k": "by-a-person"}); err != nil {
		t.Fatal(err)
	}
	w.wantRows(w.plan(c, nil), "update ConfigMap/NS/a /data/k")
}

// A release that Helm 3 made is taken over: its record has the form that Helm 3 writes, and its objects the fields of client-side apply.
// A field that the new chart does not have goes, although Helm 3 wrote it.
func TestReleaseOfHelm3IsTakenOver(t *testing.T) {
	for k, changes := range map[string]string{
		"four":  `/data/gone,/data/k unverified (takes over .data.k (conflict with "helm" using v1); `,
		"three": "/data/gone unverified (", // a dry run alone would show no change
	} {
		t.Run(k, func(t *testing.T) { takeOverHelm3(t, k, changes) })
	}
}

func takeOverHelm3(t *testing.T, k, changes string) {
	w := newWorld(t)
	ctx := t.Context()
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":%q,"labels":{"app.kubernetes.io/managed-by":"Helm"},
		"annotations":{"meta.helm.sh/release-name":"web","meta.helm.sh/release-namespace":%q}},"data":{"k":"three","gone":"x"}}`, w.ns, w.ns)
	var made corev1.ConfigMap
	if err := json.Unmarshal([]byte(object), &made); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Create(ctx, &made, metav1.CreateOptions{FieldManager: "helm"}); err != nil {
		t.Fatal(err)
	}
	// Helm 3 has no apply_method, and stores the templates of the chart in base64.
	record := fmt.Sprintf(`{"name":"web","info":{"first_deployed":"2024-03-01T10:00:00.123456789+01:00","last_deployed":"2024-03-01T10:00:00.123456789+01:00","deleted":"","description":"Install complete","status":"deployed"},
		"chart":{"metadata":{"name":"web","version":"0.9.0","apiVersion":"v2"},"lock":null,"templates":[{"name":"templates/a.yaml","data":%q}],"values":{},"schema":null,"files":null},
		"manifest":"---\n# Source: web/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: three\n  gone: x\n","version":1,"namespace":%q}`,
		base64.StdEncoding.EncodeToString([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: three, gone: x}\n")), w.ns)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(record)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.web.v1", Labels: map[string]string{"name": "web", "owner": "helm", "status": "deployed", "version": "1", "modifiedAt": "1709283600"}},
		Type: "helm.sh/release.v1", Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))}}
	if _, err := w.client.CoreV1().Secrets(w.ns).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	four := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", k)})
	p := w.plan(four, nil)
	w.wantRows(p, "import release NS/web (revision 1 was made by another program)",
		"update ConfigMap/NS/a "+changes+"the release was made by client-side apply, so the runner computed which fields go)")
	w.apply(p)
	if got := w.configMap("a"); got["k"] != k || len(got) != 1 {
		t.Errorf("the object has %v", got)
	}
	w.settled(four, nil)
	w.apply(w.planDestroy())
	if w.configMap("a") != nil {
		t.Error("the destroy left the object")
	}
}

func TestValuesAreCheckedAgainstTheSchema(t *testing.T) {
	w := newWorld(t)
	schema := `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"n":{"type":"integer"},"ref":{"$ref":"#/definitions/d"}},"definitions":{"d":{"type":"string"}}}`
	c := chart(t, "1.0.0", files{"values.schema.json": schema, "values.yaml": "n: 1\n", "templates/a.yaml": configMap("a", "n", "{{ .Values.n | quote }}")})
	w.plan(c, map[string]any{"n": 2})
	for _, values := range []map[string]any{{"n": "many"}, {"ref": 7}} {
		_, err := w.engine().Plan(t.Context(), c, values, false)
		w.refused(err, fairlead.ReasonValuesInvalid)
	}
	// Helm itself would read any file and any address that a schema names.
	for _, ref := range []string{"file:///etc/hostname", "http://127.0.0.1:1/schema.json", "other.json"} {
		c := chart(t, "1.0.0", files{"values.schema.json": `{"properties":{"n":{"$ref":"` + ref + `"}}}`, "values.yaml": "n: 1\n"})
		_, err := w.engine().Plan(t.Context(), c, nil, false)
		if msg := w.refused(err, fairlead.ReasonValuesInvalid); !strings.Contains(msg, "copy that schema") {
			t.Error(msg)
		}
	}
}

// A plan has a connection that changes nothing, whatever a template or Helm asks for.
func TestPlanChangesNothing(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", web("1.0.0", "hello"))
	var writes []string
	e := w.engine()
	e.Config = w.wrapped(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") != "All" {
				writes = append(writes, r.Method+" "+r.URL.String())
			}
			return next.RoundTrip(r)
		})
	})
	if _, err := e.Plan(t.Context(), c, nil, false); err != nil || len(writes) > 0 {
		t.Errorf("%v, %v", err, writes)
	}
	if len(w.configMaps()) > 0 {
		t.Error(w.configMaps())
	}
}

// An uninstalled release whose history a person kept is installed, and installed again after a failure: the hooks of an
// install run, not those of an upgrade.
func TestFailedInstallIsInstalledAgain(t *testing.T) {
	w := newWorld(t)
	w.deploy(chart(t, "1.0.0", files{"templates/a.yaml": configMap("a")}), nil)
	u := action.NewUninstall(w.actions())
	u.KeepHistory, u.WaitStrategy = true, "hookOnly"
	if _, err := u.Run("web"); err != nil {
		t.Fatal(err)
	}
	w.options.Timeout = time.Second
	two := chart(t, "2.0.0", files{"templates/a.yaml": configMap("a"), "templates/i.yaml": jobHook("first", "pre-install"), "templates/u.yaml": jobHook("next", "pre-upgrade")})
	w.wantRows(w.plan(two, nil), "run hook pre-install Job/NS/first", "create ConfigMap/NS/a")
	_, err := w.engine().Apply(t.Context(), w.plan(two, nil).Saved, func() {})
	w.refused(err, fairlead.ReasonHookTimeout)
	if w.history() != "1 superseded, 2 failed" {
		t.Error(w.history())
	}
	w.wantRows(w.plan(two, nil), "run hook pre-install Job/NS/first (it failed in revision 2, and runs again)", "create ConfigMap/NS/a")
	w.options.Timeout = time.Minute
	w.completeJobs("first")
	w.apply(w.plan(two, nil))
	w.wantRows(w.plan(chart(t, "3.0.0", files{"templates/a.yaml": configMap("a"), "templates/u.yaml": jobHook("next", "pre-upgrade")}), nil), "run hook pre-upgrade Job/NS/next")
}
