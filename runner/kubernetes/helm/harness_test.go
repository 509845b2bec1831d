package helm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

var cluster kube.Server

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

// config returns a connection as the administrator.
func config(t *testing.T) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 500, 1000
	return cfg
}

// world is one namespace of the cluster with one release.
type world struct {
	*testing.T
	cfg     *rest.Config
	client  *kubernetes.Clientset
	dynamic dynamic.Interface
	ns      string
	epoch   int64
	options helm.Options
	log     *log
	secret  string // masked by the engine
}

type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := config(t)
	w := &world{T: t, cfg: cfg, client: kubernetes.NewForConfigOrDie(cfg), dynamic: dynamic.NewForConfigOrDie(cfg), log: &log{},
		options: helm.Options{Timeout: time.Minute}, secret: "no-secret-of-this-test"}
	ns, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "helm-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.ns = ns.Name
	t.Cleanup(func() {
		_ = w.client.CoreV1().Namespaces().Delete(context.Background(), w.ns, metav1.DeleteOptions{})
		if t.Failed() {
			t.Logf("log:\n%s", w.log)
		}
	})
	return w
}

// engine returns the engine of a new attempt.
func (w *world) engine() *helm.Engine {
	w.epoch++
	return &helm.Engine{Config: w.cfg, Log: w.log, Mask: func(s string) string { return strings.ReplaceAll(s, w.secret, changeset.Sensitive) },
		Owner: helm.Owner{Install: "inst_1", Component: "web"}, Release: "web", Namespace: w.ns, Job: "job_1", Epoch: w.epoch, Options: w.options}
}

func (w *world) plan(chart *helm.Chart, values map[string]any) helm.Planned {
	w.Helper()
	p, err := w.engine().Plan(w.Context(), chart, values, false)
	if err != nil {
		w.Fatalf("plan: %v\n%s", err, w.log)
	}
	return p
}

func (w *world) planDestroy() helm.Planned {
	w.Helper()
	p, err := w.engine().Plan(w.Context(), nil, nil, true)
	if err != nil {
		w.Fatalf("plan-destroy: %v\n%s", err, w.log)
	}
	return p
}

func (w *world) apply(p helm.Planned) helm.Applied {
	w.Helper()
	a, err := w.engine().Apply(w.Context(), p.Saved, func() {})
	if err != nil {
		w.Fatalf("apply: %v\n%s", err, w.log)
	}
	return a
}

// deploy plans and applies.
func (w *world) deploy(chart *helm.Chart, values map[string]any) helm.Applied {
	w.Helper()
	return w.apply(w.plan(chart, values))
}

// refused checks the reason of an error, and returns its message.
func (w *world) refused(err error, reason fairlead.Reason) string {
	w.Helper()
	if err == nil || plugin.ReasonOf(err) != reason {
		w.Fatalf("error %v with reason %s, want %s\n%s", err, plugin.ReasonOf(err), reason, w.log)
	}
	return err.Error()
}

// settled checks that a plan of the release finds nothing to do.
func (w *world) settled(chart *helm.Chart, values map[string]any) {
	w.Helper()
	if p := w.plan(chart, values); !p.NoOp || len(p.Changes) > 0 {
		w.Fatalf("the plan after the apply is not empty:\n%s\n%s", rows(p), w.log)
	}
}

