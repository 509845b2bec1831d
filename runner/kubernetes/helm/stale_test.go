package helm_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web.example/web"}]}
`

// applied plans, lets something happen, and applies. It returns the error of the apply and whether the apply began to change.
func (w *world) applied(c *helm.Chart, values map[string]any, between func()) (error, bool) {
	w.Helper()
	p := w.plan(c, values)
	between()
	began := false
	_, err := w.engine().Apply(w.Context(), p.Saved, func() { began = true })
	return err, began
}

func TestApplyIsRefusedIfTheClusterMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(*world)
		want    string // "": the plan still applies
	}{
		"a person edits a value that the chart sets":        {func(w *world) { w.edit("a", "k", "by hand") }, "ConfigMap/NS/a was changed"},
		"a person adds a value that the chart does not set": {func(w *world) { w.edit("a", "other", "by hand") }, "ConfigMap/NS/a was changed"},
		"a person deletes an object": {func(w *world) {
			if err := w.client.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), "a", metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
		}, "ConfigMap/NS/a is gone"},
		"a person creates a planned object": {func(w *world) {
			if _, err := w.client.CoreV1().ConfigMaps(w.ns).Patch(w.Context(), "new", types.ApplyPatchType,
				[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`), metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
				w.Fatal(err)
			}
		}, "ConfigMap/NS/new was created"},
		"a person edits an object that the plan deletes": {func(w *world) { w.edit("old", "k", "by hand") }, "ConfigMap/NS/old was changed"},
		"another deployment upgrades": {func(w *world) {
			w.deploy(chart(w.T, "3.0.0", files{"templates/a.yaml": configMap("a", "k", "three"), "templates/old.yaml": configMap("old")}), nil)
		}, "the release has revision 2, and the plan was made on revision 1"},
		"the release is destroyed": {func(w *world) { w.apply(w.planDestroy()) }, "the release was uninstalled"},
		"the release is destroyed and installed again": {func(w *world) {
			w.apply(w.planDestroy())
			w.deploy(chart(w.T, "1.0.0", files{"templates/a.yaml": configMap("a")}), nil)
		}, "the release has revision 1, and the plan was made on revision 1"},
		"a controller writes a status": {func(w *world) {
			if _, err := w.client.AppsV1().Deployments(w.ns).Patch(w.Context(), "web", types.MergePatchType, []byte(`{"status":{"observedGeneration":7,"conditions":[{"type":"X","status":"True"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
				w.Fatal(err)
			}
		}, ""},
		"nothing": {func(*world) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.deploy(chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", "one"), "templates/old.yaml": configMap("old"), "templates/web.yaml": deployment}), nil)
			next := chart(t, "2.0.0", files{"templates/a.yaml": configMap("a", "k", "two"), "templates/new.yaml": configMap("new"), "templates/web.yaml": deployment})
			err, began := w.applied(next, nil, func() { tc.between(w) })
			if tc.want == "" {
				if err != nil || !began || w.configMap("a")["k"] != "two" {
					t.Fatalf("%v, began %v, %v", err, began, w.configMap("a"))
				}
				return
			}
			if msg := w.refused(err, fairlead.ReasonPlanStale); !strings.Contains(strings.ReplaceAll(msg, w.ns, "NS"), tc.want) || began {
				t.Errorf("%s; began %v", msg, began)
			}
		})
	}
}

// An autoscaler sets the number of replicas, unless the chart does.
func TestReplicasOfAnAutoscalerDoNotMakeAPlanStale(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		stale    bool
	}{
		"the chart leaves the number open": {strings.Replace(deployment, "  replicas: 0\n", "", 1), false},
		"the chart sets the number":        {deployment, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			paused := strings.Replace(tc.manifest, "spec:\n", "spec:\n  paused: true\n", 1) // no kubelet makes pods ready
			w.deploy(chart(t, "1.0.0", files{"templates/web.yaml": paused}), nil)
			err, _ := w.applied(chart(t, "2.0.0", files{"templates/web.yaml": strings.Replace(paused, "app: web}}\n    spec", "app: web, v: \"2\"}}\n    spec", 1)}), nil, func() {
				if _, err := w.client.AppsV1().Deployments(w.ns).Patch(w.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale"); err != nil {
					t.Fatal(err)
				}
			})
			if tc.stale {
				w.refused(err, fairlead.ReasonPlanStale)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// A plan that finds a person's edit shows it, and the approved apply wins over it.
func TestDriftIsShownAndCorrected(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", "one")})
	w.deploy(c, nil)
	w.edit("a", "k", "by hand")
	p := w.plan(c, nil)
	row := w.row(p, "ConfigMap/NS/a")
	if p.NoOp || row.Action != changeset.Update || encode(t, row.Before) != `{"data":{"k":"by hand"}}` || encode(t, row.After) != `{"data":{"k":"one"}}` ||
		!strings.Contains(row.Reason, `takes over .data.k (conflict with "kubectl-edit"`) {
		t.Fatalf("%+v", row)
	}
	w.apply(p)
	if got := w.configMap("a")["k"]; got != "one" {
		t.Errorf("k is %q", got)
	}
	w.settled(c, nil)
}

func TestForeignPlanIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.plan(chart(t, "1.0.0", files{"templates/a.yaml": configMap("a")}), nil)
	for name, change := range map[string]func(*helm.Engine){
		"another release":   func(e *helm.Engine) { e.Release = "other" },
		"another namespace": func(e *helm.Engine) { e.Namespace = "default" },
		"another component": func(e *helm.Engine) { e.Owner.Component = "other" },
		"another install":   func(e *helm.Engine) { e.Owner.Install = "other" },
	} {
		e := w.engine()
		change(e)
		_, err := e.Apply(t.Context(), p.Saved, func() { t.Error(name + ": it began") })
		w.refused(err, fairlead.ReasonPlanDigest)
	}
	_, err := w.engine().Apply(t.Context(), p.Saved[:len(p.Saved)/2], func() { t.Error("it began") })
	w.refused(err, fairlead.ReasonPlanDigest)
}

func TestReleaseOfAnotherOwnerIsRefused(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a")})
	w.deploy(c, nil)
	e := w.engine()
	e.Owner.Install = "inst_2"
	_, err := e.Plan(t.Context(), c, nil, false)
	w.refused(err, fairlead.ReasonObjectOwned)
	_, err = e.Plan(t.Context(), nil, nil, true)
	w.refused(err, fairlead.ReasonObjectOwned)
}

// A step that lost its lease must not change a release that another attempt has taken over.
func TestStaleAttemptIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		job   string
		again fairlead.Reason // of another apply by the old attempt
	}{
		"a newer epoch of the same job has it": {"job_1", fairlead.ReasonStale},
		"the next deployment has it":           {"job_2", fairlead.ReasonPlanStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := func(version, k string) *helm.Chart {
				return chart(t, version, files{"templates/a.yaml": configMap("a", "k", k), "templates/hook.yaml": jobHook("migrate", "pre-upgrade")})
			}
			w.deploy(c("1.0.0", "one"), nil)
			p := w.plan(c("2.0.0", "two"), nil)
			old, next := w.engine(), w.engine()
			next.Job = tc.job
			var writes func() []string
			old.Config, writes = w.dying(0, false)
			if tc.job != old.Job {
				next.Epoch = 1 // epochs of two jobs have no order
			}
			done := make(chan error)
			go func() {
				_, err := old.Apply(context.WithoutCancel(t.Context()), p.Saved, func() {})
				done <- err
			}()
			w.until("the hook of the old attempt runs", func() bool { return w.job("migrate") != nil })

			p2, err := next.Plan(t.Context(), c("2.0.0", "two"), nil, false)
			if err != nil {
				t.Fatal(err)
			}
			applied := make(chan error)
			go func() {
				_, err := next.Apply(context.WithoutCancel(t.Context()), p2.Saved, func() {})
				applied <- err
			}()
			w.until("the next attempt has taken over", func() bool { return strings.HasPrefix(w.history(), "1 deployed, 2 failed") })
			before := writes()
			w.completeJobs("migrate")
			w.refused(<-done, fairlead.ReasonStale)
			if after := writes(); len(after) > len(before) {
				t.Errorf("the old attempt wrote: %s", after[len(before):])
			}
			if err := <-applied; err != nil {
				t.Fatal(err)
			}
			if got := w.history(); got != "1 superseded, 2 failed, 3 deployed" {
				t.Errorf("history: %s", got)
			}
			// The plan of the old attempt is of no use either.
			_, err = old.Apply(t.Context(), p.Saved, func() { t.Error("it began") })
			w.refused(err, tc.again)
		})
	}
}

// Helm keeps a limited number of revisions, also of installs that fail.
func TestHistoryIsBounded(t *testing.T) {
	w := newWorld(t)
	w.options.Timeout, w.options.History = time.Second, 3
	broken := strings.Replace(deployment, "replicas: 0", "replicas: 1", 1)
	for i := range 5 {
		p := w.plan(chart(t, fmt.Sprintf("1.0.%d", i), files{"templates/web.yaml": broken}), nil)
		_, err := w.engine().Apply(t.Context(), p.Saved, func() {})
		w.refused(err, fairlead.ReasonNotReady)
	}
	if got := w.history(); got != "3 failed, 4 failed, 5 failed" {
		t.Errorf("history: %s", got)
	}
}
