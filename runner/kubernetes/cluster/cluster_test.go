package cluster_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/cluster"
	"github.com/fairlead/fairlead/runner/plugin"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://a.example"}}, {name: b, cluster: {server: "https://b.example"}}]
users: [{name: u, user: {token: sesame-token}}]
contexts: [{name: one, context: {cluster: a, user: u}}, {name: two, context: {cluster: b, user: u}}]
current-context: one
`

func TestSettingsComeFromTheKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, damaged, users := write("good", kubeconfig), write("damaged", "users: [{token: sesame-token"), write("users", "apiVersion: v1\nkind: Config\ncurrent-context: two\n")
	for name, tc := range map[string]struct {
		source cluster.Source
		host   string // "": refused
	}{
		"the current context":         {cluster.Source{Kubeconfig: good}, "https://a.example"},
		"another context":             {cluster.Source{Kubeconfig: good, Context: "two"}, "https://b.example"},
		"several files":               {cluster.Source{Kubeconfig: users + string(filepath.ListSeparator) + good}, "https://b.example"},
		"a context that is not there": {cluster.Source{Kubeconfig: good, Context: "three"}, ""},
		"a file that is not there":    {cluster.Source{Kubeconfig: filepath.Join(dir, "absent")}, ""},
		"a damaged file":              {cluster.Source{Kubeconfig: damaged}, ""},
		"no file, and no pod":         {cluster.Source{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := cluster.Config(tc.source)
			if tc.host != "" {
				if err != nil || cfg.Host != tc.host || cfg.BearerToken != "sesame-token" {
					t.Errorf("got %v, %v", cfg, err)
				}
				return
			}
			if plugin.ReasonOf(err) != fairlead.ReasonClusterUnknown || strings.Contains(err.Error(), "sesame") {
				t.Errorf("got %v (%s)", err, plugin.ReasonOf(err))
			}
		})
	}
}

func TestOnlyPassingFailuresAreTemporary(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                           {nil, false},
		"a refused connection":               {fmt.Errorf("get: %w", errors.New("connection refused")), true},
		"a server that asks to wait":         {apierrors.NewTooManyRequests("later", 1), true},
		"a server that is too slow":          {apierrors.NewTimeoutError("slow", 1), true},
		"a server in trouble":                {apierrors.NewInternalError(errors.New("etcd")), true},
		"a server that stops":                {apierrors.NewServiceUnavailable("stopping"), true},
		"a missing object":                   {apierrors.NewNotFound(widgets, "a"), false},
		"a missing permission":               {apierrors.NewForbidden(widgets, "a", errors.New("no")), false},
		"a conflict":                         {apierrors.NewConflict(widgets, "a", errors.New("no")), false},
		"an unknown kind":                    {&meta.NoKindMatchError{}, false},
		"the caller has given up":            {fmt.Errorf("get: %w", context.Canceled), false},
		"a certificate that is not accepted": {fmt.Errorf("get: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cluster.Temporary(tc.err); got != tc.want {
				t.Errorf("Temporary(%v) = %t", tc.err, got)
			}
		})
	}
}

// A kind that comes after the first look is found after a reset.
func TestNewKindIsFoundAfterAReset(t *testing.T) {
	kinds := []metav1.APIResource{{Name: "gadgets", Kind: "Gadget", Namespaced: true, Verbs: []string{"get"}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch r.URL.Path {
		case "/api":
			answer = metav1.APIVersions{}
		case "/apis":
			answer = metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "example.com/v1", Version: "v1"}}}}}
		case "/apis/example.com/v1":
			answer = metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: kinds}
		default:
			http.NotFound(w, r)
			return
		}
		json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	c, err := cluster.Connect(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	if _, err := c.Mapping(t.Context(), widget, "v1"); !meta.IsNoMatchError(err) {
		t.Fatalf("got %v", err)
	}
	kinds = append(kinds, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: []string{"list"}})
	if _, err := c.Mapping(t.Context(), widget, "v1"); !meta.IsNoMatchError(err) {
		t.Fatalf("the kind is found before the reset: %v", err)
	}
	c.Reset(t.Context())
	for _, version := range []string{"v1", ""} {
		if m, err := c.Mapping(t.Context(), widget, version); err != nil || m.Resource.Resource != "widgets" {
			t.Errorf("version %q: %v, %v", version, m, err)
		}
	}
	if _, err := c.Mapping(t.Context(), widget, "v2"); !meta.IsNoMatchError(err) {
		t.Errorf("another version: %v", err)
	}
	if all, err := c.Listable(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("listable are %v, %v", all, err)
	}
}

func TestNamedClusterNeedsAnAddressAndCredentials(t *testing.T) {
	e := httptest.NewTLSServer(http.NotFoundHandler())
	defer e.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw}))
	for consequence, c := range map[string]struct {
		source cluster.Source
		reason fairlead.Reason
		says   string
	}{
		"an address without TLS is refused":        {cluster.Source{Endpoint: "http://a.example", Token: "t"}, fairlead.ReasonClusterUnknown, "https URL"},
		"a password in the address is refused":     {cluster.Source{Endpoint: "https://u:p@a.example", Token: "t"}, fairlead.ReasonClusterUnknown, "https URL"},
		"an authority without PEM is refused":      {cluster.Source{Endpoint: e.URL, CA: "bm90IFBFTQ==", Token: "t"}, fairlead.ReasonClusterUnknown, "no certificate"},
		"a cluster without credentials is refused": {cluster.Source{Endpoint: e.URL, CA: ca}, fairlead.ReasonClusterUnknown, "KUBE_TOKEN"},
		"a token is used as it is":                 {cluster.Source{Endpoint: e.URL, CA: ca, Token: "sesame"}, "", ""},
	} {
		t.Run(consequence, func(t *testing.T) {
			cfg, err := cluster.Config(c.source)
			if c.reason == "" {
				if err != nil || cfg.BearerToken != "sesame" {
					t.Errorf("got %v", err)
				}
				return
			}
			if plugin.ReasonOf(err) != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v (%s)", err, plugin.ReasonOf(err))
			}
		})
	}
}