// rows renders the changes, one a line.
func rows(p helm.Planned) string {
	var b strings.Builder
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "%s %s", c.Action, c.Address)
		if len(c.Changed) > 0 {
			fmt.Fprintf(&b, " %s", strings.Join(c.Changed, ","))
		}
		if c.Unverified {
			b.WriteString(" unverified")
		}
		if c.Reason != "" {
			fmt.Fprintf(&b, " (%s)", c.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wantRows compares the changes, in which NS stands for the namespace.
func (w *world) wantRows(p helm.Planned, want ...string) {
	w.Helper()
	got := strings.ReplaceAll(rows(p), w.ns, "NS")
	if text := strings.Join(append(want, ""), "\n"); got != text {
		w.Fatalf("the plan shows\n%s\nwant\n%s", got, text)
	}
}

func (w *world) row(p helm.Planned, address string) changeset.Change {
	w.Helper()
	i := slices.IndexFunc(p.Changes, func(c changeset.Change) bool { return strings.ReplaceAll(c.Address, w.ns, "NS") == address })
	if i < 0 {
		w.Fatalf("the plan has no row %s:\n%s", address, rows(p))
	}
	return p.Changes[i]
}

func (w *world) configMap(name string) map[string]string {
	w.Helper()
	cm, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	if cm.Data == nil {
		return map[string]string{}
	}
	return cm.Data
}

// edit changes a ConfigMap as a person would.
func (w *world) edit(name, key, value string) {
	w.Helper()
	cm, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[key] = value
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Update(w.Context(), cm, metav1.UpdateOptions{FieldManager: "kubectl-edit"}); err != nil {
		w.Fatal(err)
	}
}

// history lists the release's records with their statuses.
func (w *world) history() string {
	w.Helper()
	list, err := w.client.CoreV1().Secrets(w.ns).List(w.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, s := range list.Items {
		all = append(all, s.Labels["version"]+" "+s.Labels["status"])
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// files is a chart's content by path.
type files map[string]string

// chart writes the files of a chart and loads it. Chart.yaml is added if missing.
func chart(t *testing.T, version string, content files) *helm.Chart {
	t.Helper()
	c, err := helm.Load(folder(t, version, content))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func folder(t *testing.T, version string, content files) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "web")
	if _, ok := content["Chart.yaml"]; !ok {
		write(t, dir, "Chart.yaml", "apiVersion: v2\nname: web\nversion: "+version+"\nappVersion: \"app-"+version+"\"\n")
	}
	for name, text := range content {
		write(t, dir, name, text)
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// configMap is a template of a ConfigMap.
func configMap(name string, data ...string) string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n"
	for i := 0; i < len(data); i += 2 {
		text += "  " + data[i] + ": " + data[i+1] + "\n"
	}
	return text
}

// hook is a template of a hook that is a ConfigMap, so it completes at once.
func hook(name, events string, data ...string) string {
	return strings.Replace(configMap(name, data...), "metadata:\n", "metadata:\n  annotations:\n    helm.sh/hook: "+events+"\n", 1)
}

// jobHook is a template of a hook that is a Job.
func jobHook(name, events string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: " + name + "\n  annotations:\n    helm.sh/hook: " + events +
		"\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: x, image: \"x.example/x\"}]\n"
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wrapped returns the world's connection with a transport around it.
func (w *world) wrapped(f func(next http.RoundTripper) http.RoundTripper) *rest.Config {
	cfg := rest.CopyConfig(w.cfg)
	cfg.Wrap(f)
	return cfg
}

// until waits until the cluster has reached a condition.
func (w *world) until(what string, reached func() bool) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		if reached() {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not reached\n%s", what, w.log)
		}
	}
}

func (w *world) job(name string) *batchv1.Job {
	w.Helper()
	j, err := w.client.BatchV1().Jobs(w.ns).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// completeJobs does what a kubelet does: each Job with one of the names completes, until the test ends. The pods do not run.
func (w *world) completeJobs(names ...string) { w.finishJobs(true, names...) }

func (w *world) finishJobs(succeed bool, names ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.Cleanup(func() { cancel(); <-done })
	watcher, err := w.client.CoreV1().Pods(w.ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(done)
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Status.Phase != corev1.PodPending || !slices.Contains(names, pod.Labels["batch.kubernetes.io/job-name"]) {
				continue
			}
			phase, code := corev1.PodSucceeded, int32(0)
			if !succeed {
				phase, code = corev1.PodFailed, 1
			}
			pod.Status = corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: "x",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()}}}}}
			_, _ = w.client.CoreV1().Pods(w.ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}) // a conflict brings another event
		}
	}()
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
