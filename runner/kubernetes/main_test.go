package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/program"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

var (
	server kube.Server
	own    = kube.Server{Private: true} // for the tests of the runner's chart: they compare all objects, and a wrong policy would change all
	folder string                       // of the program
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	server.Stop()
	own.Stop()
	os.Exit(code)
}

// run builds the program, because the tests start it as a step does.
func run(m *testing.M) (code int, err error) {
	if folder, err = os.MkdirTemp("", "plugins"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "kubernetes"), ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("build the program: %w", err)
	}
	return m.Run(), nil
}

// site is a namespace of the cluster.
type site struct {
	*testing.T
	kubeconfig, ns string
	admin          kubernetes.Interface
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, kubeconfig: server.Kubeconfig(t)}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if s.admin, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	ns, err := s.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plugin-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.ns = ns.Name
	return s
}

func (s *site) plugin(kind, data string) plugin.Plugin {
	t, ok := component.Of(kind)
	if !ok {
		s.Fatalf("there is no type %s", kind)
	}
	return program.New(t, program.Config{Folder: folder, PassEnv: []string{"KUBECONFIG"}, Environ: []string{"PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + s.kubeconfig},
		OpenPlans: func(context.Context, plugin.Spec, plugin.Env) (planstore.Store, func(), error) {
			return planstore.OnDisk(data), func() {}, nil
		}})
}

const secret = "hunter22-secret"

// sources are the artifacts, by digest.
var sources = map[string]map[string]string{
	"sha256:objects": {"all.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {url: "https://${vars.host}:${vars.port}/", script: "echo ${HOME} $${vars.host}"}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: "${vars.password}"}
`},
	"sha256:chart": {
		"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.2.3\nappVersion: \"9\"\n",
		"values.yaml": "host: none\nport: 1\npassword: none\n",
		"templates/all.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {url: "https://{{ .Values.host }}:{{ .Values.port }}/", token: {{ randAlphaNum 20 | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: {{ .Values.password | quote }}}
`,
	},
}

func (s *site) spec(kind, op string) plugin.Spec {
	digest := map[string]string{component.Manifest: "sha256:objects", component.Helm: "sha256:chart"}[kind]
	sp := plugin.Spec{Plugin: kind, Operation: op, Install: "ins_1", InstallName: s.ns, Component: "web", Job: fairlead.JobID("job_" + op), Epoch: 1, Grace: 5,
		Artifact: &events.ArtifactRef{Repository: "apps/shop/web", Digest: digest}, State: &events.StateRef{Storage: "local", Key: "ins_1/web"},
		Vars: map[string]events.SpecVar{"host": {Value: json.RawMessage(`"example.com"`)}, "port": {Value: json.RawMessage("8443")},
			"password": {Value: json.RawMessage(`"` + secret + `"`), Sensitive: true}}}
	return sp
}

// do runs one job, with the log masked as the step masks it.
func (s *site) do(data string, sp plugin.Spec) (plugin.Result, string, error) {
	s.Helper()
	log := plugintest.NewLog()
	env := plugintest.Env(s.T, data, string(sp.Job)+"-1", log, sources, sp)
	res, err := s.plugin(sp.Plugin, data).Run(s.Context(), sp, env)
	return res, log.String(), err
}

func TestComponentIsPlannedAppliedAndDestroyed(t *testing.T) {
	for _, kind := range []string{component.Manifest, component.Helm} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, data := newSite(t), t.TempDir()
			plan := func(op string) plugin.Result {
				t.Helper()
				res, log, err := s.do(data, s.spec(kind, op))
				if err != nil {
					t.Fatalf("%s: %v\n%s", op, err, log)
				}
				set, err := json.Marshal(res.Plan.ChangeSet)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(set)+log, secret) {
					t.Errorf("%s: the change set or the log has the secret:\n%s\n%s", op, set, log)
				}
				t.Logf("%s: %s", op, set)
				return res
			}
			apply := func(op string, planned plugin.Result, by string) plugin.Result {
				t.Helper()
				sp := s.spec(kind, op)
				sp.Vars = nil
				sp.Plan = &events.PlanRef{Job: fairlead.JobID("job_" + by), Digest: planned.Plan.Digest}
				res, log, err := s.do(data, sp)
				if err != nil || !res.Mutated {
					t.Fatalf("%s: %+v, %v\n%s", op, res, err, log)
				}
				return res
			}

			first := plan("plan")
			if first.Plan.NoOp || first.Plan.Changes.Add != 2 || first.Plan.Changes.Change+first.Plan.Changes.Destroy > 0 || first.Plan.ChangeSet.Base != nil || !hidden(first.Plan.ChangeSet) {
				t.Errorf("the first plan is %+v", first.Plan)
			}
			if _, err := s.admin.CoreV1().ConfigMaps(s.ns).Get(t.Context(), "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the plan changed the cluster: %v", err)
			}
			applied := apply("apply", first, "plan")
			settings, err := s.admin.CoreV1().ConfigMaps(s.ns).Get(t.Context(), "settings", metav1.GetOptions{})
			if err != nil || settings.Data["url"] != "https://example.com:8443/" {
				t.Errorf("the object is %v, %v", settings, err)
			}
			if got := settings.Data["script"]; kind == component.Manifest && got != "echo ${HOME} ${vars.host}" {
				t.Errorf("the script is %q", got)
			}
			login, err := s.admin.CoreV1().Secrets(s.ns).Get(t.Context(), "login", metav1.GetOptions{})
			if err != nil || string(login.Data["password"]) != secret {
				t.Errorf("the secret is %v, %v", login, err)
			}
			if got := string(applied.Outputs["namespace"].Value); got != `"`+s.ns+`"` {
				t.Errorf("the outputs are %+v", applied.Outputs)
			}

			again := plan("plan")
			if !again.Plan.NoOp || again.Plan.Changes != (wire.Changes{}) || again.Plan.ChangeSet.Base == nil {
				t.Errorf("without a change, the plan is %+v", again.Plan)
			}

			gone := plan("plan-destroy")
			if gone.Plan.Changes.Destroy != 3 { // both objects, and the record of the component
				t.Errorf("the plan to destroy is %+v", gone.Plan)
			}
			apply("destroy", gone, "plan-destroy")
			if _, err := s.admin.CoreV1().Secrets(s.ns).Get(t.Context(), "login", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the destroy left the secret: %v", err)
			}
		})
	}
}

