// Package transport makes HTTP transports for clients of a control plane and its
// registry. The transports use TLS with the certificates that the caller trusts.
// Without TLS they connect only to this machine.
package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// PlainError means that a request was not sent, because it would cross a network
// without TLS.
type PlainError struct{ Host string }

func (e *PlainError) Error() string {
	return fmt.Sprintf("%s is on another machine and its URL begins with http://: others on the network could read the token", e.Host)
}

// CheckPlain returns a *PlainError if u is without TLS and on another machine, unless
// allowed is set. It refuses also private addresses and names that end in ".local",
// because others can read a token on a private network too.
func CheckPlain(u *url.URL, allowed bool) error {
	if u.Scheme == "http" && !allowed && !IsLoopback(u.Hostname()) {
		return &PlainError{Host: u.Host}
	}
	return nil
}

// PlainGuard is a RoundTripper that refuses all requests that CheckPlain refuses, also
// redirected requests.
type PlainGuard struct {
	Inner   http.RoundTripper
	Allowed bool
	Refuse  func(*PlainError) error // returns the error to report; nil: the *PlainError
}

// RoundTrip passes the request on or refuses it.
func (g PlainGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	err := CheckPlain(req.URL, g.Allowed)
	if plain, ok := errors.AsType[*PlainError](err); ok && g.Refuse != nil {
		err = g.Refuse(plain)
	}
	if err != nil {
		return nil, err
	}
	return g.Inner.RoundTrip(req)
}

// IsLoopback reports whether the host, without a port, is this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// New returns a transport that trusts the certificates of this machine and the
// certificates in ca, in PEM; ca may be "". The transport keeps connections open. Its
// timeout for an answer is three times the longest wait that a client requests from the
// control plane.
func New(ca string) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16
	t.ResponseHeaderTimeout = 60 * time.Second
	if ca == "" {
		return t, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("no certificate in PEM format was found")
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	return t, nil
}

// ReadCA reads a file of trusted certificates in PEM and checks it. For path "" it
// returns "".
func ReadCA(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the trusted certificates: %w", err)
	}
	if _, err := New(string(data)); err != nil {
		return "", fmt.Errorf("trusted certificates in %s: %w", path, err)
	}
	return string(data), nil
}
