package manifest_test

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

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// writes is a transport that counts the requests that change the cluster, and calls at before each. If at returns an error, the
// request is not sent, or its answer is lost.
type writes struct {
	http.RoundTripper
	mu  sync.Mutex
	n   int
	log []string
	at  func(n int, req *http.Request) error
	got func(n int) error // after the answer
}

func (w *writes) RoundTrip(req *http.Request) (*http.Response, error) {
	read := req.Method == http.MethodGet || req.URL.Query().Get("dryRun") != "" || strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews")
	w.mu.Lock()
	if !read {
		w.n++
		w.log = append(w.log, req.Method+" "+req.URL.Path)
	}
	n := w.n
	w.mu.Unlock()
	if read {
		n = 0
	}
	if w.at != nil {
		if err := w.at(n, req); err != nil {
			return nil, err
		}
	}
	resp, err := w.RoundTripper.RoundTrip(req)
	if err == nil && w.got != nil {
		if lost := w.got(n); lost != nil {
			resp.Body.Close()
			return nil, lost
		}
	}
	return resp, err
}

// through returns the site's configuration with this transport.
func (s *site) through(w *writes) *rest.Config {
	cfg := rest.CopyConfig(s.Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { w.RoundTripper = rt; return w })
	return cfg
}

var errDead = errors.New("the process is dead")

// die applies the plan and kills the attempt at its n-th write: before the write reaches the server, or before its answer reaches
// the attempt. It reports whether the attempt had so many writes.
func (s *site) die(p manifest.Planned, n int, answered bool) bool {
	s.Helper()
	ctx, kill := context.WithCancel(s.Context())
	defer kill()
	var dead bool
	var mu sync.Mutex
	died := func() error {
		mu.Lock()
		defer mu.Unlock()
		if dead {
			return errDead
		}
		return nil
	}
	w := &writes{}
	w.at = func(i int, _ *http.Request) error {
		if i == n && !answered {
			mu.Lock()
			dead = true
			mu.Unlock()
			kill()
		}
		return died()
	}
	w.got = func(i int) error {
		if i == n && answered {
			mu.Lock()
			dead = true
			mu.Unlock()
			kill()
		}
		return died()
	}
	e := s.Engine
	e.Config = s.through(w)
	s.epoch++
	e.Attempt = manifest.Attempt{Job: fmt.Sprintf("job_%d", s.epoch), Epoch: 1}
	err := e.Apply(ctx, p.Saved, func() {})
	if died() == nil {
		if err != nil {
			s.Fatal(err)
		}
		return false
	}
	if err == nil && w.n > n {
		s.Fatalf("the attempt succeeded, although it died at its write %d of %v", n, w.log)
	}
	return true
}

// known checks that the inventory has each object that carries the component's annotation.
func (s *site) known() {
	s.Helper()
	inv, _ := s.inventory()
	for _, name := range s.ours() {
		if !slices.ContainsFunc(inv.Objects, func(o struct{ Kind, Namespace, Name string }) bool { return o.Kind+"/"+o.Name == name }) {
			s.Errorf("%s is not in the inventory, which has %s", name, inv.names())
		}
	}
}

// ours lists the objects of the namespace with the component's annotation.
func (s *site) ours() (names []string) {
	s.Helper()
	owner := s.Owner.Install + "/" + s.Owner.Component
	maps, err := s.admin.CoreV1().ConfigMaps(s.ns).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range maps.Items {
		if o.Annotations["fairlead.dev/owner"] == owner {
			names = append(names, "ConfigMap/"+o.Name)
		}
	}
	list, err := s.admin.AppsV1().Deployments(s.ns).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Annotations["fairlead.dev/owner"] == owner {
			names = append(names, "Deployment/"+o.Name)
		}
	}
	return names
}

