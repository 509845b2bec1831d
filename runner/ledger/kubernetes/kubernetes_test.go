package kubernetes_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"testing"

	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/kubernetes"
	"github.com/fairlead/fairlead/runner/ledger/ledgertest"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

var cluster kube.Server

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

func TestConformance(t *testing.T) {
	c, err := kube.NewClient(cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "ledger-conformance"
	if status, answer, err := c.Do(t.Context(), http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "`+namespace+`"}}`); err != nil || status != http.StatusCreated {
		t.Fatalf("create the namespace: %d %s (%v)", status, answer, err)
	}
	connections := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	ledgertest.Run(t, func(*testing.T) ledger.Ledger {
		return kubernetes.New(kubernetes.Options{URL: c.URL(), Namespace: namespace, Transport: connections, Token: func() (string, error) { return c.Token(), nil }})
	})
}
