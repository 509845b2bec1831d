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

// newSecurePlane is newPlane of one that serves over TLS, with a certificate that no
// machine trusts by itself. Its agents get the certificate that it is signed by.
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
	way, err := transport.New(trusted)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, data: t.TempDir(), environ: append(environ, "FAIRLEAD_CA_FILE="+ca), who: clouds.Identity{}, ca: ca}
	p.start(o, way)
	return p
}

// A step that an agent beside the control plane starts elsewhere trusts the
// certificate of a private authority, from its settings.
func TestStepsTrustThePrivateAuthorityOfTheControlPlane(t *testing.T) {
	a := newAccount(t)
	a.cloud(t)
	p := newSecurePlane(t, file("aws-ecs", fmt.Sprintf("data: %q", t.TempDir())))
	p.make("near", a.runner(managerRole, "runner"))
	p.make("far", a.runner("", "runner"))
	p.install("far")
	p.same("succeeded", "")
}

// With more certificates than ECS passes to a task every job failed, with advice that
// did not help. The agent says it now before there is a job.
func TestMoreCertificatesThanATaskIsPassed(t *testing.T) {
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
	p.environ = append(p.environ, "FAIRLEAD_CA_FILE="+many) // the last one counts
	p.serve()
	p.make("near", a.runner(managerRole, "runner"))
	p.told("near", "the certificates of FAIRLEAD_CA_FILE have")
	p.told("near", "ECS takes 8192")
}
