package build

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

// fetcher gets charts and modules with the login of the host of the component's origin.
type fetcher struct {
	client *http.Client
	login  *login
}

// transport returns a transport that uses the proxy of the job's environment.
func (p *Plugin) transport(spec plugin.Spec) *http.Transport {
	environ := maps.Clone(p.env)
	maps.Copy(environ, spec.Env)
	proxy := (&httpproxy.Config{HTTPProxy: either(environ, "HTTP_PROXY"), HTTPSProxy: either(environ, "HTTPS_PROXY"), NoProxy: either(environ, "NO_PROXY")}).ProxyFunc()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	transport.DisableKeepAlives = true // few requests, and no connection may outlive the job
	return transport
}

// fetcher returns a fetcher for the spec. Only the host of the origin gets the password, also after a redirect.
func (p *Plugin) fetcher(spec plugin.Spec, env plugin.Env) fetcher {
	transport := p.transport(spec)
	l := loginFor(spec.Build.From, env.Environ[spec.Build.From.Credentials])
	l.inner = transport
	return fetcher{login: l, client: &http.Client{Transport: l, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 || !tfmodule.SafeURL(r.URL) {
			return fmt.Errorf("it redirects to %s", r.URL.Redacted())
		}
		return nil
	}}}
}

func either(environ map[string]string, name string) string {
	if v := environ[name]; v != "" {
		return v
	}
	return environ[strings.ToLower(name)]
}

// login adds the password to requests to the hosts.
type login struct {
	inner          http.RoundTripper
	hosts          map[string]bool // with ports
	user, password string          // "": no login
	bearer         bool            // the password is the token of a module registry
}

// loginFor returns the login for the host of the origin.
func loginFor(from events.Origin, secret string) *login {
	l := &login{hosts: map[string]bool{originHost(from): true}, bearer: from.Kind == events.OriginModule}
	if secret != "" {
		var ok bool
		if l.user, l.password, ok = strings.Cut(secret, ":"); !ok {
			l.user, l.password = defaultUser, secret
		}
	}
	return l
}

// originHost returns the host of an origin with its port; "" if it has none.
func originHost(from events.Origin) string {
	if from.Kind == events.OriginModule {
		s, _ := tfmodule.ParseSource(from.URL) // a wrong address has no host
		return s.Host
	}
	u, err := url.Parse(from.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// header returns the value of the header Authorization for the host; "": none.
func (l *login) header(host string) string {
	switch {
	case l.password == "" || !l.hosts[host]:
		return ""
	case l.bearer:
		return "Bearer " + l.password
	}
	return l.basic()
}

// basic returns the value of the header Authorization for git and for repositories of charts.
func (l *login) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))
}

// RoundTrip implements http.RoundTripper.
func (l *login) RoundTrip(r *http.Request) (*http.Response, error) {
	if h := l.header(r.URL.Host); h != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", h)
	}
	return l.inner.RoundTrip(r)
}

func unavailable(err error, format string, args ...any) error {
	return &plugin.Error{Reason: fairlead.ReasonSourceUnavailable, Message: fmt.Sprintf(format, args...), Err: err}
}

// statusError is an answer other than 200 and 204.
type statusError struct{ code int }

func (e statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.code, http.StatusText(e.code))
}

// answer is a server's answer.
type answer struct {
	header http.Header
	body   []byte
	from   *url.URL // after redirects
}

// get returns the body of at most limit bytes.
func (f fetcher) get(ctx context.Context, at *url.URL, limit int64) ([]byte, error) {
	a, err := f.ask(ctx, at, limit)
	return a.body, err
}

// ask returns the answer, whose body has at most limit bytes. It repeats a request that the server did not answer, or
// answered with 429 or 5xx, four times.
func (f fetcher) ask(ctx context.Context, at *url.URL, limit int64) (answer, error) {
	tries := 0
	policy := retry.Policy{First: 500 * time.Millisecond, Longest: 10 * time.Second, Passing: func(err error) bool {
		tries++
		status, answered := errors.AsType[statusError](err)
		return tries < 5 && !errors.Is(err, errTooLarge) && (!answered || status.code == http.StatusTooManyRequests || status.code >= 500)
	}}
	return retry.Do(ctx, policy, func(ctx context.Context) (answer, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return answer{}, err
		}
		res, err := f.client.Do(req)
		if err != nil {
			return answer{}, err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent {
			return answer{}, statusError{res.StatusCode}
		}
		body, err := atMost(res.Body, limit)
		return answer{res.Header, body, res.Request.URL}, err
	})
}

var errTooLarge = errors.New("it is too large")

// atMost reads all of r. It returns errTooLarge if that is more than limit bytes.
func atMost(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return b, err
}
