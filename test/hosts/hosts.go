// Package hosts serves a test's handlers under host names of the internet.
package hosts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Serve serves handlers over TLS under their host names. * matches any first label.
// Clients must trust the authority in the file and use the proxy.
func Serve(t testing.TB, hosts map[string]http.Handler) (authority, proxy string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// Without a name, curl finds no issuer of the certificate.
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hosts of a test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	for host := range hosts {
		cert.DNSNames = append(cert.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authority = filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	at := map[string]string{}
	for host, h := range hosts {
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
		s.StartTLS()
		t.Cleanup(s.Close)
		at[host+":443"] = s.Listener.Addr().String()
	}
	tunnel := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, ok := at[r.Host]
		if _, domain, _ := strings.Cut(r.Host, "."); !ok { // each bucket has its own host name
			address, ok = at["*."+domain]
		}
		if r.Method != http.MethodConnect || !ok {
			t.Errorf("unexpected request to the proxy: %s %s", r.Method, r.Host)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway) // the server stopped because the test ended
			return
		}
		defer func() { _ = there.Close() }()
		w.WriteHeader(http.StatusOK)
		here, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = here.Close() }()
		go func() {
			_, _ = io.Copy(there, io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), here))
		}() // ends with the connections
		_, _ = io.Copy(here, there)
	}))
	t.Cleanup(tunnel.Close)
	return authority, tunnel.URL
}

// Client serves handlers as Serve does and returns a client that reaches them.
func Client(t testing.TB, hosts map[string]http.Handler) *http.Client {
	t.Helper()
	authority, proxy := Serve(t, hosts)
	return &http.Client{Transport: Transport(t, authority, proxy)}
}

// Transport returns a transport to hosts that Serve serves, with the authority and the
// proxy that Serve returned.
func Transport(t testing.TB, authority, proxy string) *http.Transport {
	t.Helper()
	roots, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	through, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(through), TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