// hidden reports whether the password of the set's Secret is marked as sensitive and not shown.
func hidden(set *changeset.Set) bool {
	for _, c := range set.Changes {
		if strings.Contains(c.Kind, "Secret") {
			return strings.Contains(strings.Join(c.Sensitive, " "), "password")
		}
	}
	return false
}

func TestBadSettingsAndFilesHaveAReason(t *testing.T) {
	s := newSite(t)
	sources["sha256:unknown-variable"] = map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"${vars.nothing}\"}\n"}
	sources["sha256:list-in-text"] = map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"x${vars.list}\"}\n"}
	sources["sha256:same"] = map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: example.com}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"${vars.host}\"}\n"}
	sources["sha256:label"] = map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {port: \"${vars.port}\"}}\n"}
	sources["sha256:kind"] = map[string]string{"a.yaml": "apiVersion: v1\nkind: \"${vars.host}\"\nmetadata: {name: a}\n"}
	for name, tt := range map[string]struct {
		kind   string
		change func(*plugin.Spec)
		reason fairlead.Reason
		text   string
	}{
		"a timeout that is none": {component.Helm, func(s *plugin.Spec) {
			s.Options = map[string]events.SpecVar{"timeout": {Value: json.RawMessage(`"soon"`)}}
		}, fairlead.ReasonSpecInvalid, "timeout"},
		"a namespace that is a list": {component.Manifest, func(s *plugin.Spec) {
			s.Options = map[string]events.SpecVar{"namespace": {Value: json.RawMessage(`[]`)}}
		},
			fairlead.ReasonSpecInvalid, "options"},
		"a variable that the component lacks": {component.Manifest, func(s *plugin.Spec) { s.Artifact.Digest = "sha256:unknown-variable" }, fairlead.ReasonManifestInvalid, "a.yaml:1: ConfigMap a: ${vars.nothing}"},
		"a list in a text": {component.Manifest, func(s *plugin.Spec) {
			s.Artifact.Digest = "sha256:list-in-text"
			s.Vars["list"] = events.SpecVar{Value: json.RawMessage("[1]")}
		}, fairlead.ReasonManifestInvalid, "a part of a text"},
		"a variable makes two objects one":  {component.Manifest, func(s *plugin.Spec) { s.Artifact.Digest = "sha256:same" }, fairlead.ReasonManifestInvalid, "a.yaml:5"},
		"a variable makes a label a number": {component.Manifest, func(s *plugin.Spec) { s.Artifact.Digest = "sha256:label" }, fairlead.ReasonManifestInvalid, "not a text"},
		"a variable is a kind":              {component.Manifest, func(s *plugin.Spec) { s.Artifact.Digest = "sha256:kind" }, fairlead.ReasonManifestInvalid, "apiVersion and kind"},
		"a folder that is no chart":         {component.Helm, func(s *plugin.Spec) { s.Artifact.Digest = "sha256:list-in-text" }, fairlead.ReasonChartInvalid, "Chart.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			sp := s.spec(tt.kind, "plan")
			tt.change(&sp)
			_, log, err := s.do(t.TempDir(), sp)
			if plugin.ReasonOf(err) != tt.reason || !strings.Contains(fmt.Sprint(err), tt.text) {
				t.Errorf("reason %s, error %v\n%s", plugin.ReasonOf(err), err, log)
			}
		})
	}
}

func TestClusterThatIsNotConfiguredHasAReason(t *testing.T) {
	s := newSite(t)
	s.kubeconfig = ""
	_, _, err := s.do(t.TempDir(), s.spec(component.Manifest, "plan"))
	if plugin.ReasonOf(err) != fairlead.ReasonClusterUnknown {
		t.Errorf("reason %s, error %v", plugin.ReasonOf(err), err)
	}
}

func TestPlugins(t *testing.T) {
	for _, kind := range []string{component.Manifest, component.Helm} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			plugintest.Run(t, plugintest.Subject{
				New: func(data string) plugin.Plugin { return s.plugin(kind, data) },
				Good: func(n int) plugin.Spec {
					sp := s.spec(kind, "plan")
					sp.Job, sp.Component = fairlead.JobID(fmt.Sprintf("job_%d", n)), fmt.Sprintf("web-%d", n)
					sp.State.Key = "ins_1/" + sp.Component
					return sp
				},
				Sources: sources,
			})
		})
	}
}
