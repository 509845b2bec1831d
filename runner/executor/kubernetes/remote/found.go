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
	// askFor bounds the questions to a cloud that one request takes.
	askFor = 20 * time.Second
	// heedFor is how long a cloud's refusal counts: what asks again and again does
	// not do so at the cloud's expense.
	heedFor = 2 * time.Second
	// freshFor is how long a token is so new that another would be no better.
	freshFor = 10 * time.Second
	// stayFor is how long a cluster that does not answer is looked for where it
	// was, before the cloud is asked whether it has moved.
	stayFor = time.Minute
	// replaceBefore is how long before its end a token is replaced that lasts an
	// hour, as Google's and Entra's do.
	replaceBefore = 5 * time.Minute
	// maxAnswer bounds a cloud's description of a cluster, which is some 10 KiB.
	maxAnswer = 1 << 20
)

// cloud knows one cluster, and who we are to it. Its methods are called one at
// a time.
type cloud interface {
	// String names the cluster for a person.
	String() string
	// bearer returns what is shown to the cluster, and until when.
	bearer(ctx context.Context) (token string, until time.Time, err error)
	// locate returns where the cluster is. It may show the token to the cloud.
	locate(ctx context.Context, token string) (location, error)
	// stranger says what to do if the cluster does not know who shows the token.
	stranger() string
}

// location is where the API server of a cluster is.
type location struct {
	server    string // URL
	authority []byte // of its certificate, PEM
}

// found is the way to a cluster that its cloud knows.
func found(c cloud, proxyURL string, now func() time.Time) (*rest.Config, error) {
	p, err := proxy(proxyURL)
	if err != nil {
		return nil, err
	}
	// The address is the transport's to find; the host stands in messages.
	return &rest.Config{Host: "https://cluster", Transport: &transport{cloud: c, proxy: p, now: now, one: make(chan struct{}, 1)}}, nil
}

// transport sends requests to where the cluster is, each with a token that is
// good at the time. Safe for concurrent use.
type transport struct {
	cloud cloud
	proxy func(*http.Request) (*url.URL, error)
	now   func() time.Time

	one         chan struct{} // held while what follows is read or made; a channel, so that waiting ends with a context
	token       string
	made, until time.Time
	at          *site
	refused     error
	refusedAt   time.Time
}

// site is the API server as it was found.
type site struct {
	server *url.URL
	via    http.RoundTripper
	since  time.Time
}

// RoundTrip sends a request. Should the cluster not know the token, it sends the
// request again with a new one: clocks differ, and machines sleep.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.cloud, err)
	}
	return resp, nil
}

// Check asks the cloud for what the next request takes, if that is not known.
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
	return nil, misconfigured(nil, "the cluster does not know who is asking: %s", t.cloud.stranger())
}

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

// ready returns where the cluster is and a token for it, other than stale if
// one is to be had that is better.
func (t *transport) ready(ctx context.Context, stale string) (*site, string, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	now := t.now()
	if t.refused != nil && now.Sub(t.refusedAt) < heedFor {
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
		t.refused = nil // it was the request that ended, not the cloud that refused
	}
	return nil, "", err
}

// learn asks the cloud for what is not known, or no longer.
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
		return fmt.Errorf("the cloud says that the API server is at %q, which is no address", l.server)
	}
	via, err := rest.TransportFor(&rest.Config{Host: l.server, Proxy: t.proxy, TLSClientConfig: rest.TLSClientConfig{CAData: l.authority}})
	if err != nil {
		return fmt.Errorf("the cloud's authority of the API server: %w", err)
	}
	t.at = &site{server: server, via: via, since: now}
	return nil
}

// lose forgets where a cluster was that may have moved: it was made anew, under
// its old name.
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

// CloseIdleConnections closes those to the cluster.
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

// rewound returns the request as it was before it was sent, nil if its body
// cannot be had again.
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

// question asks a cloud where the cluster is, and returns its answer.
func question(ctx context.Context, hc *http.Client, method, at, token string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask where the cluster is: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := hc.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask where the cluster is: %w", err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("ask where the cluster is: %w", err)
	}
	return resp.StatusCode, body, nil
}

// discard reads a short answer to its end, so that its connection is used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// misconfigured is an error that trying again does not mend. cause may be nil.
func misconfigured(cause error, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: err}
}
