package kubernetes_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/executortest"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
)

// requests holds the permissions that requests to the API server needed, and
// those that it denied. Safe for concurrent use.
type requests struct {
	mu        sync.Mutex
	needed    map[string]bool // "verb group/resource"
	forbidden map[string]bool
}

func (r *requests) via(next http.RoundTripper) http.RoundTripper { return recorder{r, next} }

type recorder struct {
	*requests
	next http.RoundTripper
}

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.needed[permission(req)] = true
	if err == nil && resp.StatusCode == http.StatusForbidden {
		r.forbidden[permission(req)] = true
	}
	return resp, err
}

// permission returns the permission that a request needs, as "verb group/resource".
// Its path is /api/v1/namespaces/N/RESOURCE[/NAME[/SUB]] or
// /apis/GROUP/VERSION/namespaces/….
func permission(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[4:] // api or group, version, namespaces, N
	resource, named := parts[0], len(parts) > 1
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPut: "update", http.MethodGet: "list"}[req.Method]
	if verb == "list" && named {
		verb = "get"
	}
	if verb == "list" && req.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	return verb + " " + group + "/" + resource
}

func granted(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, r := range rules {
		for _, g := range r.APIGroups {
			for _, res := range r.Resources {
				for _, v := range r.Verbs {
					all[v+" "+g+"/"+res] = true
				}
			}
		}
	}
	return all
}

// everything uses all functions of the executor. It starts a step that runs to its
// end, a step that is interrupted and killed, and a step for which the cluster
// creates no pod. It ignores errors, because a role that lacks a rule causes errors.
func everything(t *testing.T, rules []rbacv1.PolicyRule, program string) *requests {
	s := newSiteWith(t, rules)
	seen := &requests{needed: map[string]bool{}, forbidden: map[string]bool{}}
	o := s.options()
	o.Via = seen.via
	e := open(t, o)
	kubelettest.Start(t, s.admin, s.namespace, kubelettest.Options{Image: image, Program: program})
	dir := t.TempDir()
	start := func(e executor.Executor, n int, behaviour ...string) executor.Handle {
		h, err := e.Start(t.Context(), executor.Step{ID: fmt.Sprintf("job_rules-%d", n), Args: append([]string{"step", "--dir", dir}, behaviour...), Secrets: []string{"TOKEN=hush"}})
		if err != nil {
			return nil
		}
		return h
	}
	// Without a permission to read, a call waits forever. bounded ends the call.
	bounded := func(f func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // twice as long as the executor's longest watch
		defer cancel()
		f(ctx)
	}
	if h := start(e, 1, "exit", "0"); h != nil {
		bounded(func(ctx context.Context) { h.Wait(ctx); h.Output(ctx, 1024); e.Attach(ctx, h.ID()) })
	}
	bounded(func(ctx context.Context) { e.Remove(ctx, "job_rules-1") })
	if h := start(e, 2, "obey"); h != nil {
		bounded(func(ctx context.Context) {
			for ctx.Err() == nil { // until the pod exists
				pods, err := s.admin.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: kubernetes.LabelAttempt + "=" + h.ID()})
				if err == nil && len(pods.Items) > 0 {
					break
				}
			}
			h.Interrupt()
			h.Kill(ctx)
		})
	}
	bounded(func(ctx context.Context) { e.Remove(ctx, "job_rules-2") })
	o.Job.StartTimeout, o.Job.ServiceAccount = runnerspec.Duration(time.Second), "missing" // so the cluster creates no pod
	if h := start(open(t, o), 3); h != nil {
		bounded(func(ctx context.Context) { h.Wait(ctx) })
	}
	bounded(func(ctx context.Context) { e.Remove(ctx, "job_rules-3") })
	return seen
}

// The role of the chart grants exactly the permissions that the executor uses. If
// one of its rules is missing, the API server denies a request.
func TestRoleOfTheChartIsMinimal(t *testing.T) {
	program := executortest.Program(t)
	all := rules(t)
	t.Run("with all rules no request is denied", func(t *testing.T) {
		t.Parallel()
		seen := everything(t, all, program)
		if len(seen.forbidden) > 0 {
			t.Errorf("forbidden: %v", slices.Sorted(maps.Keys(seen.forbidden)))
		}
		if want := granted(all); !maps.Equal(want, seen.needed) {
			t.Errorf("the executor needs %v, the role grants %v", slices.Sorted(maps.Keys(seen.needed)), slices.Sorted(maps.Keys(want)))
		}
	})
	for i, r := range all {
		t.Run(fmt.Sprintf("without %v of %v", r.Verbs, r.Resources), func(t *testing.T) {
			t.Parallel()
			seen := everything(t, slices.Delete(slices.Clone(all), i, i+1), program)
			if len(seen.forbidden) == 0 {
				t.Error("no request was denied")
			}
			for p := range seen.forbidden {
				if !granted(all[i : i+1])[p] {
					t.Errorf("%s was denied, but the missing rule does not grant it", p)
				}
			}
		})
	}
}
