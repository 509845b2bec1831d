package mirror

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/regclient/regclient"
	"github.com/regclient/regclient/config"
	"github.com/regclient/regclient/scheme/ocidir"
	"github.com/regclient/regclient/scheme/reg"
	"github.com/regclient/regclient/types/errs"
	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Target is the repository in which a component keeps its image. No other component uses it.
type Target struct {
	URL        string `json:"url"` // of the registry, such as https://registry.example.com
	Repository string `json:"repository"`
	Layout     string `json:"layout,omitempty"` // path of an image layout of OCI, in place of a repository
}

// Host returns the registry's name in references.
func (t Target) Host() string {
	if t.Layout != "" {
		return "the folder"
	}
	if u, err := url.Parse(t.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return strings.TrimSuffix(t.URL, "/")
}

func (t Target) ref() ref.Ref {
	if t.Layout != "" {
		return ref.Ref{Scheme: "ocidir", Reference: "ocidir://" + t.Layout, Path: t.Layout}
	}
	return ref.Ref{Scheme: "reg", Reference: t.Host() + "/" + t.Repository, Registry: t.Host(), Repository: t.Repository}
}

// Login is the login to a registry.
type Login struct {
	Username, Password string
}

// ParseLogins reads what a variable with credentials holds: a Docker configuration in JSON, or USER:PASSWORD for the registry with the
// name host. The error does not quote the text.
func ParseLogins(host, text string) (map[string]Login, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		user, password, ok := strings.Cut(text, ":")
		if !ok || user == "" || password == "" {
			return nil, errors.New("it is neither USER:PASSWORD nor a Docker configuration")
		}
		return map[string]Login{host: {user, password}}, nil
	}
	var file struct {
		Auths map[string]struct {
			Auth     string `json:"auth"`
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"auths"`
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil || len(file.Auths) == 0 {
		return nil, errors.New("it is no Docker configuration with auths")
	}
	logins := map[string]Login{}
	for name, a := range file.Auths {
		l := Login{a.Username, a.Password}
		if a.Auth != "" {
			pair, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(string(pair), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("its auth of %.100q is not USER:PASSWORD in base64", name)
			}
			l = Login{user, password}
		}
		logins[registryOf(name)] = l
	}
	return logins, nil
}

// registryOf returns the registry of a key of a Docker configuration, which can be a URL.
func registryOf(name string) string {
	if name == config.DockerRegistryAuth || strings.Contains(name, "index.docker.io") {
		return config.DockerRegistry
	}
	for _, scheme := range []string{"https://", "http://"} {
		name = strings.TrimPrefix(name, scheme)
	}
	host, _, _ := strings.Cut(name, "/")
	return host
}

// Client reads from all registries, and writes to the target's. Safe for concurrent use, except forget.
type Client struct {
	*regclient.RegClient
	answers *patience
	open    func() *regclient.RegClient
}

// forget forgets the failures of the registries. Otherwise the library waits before each further request to a registry that has failed
// several times, so a copy that begins again would take minutes.
func (c *Client) forget() { c.RegClient = c.open() }

// The limits of requests.
const (
	dialTimeout     = 10 * time.Second
	answerTimeout   = time.Minute // until the headers of an answer
	firstDelay      = 200 * time.Millisecond
	longestDelay    = 10 * time.Second
	retries         = 6
	limitedRequests = 10              // answers 429 in sequence that are waited for
	longestWait     = 2 * time.Minute // that an answer 429 can ask for
)

// Options are the settings of a client.
type Options struct {
	Logins    map[string]Login // by the registry's name in references
	Docker    bool             // whether logins come from the Docker configuration of the person who runs the program
	UserAgent string
	CAs       map[string]string // certificates in PEM that a registry's may be signed with, besides those that the machine trusts, by the registry's name
	Source    *Target           // a registry whose URL decides on TLS, such as that of the image of a build; nil: there is none
	Delay     time.Duration     // before the first repetition of a request; default 200 ms. Later ones take longer
}

// NewClient returns a client. A registry on this machine is reached without TLS, as Docker does, unless the URL of the target names
// https for it.
func NewClient(target Target, o Options, sources ...ref.Ref) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.ResponseHeaderTimeout = answerTimeout
	answers := &patience{own: map[string]*http.Transport{}, others: transport, seen: map[string]int{}}
	for name, ca := range o.CAs {
		pool, err := x509.SystemCertPool()
		if err != nil { // the machine trusts none
			pool = x509.NewCertPool()
		}
		pool.AppendCertsFromPEM([]byte(ca)) // the caller has checked it
		answers.own[name] = transport.Clone()
		answers.own[name].TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	hosts := map[string]config.Host{}
	host := func(name string) config.Host {
		h := *config.HostNewName(name)
		if isLoopback(name) {
			h.TLS = config.TLSDisabled
		}
		if l, ok := o.Logins[name]; ok {
			h.User, h.Pass = l.Username, l.Password
		}
		return h
	}
	for _, s := range sources {
		hosts[s.Registry] = host(s.Registry)
	}
	for _, t := range []*Target{o.Source, &target} {
		if t == nil || t.URL == "" {
			continue
		}
		h := host(t.Host())
		h.TLS = config.TLSEnabled
		if strings.HasPrefix(t.URL, "http://") {
			h.TLS = config.TLSDisabled
		}
		hosts[t.Host()] = h
	}
	all := make([]config.Host, 0, len(hosts))
	for _, h := range hosts {
		all = append(all, h)
	}
	options := []regclient.Opt{regclient.WithConfigHost(all...), regclient.WithUserAgent(o.UserAgent), regclient.WithSlog(slog.New(slog.DiscardHandler)),
		regclient.WithOCIDirOpts(ocidir.WithGC(false)), // what is written in a layout is all named at the end
		regclient.WithRegOpts(reg.WithHTTPClient(&http.Client{Transport: answers}), reg.WithDelay(cmp.Or(o.Delay, firstDelay), longestDelay), reg.WithRetryLimit(retries))}
	if o.Docker {
		options = append([]regclient.Opt{regclient.WithDockerCreds()}, options...)
	}
	open := func() *regclient.RegClient { return regclient.New(options...) }
	return &Client{answers: answers, open: open, RegClient: open()}
}

func isLoopback(name string) bool {
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		host = name
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && a.IsLoopback()
}

// keepsManifests reports whether the target has answered that it deletes nothing.
func (c *Client) keepsManifests() bool {
	c.answers.mu.Lock()
	defer c.answers.mu.Unlock()
	return c.answers.keeps
}

// limited reports whether a registry's last answer was that there were too many requests. After its last repetition, the library does
// not return the answer.
func (c *Client) limited() bool {
	c.answers.mu.Lock()
	defer c.answers.mu.Unlock()
	for _, n := range c.answers.seen {
		if n > 0 {
			return true
		}
	}
	return false
}

// patience bounds the waits that registries ask for. The library obeys each Retry-After, however often and long.
type patience struct {
	own    map[string]*http.Transport // by host, of the registries with certificates of their own
	others *http.Transport

	mu    sync.Mutex
	seen  map[string]int // answers 429 in sequence, by host
	keeps bool           // a deletion was answered with 405
}

func (p *patience) RoundTrip(req *http.Request) (*http.Response, error) {
	next, ok := p.own[req.URL.Host]
	if !ok {
		next = p.others
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeps = p.keeps || req.Method == http.MethodDelete && resp.StatusCode == http.StatusMethodNotAllowed
	if resp.StatusCode != http.StatusTooManyRequests {
		p.seen[req.URL.Host] = 0
		return resp, nil
	}
	p.seen[req.URL.Host]++
	wait, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s")
	if err != nil || wait > longestWait || p.seen[req.URL.Host] > limitedRequests {
		resp.Header.Del("Retry-After") // then the library counts the answer, and ends after some
	}
	return resp, nil
}

// isAbsent reports whether a registry or a layout does not have what was asked for.
func isAbsent(err error) bool {
	return errors.Is(err, errs.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// query is the part of a URL that can hold a signature or a token.
var query = pattern.New(`\?[^\s"]*`)

// failure returns the error of a request to a registry, with its reason. what names the action and the object.
func (c *Client) failure(ctx context.Context, err error, registry, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	reason, next := fairlead.ReasonRegistryUnreachable, "Check the registry and the runner's connection to it, then plan again"
	switch {
	case errors.Is(err, errs.ErrDigestMismatch), errors.Is(err, errs.ErrShortRead), errors.Is(err, errs.ErrSizeLimitExceeded), errors.Is(err, errs.ErrParsingFailed), errors.Is(err, errs.ErrUnsupportedMediaType):
		reason, next = fairlead.ReasonImageDamaged, "The registry or a proxy before it returned other content than the digest names: push the image again, then plan again"
	case errors.Is(err, errs.ErrHTTPRateLimit), errors.Is(err, errs.ErrRetryLimitExceeded) && c.limited(), errors.Is(err, errs.ErrBackoffLimit) && c.limited():
		reason, next = fairlead.ReasonRegistryLimited, "The registry limits the number of requests: plan again later, or give the runner a login to it"
	case errors.Is(err, errs.ErrHTTPUnauthorized), errors.Is(err, errs.ErrNoLogin), errors.Is(err, errs.ErrNoNewChallenge), errors.Is(err, errs.ErrEmptyChallenge):
		reason, next = fairlead.ReasonRegistryForbidden, "Give the runner credentials that permit it, in registry.credentials of the runner's configuration"
	case isAbsent(err):
		reason, next = fairlead.ReasonImageMissing, "Push the image, or correct "+File
	}
	return &plugin.Error{Reason: reason, Err: err, Message: fmt.Sprintf("%s failed at the registry %s: %s. %s", what, registry, query.ReplaceAllString(err.Error(), "?…"), next)}
}
