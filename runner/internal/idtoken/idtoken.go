// Package idtoken gets the OIDC token with which a workload's platform identifies the workload. The
// source of the token is a file that the platform writes, a CI's endpoint, or a virtual machine's
// metadata server. The package gets a new token for each session and stores no token.
package idtoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
)

// maxToken is the longest token that the control plane accepts, in bytes.
const maxToken = 12 << 10

// maxAnswer bounds the response of an endpoint, in bytes: a token in JSON.
const maxAnswer = 64 << 10

// timeout bounds one request. All endpoints are on this machine, except the endpoint of the CI.
const timeout = 10 * time.Second

// Source gets tokens. Safe for concurrent use.
type Source interface {
	// Token returns a token for the audience. A source for which Chooses is false may ignore the
	// audience.
	Token(ctx context.Context, audience string) (string, error)
	// Chooses reports whether the source accepts any audience. If so, the caller can bind the token to
	// one request.
	Chooses() bool
}

// Open returns the source that the configuration names.
func Open(c config.OIDC) (Source, error) {
	if c.Source != "file" && c.Audience == "" {
		return nil, fmt.Errorf("source %s needs FAIRLEAD_OIDC_AUDIENCE: set it to the audience of the service account", c.Source)
	}
	switch c.Source {
	case "file":
		if c.File == "" {
			return nil, errors.New("source file needs FAIRLEAD_OIDC_TOKEN_FILE: set it to the file in which the platform writes the token")
		}
		return file(c.File), nil
	case "github":
		u, err := url.Parse(c.RequestURL)
		if err != nil || c.RequestURL == "" || c.RequestToken == "" {
			return nil, errors.New("the job has no ACTIONS_ID_TOKEN_REQUEST_URL and ACTIONS_ID_TOKEN_REQUEST_TOKEN: give it `permissions: id-token: write`")
		}
		if u.Scheme != "https" && !loopback(u.Hostname()) {
			return nil, fmt.Errorf("ACTIONS_ID_TOKEN_REQUEST_URL, at %s, is not https, and the request to it holds a secret", u.Host)
		}
		return &endpoint{client: client(http.ProxyFromEnvironment), chooses: true, read: field("value"), request: func(audience string) (string, http.Header) {
			q := u.Query()
			q.Set("audience", audience)
			at := *u
			at.RawQuery = q.Encode()
			return at.String(), http.Header{"Authorization": {"Bearer " + c.RequestToken}}
		}}, nil
	case "gcp":
		return &endpoint{client: client(nil), chooses: true, read: plain, request: func(audience string) (string, http.Header) {
			return "http://" + c.GCPHost + "/computeMetadata/v1/instance/service-accounts/default/identity?" +
				url.Values{"audience": {audience}, "format": {"full"}}.Encode(), http.Header{"Metadata-Flavor": {"Google"}}
		}}, nil
	case "azure":
		return &endpoint{client: client(nil), read: field("access_token"), request: func(audience string) (string, http.Header) {
			q := url.Values{"api-version": {"2018-02-01"}, "resource": {audience}}
			if c.AzureClientID != "" {
				q.Set("client_id", c.AzureClientID)
			}
			return strings.TrimSuffix(c.AzureHost, "/") + "/metadata/identity/oauth2/token?" + q.Encode(), http.Header{"Metadata": {"true"}}
		}}, nil
	}
	return nil, fmt.Errorf("FAIRLEAD_OIDC_SOURCE: %q is not one of file, github, gcp, azure", c.Source)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// file is the path of a file. The platform replaces the file before its token expires.
type file string

// Token implements Source.
func (f file) Token(context.Context, string) (string, error) {
	r, err := os.Open(string(f))
	if err != nil {
		return "", fmt.Errorf("read the runner's OIDC token: %w", err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxToken+2)) // a token and a line break
	if err != nil {
		return "", fmt.Errorf("read the runner's OIDC token: %w", err)
	}
	return clean(b, "the file "+string(f))
}

// Chooses implements Source: the audience is in the pod's manifest.
func (file) Chooses() bool { return false }

// endpoint is a source that gets the token over HTTP.
type endpoint struct {
	client  *http.Client
	chooses bool
	request func(audience string) (at string, h http.Header)
	read    func(body []byte) ([]byte, error) // returns the token in a response
}

// client returns an HTTP client that follows no redirect, because its requests contain a secret or are
// meant only for an endpoint of this machine.
func client(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.DisableKeepAlives = proxy, true // one request about every ten minutes
	return &http.Client{Transport: t, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Token implements Source.
func (e *endpoint) Token(ctx context.Context, audience string) (string, error) {
	at, h := e.request(audience)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", errors.New("request the runner's OIDC token: the platform's endpoint is not a URL")
	}
	r.Header = h
	a, err := e.client.Do(r)
	if err != nil {
		return "", fmt.Errorf("request the runner's OIDC token: %w", err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("request the runner's OIDC token from %s: %w", r.URL.Host, err)
	}
	if a.StatusCode != http.StatusOK {
		return "", fmt.Errorf("request the runner's OIDC token from %s: status %d", r.URL.Host, a.StatusCode)
	}
	if b, err = e.read(b); err != nil {
		return "", fmt.Errorf("request the runner's OIDC token from %s: %w", r.URL.Host, err)
	}
	return clean(b, r.URL.Host)
}

// Chooses implements Source.
func (e *endpoint) Chooses() bool { return e.chooses }

func plain(b []byte) ([]byte, error) { return b, nil }

// field returns a function that reads the token from a field of a JSON object.
func field(name string) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			return nil, errors.New("the response is not a JSON object")
		}
		s, _ := m[name].(string)
		return []byte(s), nil
	}
}

// clean returns the token without white space. Its error does not contain the text, which may be a
// secret.
func clean(b []byte, from string) (string, error) {
	t := strings.TrimSpace(string(b))
	if strings.Count(t, ".") != 2 || len(t) > maxToken {
		return "", fmt.Errorf("%s holds no signed token of at most %d bytes", from, maxToken)
	}
	return t, nil
}
