package helm_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var errDead = errors.New("the process is dead")

// mortal is a transport whose process dies at its n-th write: before the request is sent, or before its answer arrives.
// From then on every request fails, as after kill -9.
type mortal struct {
	next   http.RoundTripper
	n      int // 0: never
	answer bool

	mu     *sync.Mutex
	writes *[]string
	dead   *bool
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	write := r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == ""
	m.mu.Lock()
	if *m.dead {
		m.mu.Unlock()
		return nil, errDead
	}
	now := false
	if write {
		*m.writes = append(*m.writes, r.Method+" "+r.URL.Path)
		now = len(*m.writes) == m.n
		*m.dead = now
	}
	m.mu.Unlock()
	if now && !m.answer {
		return nil, errDead
	}
	resp, err := m.next.RoundTrip(r)
	if now && err == nil {
		resp.Body.Close()
		return nil, errDead
	}
	return resp, err
}

// dying returns a connection that dies at the n-th write, and the list of writes.
func (w *world) dying(n int, answer bool) (*rest.Config, func() []string) {
	var mu sync.Mutex
	var writes []string
	var dead bool
	cfg := w.wrapped(func(next http.RoundTripper) http.RoundTripper {
		return &mortal{next: next, n: n, answer: answer, mu: &mu, writes: &writes, dead: &dead}
	})
	return cfg, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(writes) }
}

// definition returns a custom resource definition with a group of its own.
func definition(group string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.` + group + `}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}
`
}

func widget(group, name, size string) string {
	return "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: " + name + "}\nspec: {size: " + size + "}\n"
}

// mortality is a chart with a part of every kind of write: a definition, hooks before and after, objects, and an object that
// its next version does not have.
func mortality(t *testing.T, ns, version string) *helm.Chart {
	group := ns + ".example.com"
	c := files{
		"crds/widgets.yaml":     definition(group),
		"templates/widget.yaml": widget(group, "w", version[:1]),
		"templates/a.yaml":      configMap("a", "v", "\""+version+"\"", "random", "{{ randAlphaNum 8 }}"),
		"templates/only.yaml":   configMap("only-in-" + version),
		"templates/before.yaml": hook("before", "pre-install,pre-upgrade,pre-delete", "v", "\""+version+"\""),
		"templates/after.yaml":  hook("after", "post-install,post-upgrade,post-delete", "v", "\""+version+"\""),
	}
	return chart(t, version, c)
}

// A step can be killed at any time. Whatever it had written, the next plan and its apply reach the planned state: no object
// is left over, the release is deployed, and a hook that has begun never runs again without a reason in the plan.
func TestKillAtEveryWriteConverges(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	type story struct {
		name   string
		before func(*world) // what exists before the attempt that dies
		plan   func(*world) helm.Planned
		want   []string // ConfigMaps at the end
	}
	stories := []story{
		{"install", func(*world) {}, func(w *world) helm.Planned { return w.plan(mortality(w.T, w.ns, "1.0.0"), nil) }, []string{"a", "after", "before", "only-in-1.0.0"}},
		{"upgrade", func(w *world) { w.deploy(mortality(w.T, w.ns, "1.0.0"), nil) },
			func(w *world) helm.Planned { return w.plan(mortality(w.T, w.ns, "2.0.0"), nil) }, []string{"a", "after", "before", "only-in-2.0.0"}},
		{"destroy", func(w *world) { w.deploy(mortality(w.T, w.ns, "1.0.0"), nil) }, (*world).planDestroy, []string{"after", "before"}},
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			w.owners()
			s.before(w)
			p := s.plan(w)
			cfg, writes := w.dying(0, false)
			e := w.engine()
			e.Config = cfg
			if _, err := e.Apply(t.Context(), p.Saved, func() {}); err != nil {
				t.Fatal(err)
			}
			all := writes()
			t.Logf("%d writes:\n%s", len(all), strings.ReplaceAll(strings.Join(all, "\n"), w.ns, "NS"))
			if len(all) < 5 {
				t.Fatal("too few writes: the transport does not see them")
			}
			for n := 1; n <= len(all); n++ {
				if testing.Short() && (n+shortrun.Day(t))%3 > 0 {
					continue
				}
				for _, answer := range shortrun.OneOf(t, n, false, true) {
					t.Run(fmt.Sprintf("write %d, answered %v", n, answer), func(t *testing.T) {
						t.Parallel()
						w := newWorld(t)
						w.owners()
						s.before(w)
						p := s.plan(w)
						e := w.engine()
						var writes func() []string
						e.Config, writes = w.dying(n, answer)
						if _, err := e.Apply(t.Context(), p.Saved, func() {}); err == nil && n < len(all) {
							t.Fatalf("the attempt survived; its writes: %s", writes())
						}
						w.recovers(s.plan, writes(), answer)
						if got := w.configMaps(); !slices.Equal(got, s.want) {
							t.Errorf("ConfigMaps %v, want %v", got, s.want)
						}
						if last := s.plan(w); !last.NoOp {
							t.Errorf("not settled:\n%s", rows(last))
						}
						if h := w.history(); strings.Contains(h, "pending") || strings.Contains(h, "uninstalling") {
							t.Errorf("history: %s", h)
						}
					})
				}
			}
		})
	}
}

// owners deletes the definition at the end of the test.
func (w *world) owners() {
	w.Cleanup(func() {
		_ = w.dynamic.Resource(definitions).Delete(context.Background(), "widgets."+w.ns+".example.com", metav1.DeleteOptions{})
	})
}

// recovers plans and applies after the death of an attempt that sent these writes. Each hook that the attempt created has
// a reason in the plan.
func (w *world) recovers(plan func(*world) helm.Planned, writes []string, answered bool) {
	w.Helper()
	p := plan(w)
	if !answered {
		writes = writes[:len(writes)-1] // the last one was not sent
	}
	for _, c := range p.Changes {
		hook, ok := strings.CutPrefix(c.Address, "hook ")
		if c.Action != changeset.Run || !ok {
			continue
		}
		name := hook[strings.LastIndex(hook, "/")+1:]
		began := slices.ContainsFunc(writes, func(s string) bool {
			return strings.HasPrefix(s, "PATCH ") && strings.HasSuffix(s, "/configmaps/"+name)
		})
		if began && c.Reason == "" {
			w.Errorf("%s has begun and runs again without a reason:\n%s", c.Address, rows(p))
		}
		if !began && strings.HasPrefix(c.Reason, "it succeeded") {
			w.Errorf("%s has not begun: %s", c.Address, c.Reason)
		}
	}
	if p.NoOp {
		return
	}
	w.apply(p)
}

// configMaps lists the ConfigMaps that tests made.
func (w *world) configMaps() []string {
	w.Helper()
	list, err := w.client.CoreV1().ConfigMaps(w.ns).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, c := range list.Items {
		if c.Name != "kube-root-ca.crt" {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}
