package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// How long keys are kept, and how often an issuer is asked.
const (
	// freshFor is how long keys are used without a look at the issuer: how long
	// a key that it has withdrawn is still taken.
	freshFor = 15 * time.Minute
	// staleFor is how long keys are used whose issuer cannot be reached.
	staleFor = time.Hour
	// askAgain is how long an issuer is left alone after it was asked, whatever
	// it answered and however many tokens name keys that it does not have.
	askAgain = 10 * time.Second
	// maxIssuers is how many issuers' keys are kept.
	maxIssuers = 1000
	// askTimeout bounds the questions that an issuer is asked at once.
	askTimeout = 5 * time.Second
	// maxAsking is how many issuers are asked at the same time, since whoever
	// makes a trust may cause it.
	maxAsking = 16

	maxDiscovery, maxKeySet = 64 << 10, 256 << 10 // bytes
)

// issuers keeps the keys of issuers. Safe for concurrent use.
type issuers struct {
	transport http.RoundTripper
	now       func() time.Time
	rules     Rules
	turns     chan struct{} // of requests under way

	mu    sync.Mutex
	known *simplelru.LRU[string, *issuer]
}

// issuer is what is known of one.
type issuer struct {
	turn chan struct{} // held by who asks it

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time // when keys was; zero: never
	asked   time.Time // when it was last asked
	failure error     // of that
}

func (s *issuers) of(name string) *issuer {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.known.Get(name)
	if !known {
		i = &issuer{turn: make(chan struct{}, 1)}
		s.known.Add(name, i)
	}
	return i
}

// find returns the issuer's keys of that name, asking it if need be.
func (s *issuers) find(ctx context.Context, name, kid string) ([]jose.JSONWebKey, error) {
	i := s.of(name)
	if found, done, err := i.look(s.now(), kid); done {
		return found, err
	}
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, unavailable("the issuer is being asked for its keys", ctx.Err())
	}
	if found, done, err := i.look(s.now(), kid); done { // another caller asked meanwhile
		return found, err
	}
	// What it answers is for all, so it does not end with one caller's request.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	keys, err := s.ask(asking, name)
	i.mu.Lock()
	i.asked, i.failure = s.now(), err
	if err == nil {
		i.keys, i.fetched = keys, i.asked // keys that it has withdrawn are gone
	}
	i.mu.Unlock()
	found, _, err := i.look(s.now(), kid)
	return found, err
}

// look answers from what is known; done is false if the issuer is to be asked.
func (i *issuer) look(now time.Time, kid string) (found []jose.JSONWebKey, done bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := !i.fetched.IsZero() && now.Sub(i.fetched) < staleFor
	if known {
		found = named(i.keys, kid)
	}
	fresh := known && now.Sub(i.fetched) < freshFor
	switch quiet := !i.asked.IsZero() && now.Sub(i.asked) < askAgain; {
	case fresh && len(found) > 0:
		return found, true, nil
	case !quiet:
		return nil, false, nil
	case i.failure != nil && len(found) > 0: // it cannot be reached, and was not long ago
		return found, true, nil
	case i.failure != nil:
		return nil, true, unavailable("the issuer of the token could not be asked for its keys", i.failure)
	default:
		return nil, true, refused("key", "the issuer has no key of the name that the token gives")
	}
}

// ask fetches an issuer's keys.
func (s *issuers) ask(ctx context.Context, name string) ([]jose.JSONWebKey, error) {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return nil, fmt.Errorf("too many issuers are being asked: %w", ctx.Err())
	}
	base, err := s.rules.issuer(name)
	if err != nil {
		return nil, err
	}
	doc, err := s.get(ctx, strings.TrimSuffix(name, "/")+"/.well-known/openid-configuration", maxDiscovery)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", name, err)
	}
	conf, err := object(doc)
	if err != nil {
		return nil, fmt.Errorf("the configuration of %s %w", name, err)
	}
	if conf["issuer"] != name {
		return nil, fmt.Errorf("the configuration at %s is of the issuer %.100q", name, conf["issuer"])
	}
	at, _ := conf["jwks_uri"].(string)
	where, err := s.keysAt(base, at)
	if err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", name, err)
	}
	set, err := s.get(ctx, where, maxKeySet)
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", name, err)
	}
	keys, err := parseKeys(set)
	if err == nil && len(keys) == 0 {
		err = errors.New("none of them verifies a token")
	}
	if err != nil {
		return nil, fmt.Errorf("the keys of %s: %w", name, err)
	}
	return keys, nil
}

// keysAt returns where an issuer's keys are, which must be at the issuer's own
// host: that host is what a trust names, and whoever can put one page there is
// not to send us to another. Two clouds keep them elsewhere.
func (s *issuers) keysAt(issuer *url.URL, at string) (string, error) {
	u, err := url.Parse(at)
	if err != nil || at == "" || u.Scheme != issuer.Scheme || u.User != nil || u.Opaque != "" || strings.Contains(at, "#") {
		return "", fmt.Errorf("its keys are at %.100q, which is no %s URL", at, issuer.Scheme)
	}
	elsewhere := map[string]string{
		"accounts.google.com:443": "www.googleapis.com:443",
		"sts.windows.net:443":     "login.microsoftonline.com:443",
	}
	if h := hostPort(u); h != hostPort(issuer) && h != elsewhere[hostPort(issuer)] {
		return "", fmt.Errorf("its keys are at %.100q, which is another host than the issuer's", at)
	}
	return u.String(), nil
}

// get fetches a document of at most limit bytes. It follows no redirect, as a
// transport never does.
func (s *issuers) get(ctx context.Context, where string, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, application/jwk-set+json")
	// Or the transport would ask for gzip and inflate whatever came, and a bound
	// on bytes read would bound nothing sent.
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "fairlead")
	a, err := s.transport.RoundTrip(r)
	if err != nil {
		return nil, publicError(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", a.StatusCode)
	}
	if len(a.Header.Values("Content-Encoding")) > 0 {
		return nil, errors.New("the answer is encoded")
	}
	b, err := io.ReadAll(io.LimitReader(a.Body, limit+1))
	if err != nil {
		return nil, publicError(err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return b, nil
}

// publicError makes the error one that the trust's owner may read: no address of a
// network of ours.
func publicError(err error) error {
	if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
		return errors.New("its host has an address that is not public")
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("its host %s is not found", d.Name)
	}
	return err
}

// Transport reaches issuers. Whoever makes a trust chooses where requests go,
// and the control plane sits beside what others must not reach; so it connects
// to public addresses only, and to this machine where the rules allow it. The
// address is judged when the connection is made, after the name was resolved:
// a name that resolves to another address the next time gains nothing.
func Transport(r Rules) *http.Transport {
	options := []ssrf.Option{ssrf.WithAnyPort()}
	if r.Loopback {
		options = append(options, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")), ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	guard := ssrf.New(options...)
	return &http.Transport{
		Proxy: nil, // a proxy would connect where we do not
		DialContext: (&net.Dialer{Timeout: 3 * time.Second, Control: func(network, address string, conn syscall.RawConn) error {
			return guard.Safe(network, address, conn)
		}}).DialContext,
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 3 * time.Second,
		MaxIdleConns: 20, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 32 << 10,
	}
}
