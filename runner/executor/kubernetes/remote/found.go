package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
)

const (
	// askFor bounds the time of all requests to the cloud that one request to the cluster needs.
	askFor = 20 * time.Second
	// refusalFor is how long a cloud's refusal is cached, so that repeated requests do not load the cloud.
	refusalFor = 2 * time.Second
	// freshFor is the age up to which a refused token is not replaced: the cluster would refuse a newer token, too.
	freshFor = 10 * time.Second
	// stayFor is how long an address is used at least. If the cluster is unreachable at an older address, the cloud is
	// asked for the address again.
	stayFor = time.Minute
	// replaceBefore is how long before its expiry a one-hour token is replaced. Google and Entra issue such tokens.
	replaceBefore = 5 * time.Minute
	// maxAnswer limits a cloud's description of a cluster, which has about 10 KiB.
	maxAnswer = 1 << 20
)

// cloud gives access to one cluster. Its methods are called one at a time.
type cloud interface {
	// String names the cluster for a person.
	String() string
	// bearer returns a token for the cluster, and the time until which to use it.
	bearer(ctx context.Context) (token string, until time.Time, err error)
	// locate returns the address of the cluster. It may send the token to the cloud.
	locate(ctx context.Context, token string) (location, error)
	// permissionHint returns what to do if the cluster does not know the token's user.
	permissionHint() string
}

// location is the address of a cluster's API server.
type location struct {
	server    string // URL
	authority []byte // certificate authority of the server, PEM
}

// discovered returns the connection to a cluster whose address the cloud provides.
func discovered(c cloud, proxyURL string, now func() time.Time) (*rest.Config, error) {
	p, err := proxy(proxyURL)
	if err != nil {
		return nil, err
	}
	// The host is only for messages: the transport gets the address from the cloud.
	return &rest.Config{Host: "https://cluster", Transport: &transport{cloud: c, proxy: p, now: now, one: make(chan struct{}, 1)}}, nil
}

// transport sends requests to the cluster, each with a currently valid token. Safe for concurrent use.
type transport struct {
	cloud cloud
	proxy func(*http.Request) (*url.URL, error)
	now   func() time.Time

	one         chan struct{} // locks the fields below; a channel, so that waiting ends with a context
	token       string
	made, until time.Time
	at          *site
	refused     error
	refusedAt   time.Time
}

// site is the API server at the address that the cloud gave.
type site struct {
	server *url.URL
	via    http.RoundTripper
	since  time.Time
}

// RoundTrip sends a request. If the cluster refuses the token, RoundTrip sends the request again with a new token: clocks
// differ, and machines sleep, so a token may expire early.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.cloud, err)
	}
	return resp, nil
}

// Check asks the cloud for the address and token of the next request, unless they are known.
func (t *transport) Check(ctx context.Context) error {
	if _, _, err := t.ready(ctx, ""); err != nil {
		return fmt.Errorf("%s: %w", t.cloud, err)
	}
	return nil
}

func (t *transport) roundTrip(req *http.Request) (*http.Response, error) {
	at, token, err := t.ready(req.Context(), "")
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.send(req, at, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	discard(resp)
	at, fresh, err := t.ready(req.Context(), token)
	if err != nil {
		return nil, err
	}
	if again := rewound(req); fresh != token && again != nil {
		resp, err := t.send(again, at, fresh)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		discard(resp)
	}
	return nil, misconfigured(nil, "the cluster does not know the user of the request: %s", t.cloud.permissionHint())
}

// send sends a request with the token. If the address does not work, send calls lose.
func (t *transport) send(req *http.Request, at *site, token string) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = at.server.Scheme, at.server.Host, ""
	out.Header.Set("Authorization", "Bearer "+token)
	resp, err := at.via.RoundTrip(out)
	if err != nil {
		t.lose(req.Context(), at, err)
	}
	return resp, err
}

// ready returns the cluster's address and a token. stale is a token that the cluster refused, or "". If the stored token is
// stale and older than freshFor, ready gets a new token.
func (t *transport) ready(ctx context.Context, stale string) (*site, string, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	now := t.now()
	if t.refused != nil && now.Sub(t.refusedAt) < refusalFor {
		return nil, "", t.refused
	}
	if t.token == stale && now.Sub(t.made) > freshFor {
		t.token = ""
	}
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if t.refused = t.learn(asking, now); t.refused == nil {
		return t.at, t.token, nil
	}
	err, t.refusedAt = t.refused, now
	if ctx.Err() != nil {
		t.refused = nil // the request ended; the cloud did not refuse
	}
	return nil, "", err
}

// learn asks the cloud for a missing or expired token and for a missing address. The caller holds the lock.
func (t *transport) learn(ctx context.Context, now time.Time) error {
	if t.token == "" || !now.Before(t.until) {
		token, until, err := t.cloud.bearer(ctx)
		if err != nil {
			return err
		}
		t.token, t.made, t.until = token, now, until
	}
	if t.at != nil {
		return nil
	}
	l, err := t.cloud.locate(ctx, t.token)
	if err != nil {
		return err
	}
	server, err := url.Parse(l.server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return fmt.Errorf("the cloud's address of the API server, %q, is not an HTTPS URL", l.server)
	}
	via, err := rest.TransportFor(&rest.Config{Host: l.server, Proxy: t.proxy, TLSClientConfig: rest.TLSClientConfig{CAData: l.authority}})
	if err != nil {
		return fmt.Errorf("the cloud's certificate authority of the API server: %w", err)
	}
	t.at = &site{server: server, via: via, since: now}
	return nil
}

// lose forgets the address if it is older than stayFor and err shows that the cluster may have another address. A cluster
// that was created again with the same name has another address.
func (t *transport) lose(ctx context.Context, at *site, err error) {
	unknown := errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError))
	if !unknown && !executor.NeverSent(err) {
		return
	}
	unlock, err := t.lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	if t.at == at && t.now().Sub(at.since) > stayFor {
		t.at = nil
		idle(at)
	}
}

func (t *transport) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case t.one <- struct{}{}:
		return func() { <-t.one }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// CloseIdleConnections closes idle connections to the cluster.
func (t *transport) CloseIdleConnections() {
	unlock, err := t.lock(context.Background())
	if err != nil {
		return
	}
	defer unlock()
	if t.at != nil {
		idle(t.at)
	}
}

func idle(at *site) { (&http.Client{Transport: at.via}).CloseIdleConnections() }

// rewound returns the request with its body at the beginning, or nil if the body cannot be read again.
func rewound(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	again := req.Clone(req.Context())
	again.Body = body
	return again
}

// question sends a request for the cluster's address to a cloud and returns the answer.
func question(ctx context.Context, hc *http.Client, method, at, token string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("get the cluster's address: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := hc.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("get the cluster's address: %w", err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("get the cluster's address: %w", err)
	}
	return resp.StatusCode, body, nil
}

// discard reads a short answer to its end, so that its connection can be reused.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// misconfigured returns an error that a retry cannot fix. cause may be nil.
func misconfigured(cause error, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: err}
}
