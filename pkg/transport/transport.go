// Package transport is how a control plane and its registry are called: over TLS,
// by the certificates that a caller trusts, and without TLS on this machine alone.
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

// PlainError says that a request was not sent, because it would have crossed a
// network without TLS.
type PlainError struct{ Host string }

func (e *PlainError) Error() string {
	return fmt.Sprintf("%s is on another machine and its URL begins with http://: a token sent there can be read on the way", e.Host)
}

// CheckPlain returns a *PlainError if u is without TLS and of another machine,
// unless that is allowed. A token is as easily read on the way to a private
// address, or to a name that ends in ".local", as elsewhere.
func CheckPlain(u *url.URL, allowed bool) error {
	if u.Scheme == "http" && !allowed && !IsLoopback(u.Hostname()) {
		return &PlainError{Host: u.Host}
	}
	return nil
}

// PlainGuard refuses what CheckPlain does, also of redirects.
type PlainGuard struct {
	Inner   http.RoundTripper
	Allowed bool
	Refuse  func(*PlainError) error // makes the error of it; nil: as it is
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

// New returns a transport that trusts the certificates of ca, in PEM, beside those
// of this machine; ca "" adds none. It keeps connections, and waits for an answer
// three times as long as the longest wait that the control plane is asked for.
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
		return nil, errors.New("there is no certificate in PEM")
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	return t, nil
}

// ReadCA reads the file of the certificates that are trusted, in PEM. Path "": "".
func ReadCA(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the certificates that are trusted: %w", err)
	}
	if _, err := New(string(data)); err != nil {
		return "", fmt.Errorf("the certificates that are trusted, %s: %w", path, err)
	}
	return string(data), nil
}
