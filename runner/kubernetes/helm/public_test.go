package helm_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/testserver"
)

// publicChart copies a chart from the sources of a public project, which tools/charts pins.
func publicChart(t *testing.T, module, folder string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = "../../../tools/charts"
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	var found struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		testserver.Missing(t, "PUBLIC CHARTS ARE NOT TESTED", kube.RequireEnv, "Run `go mod download` in tools/charts once", err)
	}
	dir := filepath.Join(t.TempDir(), filepath.Base(folder))
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(found.Dir, folder))); err != nil {
		t.Fatal(err)
	}
	if template := filepath.Join(dir, "Chart.template.yaml"); filepath.Base(folder) == "cert-manager" {
		if err := os.Rename(template, filepath.Join(dir, "Chart.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Public charts deploy unchanged. The release is the one that Helm's own command line makes.
func TestPublicChartsDeployUnchanged(t *testing.T) {
	for _, tc := range []struct {
		module, folder string
		values         map[string]any
	}{
		{"github.com/cert-manager/cert-manager", "deploy/charts/cert-manager", map[string]any{"global": map[string]any{"leaderElection": map[string]any{"namespace": "default"}}}},
		{"sigs.k8s.io/external-dns", "charts/external-dns", map[string]any{"provider": map[string]any{"name": "aws"}}},
		{"sigs.k8s.io/metrics-server", "charts/metrics-server", map[string]any{"apiService": map[string]any{"create": false}}}, // its server would be part of every discovery
	} {
		t.Run(filepath.Base(tc.folder), func(t *testing.T) {
			w := newWorld(t)
			dir := publicChart(t, tc.module, tc.folder)
			c, err := helm.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(tc.folder) == "external-dns" {
				w.Cleanup(func() {
					_ = w.dynamic.Resource(definitions).Delete(context.Background(), "dnsendpoints.externaldns.k8s.io", metav1.DeleteOptions{})
				})
			}
			w.runPods()
			w.deploy(c, tc.values)
			rec := w.record()

			loaded, err := loader.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			i := action.NewInstall(w.actions())
			i.ReleaseName, i.Namespace, i.DryRunStrategy = "web", w.ns, action.DryRunServer
			want, err := i.Run(loaded, tc.values)
			if err != nil {
				t.Fatal(err)
			}
			var stock releaseRecord
			if err := json.Unmarshal([]byte(encode(t, want)), &stock); err != nil {
				t.Fatal(err)
			}
			if rec.Manifest != stock.Manifest || encode(t, rec.Hooks) != encode(t, stock.Hooks) || rec.Info.Notes != stock.Info.Notes {
				t.Errorf("the release is\n%s\nand with Helm\n%s", rec.Manifest, stock.Manifest)
			}
			w.settled(c, tc.values)
			w.apply(w.planDestroy())
			if got := w.history(); got != "" {
				t.Error(got)
			}
		})
	}
}

// runPods does what a kubelet does: pods become ready, and the pods of Jobs complete.
func (w *world) runPods() {
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
			if !ok || pod.Status.Phase != corev1.PodPending {
				continue
			}
			now := metav1.Now()
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
			if _, ok := pod.Labels["batch.kubernetes.io/job-name"]; ok {
				pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
			}
			_, _ = w.client.CoreV1().Pods(w.ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}) // a conflict brings another event
		}
	}()
}
