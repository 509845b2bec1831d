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

// How long keys are cached, and how often an issuer is requested.
const (
	// freshFor is how long keys are used without a new request. So a key that the
	// issuer has withdrawn is accepted for at most this time, if the issuer can be
	// reached.
	freshFor = 15 * time.Minute
	// staleFor is how long keys are used if their issuer cannot be reached.
	staleFor = time.Hour
	// askAgain is the shortest time between two requests to an issuer. It does not
	// depend on the answers, nor on the number of tokens with unknown keys.
	askAgain = 10 * time.Second
	// maxIssuers limits the issuers whose keys are cached.
	maxIssuers = 1000
	// askTimeout is the timeout of one fetch of an issuer's configuration and keys.
	askTimeout = 5 * time.Second
	// maxAsking limits the fetches at the same time, because every creator of a
	// trust can cause a fetch.
	maxAsking = 16

	maxDiscovery, maxKeySet = 64 << 10, 256 << 10 // bytes
)

// issuers caches the keys of issuers. Safe for concurrent use.
type issuers struct {
	transport http.RoundTripper
	now       func() time.Time
	rules     Rules
	turns     chan struct{} // limits the fetches

	mu    sync.Mutex
	known *simplelru.LRU[string, *issuer]
}

// issuer is the cache entry of one issuer.
type issuer struct {
	turn chan struct{} // held during a fetch

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time // when keys were fetched; zero: never
	asked   time.Time // when the last fetch ended
	failure error     // of the last fetch
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

// find returns the issuer's keys with the key id. It fetches the keys if the cache is not
// sufficient.
func (s *issuers) find(ctx context.Context, name, kid string) ([]jose.JSONWebKey, error) {
	i := s.of(name)
	if found, done, err := i.look(s.now(), kid); done {
		return found, err
	}
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return nil, unavailable("another request is still fetching the keys of the token's issuer", ctx.Err())
	}
	if found, done, err := i.look(s.now(), kid); done { // another caller has fetched the keys
		return found, err
	}
	// All callers use the keys, so the fetch continues if one caller's request ends.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	keys, err := s.ask(asking, name)
	i.mu.Lock()
	i.asked, i.failure = s.now(), err
	if err == nil {
		i.keys, i.fetched = keys, i.asked // this drops withdrawn keys
	}
	i.mu.Unlock()
	found, _, err := i.look(s.now(), kid)
	return found, err
}

// look answers from the cache; done is false if the caller must fetch the keys.
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
	case i.failure != nil && len(found) > 0: // the issuer fails now; its cached keys are not too old
		return found, true, nil
	case i.failure != nil:
		return nil, true, unavailable("the keys of the token's issuer could not be fetched", i.failure)
	default:
		return nil, true, refused("key", "the issuer has no key with the token's key id")
	}
}

// ask fetches the keys of an issuer.
func (s *issuers) ask(ctx context.Context, name string) ([]jose.JSONWebKey, error) {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return nil, fmt.Errorf("too many issuers are being requested: %w", ctx.Err())
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
		return nil, fmt.Errorf("the configuration of %s names the issuer %.100q", name, conf["issuer"])
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
		err = errors.New("none of them can verify a token")
	}
	if err != nil {
		return nil, fmt.Errorf("the keys of %s: %w", name, err)
	}
	return keys, nil
}

// keysAt returns the URL of an issuer's keys. The URL must have the issuer's own host. A
// trust names this host, and a person who can change one page of the host must not be
// able to redirect the control plane to another host. There are two exceptions: two
// clouds have their keys at another host.
func (s *issuers) keysAt(issuer *url.URL, at string) (string, error) {
	u, err := url.Parse(at)
	if err != nil || at == "" || u.Scheme != issuer.Scheme || u.User != nil || u.Opaque != "" || strings.Contains(at, "#") {
		return "", fmt.Errorf("its jwks_uri is %.100q, which is not a valid %s URL", at, issuer.Scheme)
	}
	elsewhere := map[string]string{
		"accounts.google.com:443": "www.googleapis.com:443",
		"sts.windows.net:443":     "login.microsoftonline.com:443",
	}
	if h := hostPort(u); h != hostPort(issuer) && h != elsewhere[hostPort(issuer)] {
		return "", fmt.Errorf("its jwks_uri is %.100q, which has another host than the issuer", at)
	}
	return u.String(), nil
}

// get fetches a document of at most limit bytes. It follows no redirect, because a
// transport follows none.
func (s *issuers) get(ctx context.Context, where string, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, application/jwk-set+json")
	// Without this header, the transport would ask for gzip and inflate any answer. The
	// limit would then count the inflated bytes and not the bytes received.
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
		return nil, errors.New("the answer has a Content-Encoding")
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

// publicError returns an error that the trust's owner may read: without an address of
// the control plane's network.
func publicError(err error) error {
	if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
		return errors.New("the host has an address that is not public")
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("the host %s was not found", d.Name)
	}
	return err
}

// Transport returns a transport to issuers. The creator of a trust chooses where requests
// go, and the control plane's network has hosts that others must not reach. So the
// transport connects only to public addresses, and to this machine if the rules permit
// it. It checks the address when it connects, after the name was resolved. So a name that
// resolves to another address at a second lookup does not help an attacker.
func Transport(r Rules) *http.Transport {
	options := []ssrf.Option{ssrf.WithAnyPort()}
	if r.Loopback {
		options = append(options, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")), ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	guard := ssrf.New(options...)
	return &http.Transport{
		Proxy: nil, // a proxy would connect to addresses that are refused here
		DialContext: (&net.Dialer{Timeout: 3 * time.Second, Control: func(network, address string, conn syscall.RawConn) error {
			return guard.Safe(network, address, conn)
		}}).DialContext,
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 3 * time.Second,
		MaxIdleConns: 20, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 32 << 10,
	}
}
