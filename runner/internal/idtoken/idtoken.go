// Package idtoken gets the token by which a workload's platform says who it is:
// from a file that the platform writes, from a CI's endpoint, from a virtual
// machine's metadata. A token is asked for anew for each session and kept
// nowhere.
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

// maxToken is the longest token that the control plane takes, in bytes.
const maxToken = 12 << 10

// maxAnswer bounds the answer of an endpoint, in bytes: a token in JSON.
const maxAnswer = 64 << 10

// timeout bounds one question. All endpoints but the CI's are on the machine.
const timeout = 10 * time.Second

// Source gives tokens. Safe for concurrent use.
type Source interface {
	// Token returns a token for the audience. A source that does not choose the
	// audience returns the token that it has.
	Token(ctx context.Context, audience string) (string, error)
	// Chooses reports whether the audience may be any: then the token can be bound
	// to what it is used for.
	Chooses() bool
}

// Open returns the source that the configuration names.
func Open(c config.OIDC) (Source, error) {
	if c.Source != "file" && c.Audience == "" {
		return nil, fmt.Errorf("FAIRLEAD_OIDC_AUDIENCE is to be the audience of the runner's trust, to ask %s for a token", c.Source)
	}
	switch c.Source {
	case "file":
		if c.File == "" {
			return nil, errors.New("FAIRLEAD_OIDC_TOKEN_FILE is to name the file in which the platform puts the token")
		}
		return file(c.File), nil
	case "github":
		u, err := url.Parse(c.RequestURL)
		if err != nil || c.RequestURL == "" || c.RequestToken == "" {
			return nil, errors.New("the job has no ACTIONS_ID_TOKEN_REQUEST_URL and ACTIONS_ID_TOKEN_REQUEST_TOKEN: give it `permissions: id-token: write`")
		}
		if u.Scheme != "https" && !loopback(u.Hostname()) {
			return nil, fmt.Errorf("ACTIONS_ID_TOKEN_REQUEST_URL, at %s, is not https, and what is sent there is a secret", u.Host)
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
	return nil, fmt.Errorf("FAIRLEAD_OIDC_SOURCE: %q is none: file, github, gcp and azure are", c.Source)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// file is a file that the platform writes anew before its token ends.
type file string

// Token implements Source.
func (f file) Token(context.Context, string) (string, error) {
	r, err := os.Open(string(f))
	if err != nil {
		return "", fmt.Errorf("read the runner's OIDC token: %w", err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxToken+2)) // a line's end behind it
	if err != nil {
		return "", fmt.Errorf("read the runner's OIDC token: %w", err)
	}
	return clean(b, "the file "+string(f))
}

// Chooses implements Source: the audience is in the pod's manifest.
func (file) Chooses() bool { return false }

// endpoint is asked over HTTP.
type endpoint struct {
	client  *http.Client
	chooses bool
	request func(audience string) (at string, h http.Header)
	read    func(body []byte) ([]byte, error)
}

// client returns one that follows no redirect: what it sends is a secret, or
// what it asks is for this machine alone.
func client(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.DisableKeepAlives = proxy, true // asked every ten minutes
	return &http.Client{Transport: t, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Token implements Source.
func (e *endpoint) Token(ctx context.Context, audience string) (string, error) {
	at, h := e.request(audience)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", errors.New("ask for the runner's OIDC token: the platform's endpoint is no URL")
	}
	r.Header = h
	a, err := e.client.Do(r)
	if err != nil {
		return "", fmt.Errorf("ask for the runner's OIDC token: %w", err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("ask %s for the runner's OIDC token: %w", r.URL.Host, err)
	}
	if a.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask %s for the runner's OIDC token: status %d", r.URL.Host, a.StatusCode)
	}
	if b, err = e.read(b); err != nil {
		return "", fmt.Errorf("ask %s for the runner's OIDC token: %w", r.URL.Host, err)
	}
	return clean(b, r.URL.Host)
}

// Chooses implements Source.
func (e *endpoint) Chooses() bool { return e.chooses }

func plain(b []byte) ([]byte, error) { return b, nil }

// field returns what reads a token from a field of a JSON object.
func field(name string) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			return nil, errors.New("the answer is no JSON object")
		}
		s, _ := m[name].(string)
		return []byte(s), nil
	}
}

// clean returns the token alone. The error does not repeat it.
func clean(b []byte, from string) (string, error) {
	t := strings.TrimSpace(string(b))
	if strings.Count(t, ".") != 2 || len(t) > maxToken {
		return "", fmt.Errorf("%s holds no signed token of at most %d bytes", from, maxToken)
	}
	return t, nil
}
