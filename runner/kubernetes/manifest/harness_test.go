package manifest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/testserver"
)

var cluster kube.Server

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

// secret is a secret of the job, which the mask hides.
const secret = "hunter22-secret"

func mask(s string) string { return strings.ReplaceAll(s, secret, changeset.Sensitive) }

// site is a namespace of a real cluster, and an engine for a component in it.
type site struct {
	*testing.T
	manifest.Engine
	admin   kubernetes.Interface
	dynamic dynamic.Interface
	ns      string
	log     *lockedBuffer
	epoch   int64
	mutated bool
}

// lockedBuffer is a log that several goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	s := &site{T: t, log: &lockedBuffer{}}
	if s.admin, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if s.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	ns, err := s.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "install-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.ns = ns.Name
	s.use(cfg)
	t.Cleanup(func() {
		s.admin.CoreV1().Namespaces().Delete(context.Background(), s.ns, metav1.DeleteOptions{})
		if t.Failed() {
			t.Logf("log:\n%s", s.log)
		}
	})
	return s
}

// use makes the engine of the site's component, with a new attempt.
func (s *site) use(cfg *rest.Config) {
	s.epoch++
	s.Engine = manifest.Engine{Config: cfg, Log: s.log, Mask: mask, Now: time.Now, Namespace: s.ns,
		Owner: manifest.Owner{Install: "ins_" + s.ns, Component: "web"}, Attempt: manifest.Attempt{Job: fmt.Sprintf("job_%d", s.epoch), Epoch: 1},
		Limits: manifest.Limits{Ready: 20 * time.Second, Delete: 20 * time.Second, Retry: 5 * time.Second, Poll: 20 * time.Millisecond}}
}

// other returns a site for another component in the same namespace.
func (s *site) other(component string) *site {
	o := *s
	o.Owner.Component = component
	return &o
}

// files writes a component's folder. The names of the files end at the first line: "-- NAME --".
func (s *site) objects(text string) []manifest.Object {
	s.Helper()
	objects, err := s.parse(text)
	if err != nil {
		s.Fatal(err)
	}
	return objects
}

func (s *site) parse(text string) ([]manifest.Object, error) {
	return parse(s.T, map[string]string{"web.yaml": text})
}

// parse reads a folder with these files.
func parse(t *testing.T, files map[string]string) ([]manifest.Object, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return manifest.Parse(root.FS())
}

func (s *site) plan(text string) manifest.Planned {
	s.Helper()
	p, err := s.Plan(s.Context(), s.objects(text), false)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

func (s *site) planDestroy() manifest.Planned {
	s.Helper()
	p, err := s.Plan(s.Context(), nil, true)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// try applies a plan in a new attempt.
func (s *site) try(p manifest.Planned) error {
	s.epoch++
	s.Attempt, s.mutated = manifest.Attempt{Job: fmt.Sprintf("job_%d", s.epoch), Epoch: 1}, false
	return s.Apply(s.Context(), p.Saved, func() { s.mutated = true })
}

func (s *site) apply(p manifest.Planned) {
	s.Helper()
	if err := s.try(p); err != nil {
		s.Fatal(err)
	}
}

// deploy plans and applies, and checks that the next plan finds nothing to do.
func (s *site) deploy(text string) manifest.Planned {
	s.Helper()
	p := s.plan(text)
	s.apply(p)
	if again := s.plan(text); !again.NoOp {
		s.Fatalf("the plan after the apply is not empty: %s", rows(again))
	}
	return p
}

// refused checks that err has the reason and that its message has the texts.
func (s *site) refused(err error, reason fairlead.Reason, texts ...string) {
	s.Helper()
	if plugin.ReasonOf(err) != reason || err == nil {
		s.Fatalf("got %v (%s), want the reason %s", err, plugin.ReasonOf(err), reason)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			s.Errorf("the message %q does not have %q", err, text)
		}
	}
}

// rows renders the changes: "create ConfigMap/NS/a; update …". The site's namespace is NS.
func rows(p manifest.Planned) string {
	var all []string
	for _, c := range p.Changes {
		row := string(c.Action) + " " + c.Address
		if c.Unverified {
			row += " unverified"
		}
		all = append(all, row)
	}
	return strings.Join(all, "; ")
}

func (s *site) wantRows(p manifest.Planned, want ...string) {
	s.Helper()
	if got := strings.ReplaceAll(rows(p), s.ns, "NS"); got != strings.Join(want, "; ") {
		s.Fatalf("the plan has\n%s, want\n%s", got, strings.Join(want, "; "))
	}
}

func (s *site) row(p manifest.Planned, address string) changeset.Change {
	s.Helper()
	i := slices.IndexFunc(p.Changes, func(c changeset.Change) bool { return strings.ReplaceAll(c.Address, s.ns, "NS") == address })
	if i < 0 {
		s.Fatalf("no change of %s in %s", address, rows(p))
	}
	return p.Changes[i]
}

func (s *site) configMap(name string) *corev1.ConfigMap {
	s.Helper()
	c, err := s.admin.CoreV1().ConfigMaps(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *site) exists(resource schema.GroupVersionResource, namespace, name string) bool {
	s.Helper()
	var client dynamic.ResourceInterface = s.dynamic.Resource(resource)
	if namespace != "" {
		client = s.dynamic.Resource(resource).Namespace(namespace)
	}
	_, err := client.Get(s.Context(), name, metav1.GetOptions{})
	return err == nil
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// record is the component's inventory.
type record struct {
	Revision int64
	Job      string
	Objects  []struct{ Kind, Namespace, Name string }
}

func (s *site) inventory() (r record, exists bool) {
	s.Helper()
	list, err := s.admin.CoreV1().Secrets(s.Namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "fairlead.dev/component=" + s.Owner.Component + ",fairlead.dev/install=" + s.Owner.Install})
	if err != nil {
		s.Fatal(err)
	}
	if len(list.Items) == 0 {
		return r, false
	}
	if len(list.Items) > 1 {
		s.Fatalf("%d inventories", len(list.Items))
	}
	if err := json.Unmarshal(list.Items[0].Data["inventory"], &r); err != nil {
		s.Fatal(err)
	}
	return r, true
}

// inventoryName returns the name of the component's inventory, which no other Secret has.
func (s *site) inventoryName() string {
	s.Helper()
	list, err := s.admin.CoreV1().Secrets(s.Namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "fairlead.dev/component=" + s.Owner.Component})
	if err != nil || len(list.Items) != 1 {
		s.Fatalf("%d inventories, %v", len(list.Items), err)
	}
	return list.Items[0].Name
}

func (r record) names() string {
	var all []string
	for _, o := range r.Objects {
		all = append(all, o.Kind+"/"+o.Name)
	}
	return strings.Join(all, " ")
}

// await waits until the condition holds.
func (s *site) await(what string, holds func() bool) {
	s.Helper()
	err := testserver.Await(30*time.Second, func() error {
		if !holds() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// context returns a context for cleanups.
func (s *site) context() context.Context { return context.WithoutCancel(s.Context()) }

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), u); err != nil {
		t.Fatal(err)
	}
	return u
}