const fixed = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fixed}
immutable: true
data: {a: "1"}
`

// The story of every kill: an attempt dies at one of its writes. The inventory then has every object of the component, and the next
// plan and apply reach what the vendor wanted.
func TestKillAtEachWriteLeavesNoOrphan(t *testing.T) {
	before := first + fixed
	after := strings.NewReplacer("colour: blue", "colour: red", "web:1", "web:2", `{a: "1"}`, `{a: "2"}`, "name: old", "name: new").Replace(before)
	for _, answered := range []bool{false, true} {
		for n := 1; ; n++ {
			s := newSite(t)
			s.deploy(before)
			p := s.plan(after)
			s.wantRows(p, "replace ConfigMap/NS/fixed", "create ConfigMap/NS/new", "update ConfigMap/NS/settings", "update Deployment/NS/web", "delete ConfigMap/NS/old")
			if !s.die(p, n, answered) {
				if n < 8 {
					t.Fatalf("an apply has %d writes only", n-1)
				}
				break
			}
			s.known()
			s.deploy(after)
			if s.configMap("settings").Data["colour"] != "red" || s.configMap("fixed").Data["a"] != "2" || s.configMap("new").Data["a"] != "b" || s.exists(configMaps, s.ns, "old") {
				t.Errorf("killed at write %d, answered %t: the cluster is not as wanted", n, answered)
			}
		}
	}
}

func TestKillAtEachWriteOfDestroyLeavesNothing(t *testing.T) {
	for _, answered := range []bool{false, true} {
		for n := 1; ; n++ {
			s := newSite(t)
			s.deploy(first)
			if !s.die(s.planDestroy(), n, answered) {
				if n < 5 {
					t.Fatalf("a destroy has %d writes only", n-1)
				}
				break
			}
			s.known()
			if p := s.planDestroy(); !p.NoOp {
				s.apply(p)
			}
			if _, exists := s.inventory(); exists || len(s.ours()) > 0 {
				t.Errorf("killed at write %d, answered %t: the destroy left %v, inventory %t", n, answered, s.ours(), exists)
			}
		}
	}
}

// An install's own namespace comes before the inventory, which is in it.
func TestKillAfterOwnNamespaceLeavesNoOrphan(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	for _, answered := range []bool{false, true} {
		for n := 1; n <= 4; n++ {
			s := newSite(t)
			s.Namespace = s.ns + "-own"
			own := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
			if n%2 == 0 { // in the files, or made because it is missing
				own += "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + s.Namespace + "}\n"
			}
			p := s.plan(own)
			s.wantRows(p, "create Namespace/NS-own", "create ConfigMap/NS-own/a unverified")
			if !s.die(p, (n+1)/2, answered) {
				t.Fatalf("the apply has no write %d", (n+1)/2)
			}
			// The vendor's next version does without the namespace, and the component is destroyed.
			if p := s.planDestroy(); !p.NoOp {
				s.apply(p)
			}
			if _, err := s.admin.CoreV1().Namespaces().Get(t.Context(), s.Namespace, metav1.GetOptions{}); err == nil {
				t.Errorf("killed at write %d, answered %t: the namespace stays", (n+1)/2, answered)
			}
		}
	}
}

// An attempt whose machine slept continues after a newer attempt.
func TestOvertakenAttemptStopsBeforeItsNextChange(t *testing.T) {
	s := newSite(t)
	s.deploy(first)
	red, green := strings.Replace(first, "blue", "red", 1), strings.Replace(first, "blue", "green", 1)
	p := s.plan(strings.Replace(red, "{a: b}", "{a: c}", 1))
	s.wantRows(p, "update ConfigMap/NS/old", "update ConfigMap/NS/settings")
	slept, wake := make(chan struct{}), make(chan struct{})
	w := &writes{at: func(n int, _ *http.Request) error {
		if n == 2 { // after the inventory, before the first object
			close(slept)
			<-wake
		}
		return nil
	}}
	old := s.Engine
	old.Config, old.Attempt = s.through(w), manifest.Attempt{Job: "job_sleeper", Epoch: 1}
	ended := make(chan error)
	go func() { ended <- old.Apply(t.Context(), p.Saved, func() {}) }()
	<-slept
	s.apply(s.plan(strings.Replace(green, "{a: b}", "{a: d}", 1)))
	close(wake)
	err := <-ended
	if plugin.ReasonOf(err) != fairlead.ReasonStale || !strings.Contains(err.Error(), s.Attempt.Job) {
		t.Errorf("the overtaken attempt ended with %v", err)
	}
	if w.n != 2 {
		t.Errorf("the overtaken attempt sent %v", w.log)
	}
	if got := s.configMap("settings").Data["colour"]; got != "green" {
		t.Errorf("the colour is %s", got)
	}
	if got := s.configMap("old").Data["a"]; got != "d" {
		t.Errorf("the overtaken attempt has written %s", got)
	}
}
