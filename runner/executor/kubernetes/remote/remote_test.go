package remote_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor/kubernetes/remote"
)

// The agent connects to the cluster with the configuration's credentials. It connects only if the cluster's certificate has
// the configured authority. It does not use the control plane's own proxy.
func TestClusterIsReachedFromOutside(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"))
	}))
	defer server.Close()
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for name, tc := range map[string]struct{ authority, want, fails string }{
		"with its authority":            {authority, "Bearer hush", ""},
		"with the system's authorities": {"", "", "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := remote.Config(&runnerspec.KubernetesRunner{Cluster: &runnerspec.KubernetesCluster{Server: server.URL, CertificateAuthorityData: tc.authority,
				Auth: runnerspec.KubernetesAuth{ServiceAccountToken: "hush"}}}, remote.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := through(t, cfg)
			defer c.CloseIdleConnections()
			resp, err := c.Get(server.URL)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got := make([]byte, 100)
			if n, _ := resp.Body.Read(got); string(got[:n]) != tc.want {
				t.Errorf("the server got %q", got[:n])
			}
		})
	}
	if cfg, err := remote.Config(&runnerspec.KubernetesRunner{}, remote.Options{}); cfg != nil || err != nil {
		t.Errorf("without a cluster: %v, %v", cfg, err)
	}
	if _, err := remote.Config(&runnerspec.KubernetesRunner{Cluster: &runnerspec.KubernetesCluster{Auth: runnerspec.KubernetesAuth{ClientKeyData: "hush!"}}}, remote.Options{}); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("an invalid key: %v", err)
	}
}
