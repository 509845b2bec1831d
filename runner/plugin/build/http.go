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

// fetcher gets charts and modules with the logins of the build.
type fetcher struct {
	client    *http.Client
	transport http.RoundTripper // of the client, without logins
	logins    logins
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

// fetcher returns a fetcher for the spec. Each host gets its own password only, also after a redirect.
func (p *Plugin) fetcher(spec plugin.Spec, env plugin.Env) fetcher {
	transport, all := p.transport(spec), loginsOf(*spec.Build, env.Environ)
	return fetcher{transport: transport, logins: all, client: &http.Client{Transport: &authorized{transport, all}, CheckRedirect: func(r *http.Request, via []*http.Request) error {
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

// login is the login for a host.
type login struct {
	user, password string
	bearer         bool // the password is a token, which module registries and servers of archives get as it is
}

// logins holds logins by host, with its port if the URL names one.
type logins map[string]login

// loginsOf returns the logins of a build: that of the origin's host, and those of other hosts. secrets has their secrets, by name.
func loginsOf(b events.Build, secrets map[string]string) logins {
	all := logins{}
	for host, name := range b.Logins {
		if secret := secrets[name]; secret != "" {
			all[host] = loginFrom(secret)
		}
	}
	if secret := secrets[b.From.Credentials]; secret != "" {
		l := loginFrom(secret)
		if l.bearer = b.From.Kind == events.OriginModule; l.bearer {
			l.password = secret // a token may have a colon
		}
		all[originHost(b.From)] = l
	}
	return all
}

// loginFrom reads USER:PASSWORD or a token.
func loginFrom(secret string) login {
	user, password, ok := strings.Cut(secret, ":")
	if !ok {
		return login{user: defaultUser, password: secret, bearer: true}
	}
	return login{user: user, password: password}
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

// header returns the value of the header Authorization.
func (l login) header() string {
	if l.bearer {
		return "Bearer " + l.password
	}
	return l.basic()
}

// basic returns the value of the header Authorization for git and for repositories of charts.
func (l login) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))
}

// authorized adds to each request the login of its host.
type authorized struct {
	inner  http.RoundTripper
	logins logins
}

// RoundTrip implements http.RoundTripper.
func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if l, ok := a.logins[r.URL.Host]; ok {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", l.header())
	}
	return a.inner.RoundTrip(r)
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
	policy := retry.Policy{First: 500 * time.Millisecond, Longest: 10 * time.Second, Tries: 5, Passing: func(err error) bool {
		status, answered := errors.AsType[statusError](err)
		return !errors.Is(err, errTooLarge) && (!answered || status.code == http.StatusTooManyRequests || status.code >= 500)
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
