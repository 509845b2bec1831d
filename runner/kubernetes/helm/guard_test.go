package helm

import (
	"context"
	"errors"
	"testing"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Helm must not record a revision that differs from the plan, whatever made it differ.
func TestRevisionThatDiffersFromThePlanIsRefused(t *testing.T) {
	r := &rendering{Metadata: &chartv2.Metadata{Name: "web"}, Files: map[string]string{
		"web/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"web/templates/h.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: h, annotations: {helm.sh/hook: pre-install}}\n"}}
	if err := r.sort(); err != nil || len(r.hooks) != 1 || len(r.manifests) != 1 {
		t.Fatal(err, r.hooks, r.manifests)
	}
	earlier := &record{rel: &release.Release{Manifest: "earlier"}}
	for name, tc := range map[string]struct {
		change   func(*release.Release)
		rollback bool
		ok       bool
	}{
		"the planned one":     {func(*release.Release) {}, false, true},
		"another manifest":    {func(r *release.Release) { r.Manifest += "\n" }, false, false},
		"a hook less":         {func(r *release.Release) { r.Hooks = nil }, false, false},
		"another hook":        {func(r *release.Release) { r.Hooks = []*release.Hook{{Path: r.Hooks[0].Path, Manifest: "x"}} }, false, false},
		"an earlier revision": {func(r *release.Release) { r.Manifest, r.Hooks = "earlier", nil }, false, false},
		"an earlier revision, planned as rollback": {func(r *release.Release) { r.Manifest, r.Hooks = "earlier", nil }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &applier{e: &Engine{Release: "web"}, s: &saved{Rendering: r, RollbackOnFailure: tc.rollback}, all: revisions{earlier}}
			rel := &release.Release{Manifest: r.manifest(), Hooks: r.hooks}
			tc.change(rel)
			if err := a.allowed(rel); (err == nil) != tc.ok || err != nil && plugin.ReasonOf(err) != fairlead.ReasonPlanDigest {
				t.Error(err)
			}
		})
	}
}

// After a cancellation an attempt begins no revision and deletes none. There is no client here: a request would panic.
func TestCanceledAttemptBeginsNoRevision(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &secrets{ctx: ctx, fence: &fence{e: &Engine{}}}
	if _, err := s.Create(t.Context(), &corev1.Secret{}, metav1.CreateOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "x", metav1.DeleteOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
