package direct_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/pkg/transport"
	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
)

// newSecurePlane is newPlane with TLS. No machine trusts its certificate by default; its agents get the CA certificate.
func newSecurePlane(t *testing.T, environ ...string) *plane {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	folder := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca := write("ca.pem", "CERTIFICATE", s.Certificate().Raw)
	o := local.Options{TLSCert: write("tls.crt", "CERTIFICATE", s.Certificate().Raw), TLSKey: write("tls.key", "PRIVATE KEY", key)}
	trusted, err := transport.ReadCA(ca)
	if err != nil {
		t.Fatal(err)
	}
	via, err := transport.New(trusted)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, data: t.TempDir(), environ: append(environ, "FAIRLEAD_CA_FILE="+ca), identity: clouds.Identity{}, ca: ca}
	p.start(o, via)
	return p
}

// An agent next to the control plane passes its CA certificate to the steps that it starts elsewhere, so they trust a
// control plane with a private CA.
func TestStepsTrustThePrivateCAOfTheControlPlane(t *testing.T) {
	a := newAccount(t)
	a.cloud(t)
	p := newSecurePlane(t, file("aws-ecs", fmt.Sprintf("data: %q", t.TempDir())))
	p.make("near", a.runner(managerRole, "runner"))
	p.make("far", a.runner("", "runner"))
	p.install("far")
	p.same("succeeded", "")
}

// If FAIRLEAD_CA_FILE has more certificates than ECS passes to a task, no task could start. The agent reports that before
// it has a job, and names the variable.
func TestTooManyCertificatesForATaskAreReported(t *testing.T) {
	a := newAccount(t)
	a.cloud(t)
	p := newSecurePlane(t, file("aws-ecs", fmt.Sprintf("data: %q", t.TempDir())))
	one, err := os.ReadFile(p.ca)
	if err != nil {
		t.Fatal(err)
	}
	many := filepath.Join(t.TempDir(), "many.pem")
	if err := os.WriteFile(many, []byte(strings.Repeat(string(one), 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.stop()
	p.environ = append(p.environ, "FAIRLEAD_CA_FILE="+many) // the last value applies
	p.serve()
	p.make("near", a.runner(managerRole, "runner"))
	p.isUnhealthy("near", "the certificates of FAIRLEAD_CA_FILE have")
	p.isUnhealthy("near", "ECS accepts at most 8192")
}
