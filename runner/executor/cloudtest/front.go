// Package cloudtest simulates what moto and a plain API server lack: the authentication of clouds' Kubernetes clusters.
// Each Front is a TLS server that authenticates requests as its cloud does, and forwards requests of known users to the
// cluster.
package cloudtest

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// API answers a user's requests to the cluster.
type API func(w http.ResponseWriter, r *http.Request, user string)

// Front is the TLS server of one cluster. It ends with the test.
type Front struct {
	server *httptest.Server
	api    API
	whois  func(token string) (user string, err error)

	mu      sync.Mutex
	tokens  []string        // the tokens of the requests, in order; equal consecutive tokens are stored once
	refused []string        // reasons of refusals
	revoked map[string]bool // tokens that Revoke revoked
}

func newFront(t testing.TB, api API, whois func(string) (string, error)) *Front {
	f := &Front{api: api, whois: whois, revoked: map[string]bool{}}
	f.server = httptest.NewTLSServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// URL is the address of the cluster.
func (f *Front) URL() string { return f.server.URL }

// Authority is the cluster's certificate authority, PEM.
func (f *Front) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
}

// Tokens returns the tokens of the requests in order. Equal consecutive tokens are returned once.
func (f *Front) Tokens() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.tokens...)
}

// Refused returns the reasons of refused requests.
func (f *Front) Refused() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.refused...)
}

// Revoke makes the server refuse a valid token.
func (f *Front) Revoke(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoked[token] = true
}

// ServeHTTP forwards an authenticated request, or answers 401 like an API server.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, err := f.whois(token)
	f.mu.Lock()
	if n := len(f.tokens); n == 0 || f.tokens[n-1] != token {
		f.tokens = append(f.tokens, token)
	}
	if f.revoked[token] {
		err = errors.New("the token was revoked")
	}
	if err != nil {
		f.refused = append(f.refused, err.Error())
	}
	f.mu.Unlock()
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
		return
	}
	f.api(w, r, user)
}

// Hosts sends requests to handlers by host name. Other hosts do not exist.
type Hosts map[string]http.Handler

// RoundTrip answers a request to a host.
func (h Hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	by, ok := h[r.URL.Hostname()]
	if !ok || r.URL.Scheme != "https" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: r.URL.Hostname(), IsNotFound: true}}
	}
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	in := r.Clone(r.Context())
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	in.RequestURI = r.URL.RequestURI()
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	out := httptest.NewRecorder()
	by.ServeHTTP(out, in)
	answer := out.Result()
	answer.Request = r
	return answer, nil
}
