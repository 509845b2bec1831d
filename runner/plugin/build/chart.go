package build

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpproxy"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/plugin"
)

const (
	maxIndex = 32 << 20 // bytes of the index of a repository of charts
	maxChart = 20 << 20 // bytes of a chart's archive; Helm has the same limit
	// chartLayer is the media type of a chart's archive in a registry (Helm's documentation of OCI registries).
	chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	// fetchFor bounds the requests for one chart, with their repetitions.
	fetchFor = 2 * time.Minute
)

// fetchChart writes the files of the chart to the empty folder. It returns the digest of the chart's archive.
func (p *Plugin) fetchChart(ctx context.Context, spec plugin.Spec, env plugin.Env, folder string) (revision string, err error) {
	from := spec.Build.From
	fmt.Fprintf(env.Log, "fetching chart %s %s of %s\n", from.Chart, from.Ref, from.URL)
	bounded, cancel := context.WithTimeout(ctx, fetchFor)
	defer cancel()
	archive, err := p.fetcher(spec, env).chart(bounded, from)
	if ctx.Err() != nil {
		return "", fmt.Errorf("fetch the chart: %w", ctx.Err())
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(archive)
	return "sha256:" + hex.EncodeToString(sum[:]), unpackChart(archive, env.Workspace, folder)
}

// unpackChart unpacks a chart's archive, whose only top folder is the chart.
func unpackChart(archive []byte, workspace, folder string) error {
	invalid := func(format string, args ...any) error {
		return plugin.Errorf(fairlead.ReasonSourceInvalid, "the chart's archive "+format, args...)
	}
	unpacked := filepath.Join(workspace, "chart")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	root, err := os.OpenRoot(unpacked)
	if err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	defer root.Close()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return invalid("is not compressed by gzip")
	}
	err = artifact.Unpack(plain, root, artifact.Limits{})
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		return &plugin.Error{Reason: fairlead.ReasonSourceInvalid, Message: strings.TrimSpace("the chart's archive cannot be unpacked: " + e.Message + ". " + e.Hint), Err: err}
	}
	if err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	tops, err := os.ReadDir(unpacked)
	if err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	if len(tops) != 1 || !tops[0].IsDir() {
		return invalid("has %d files and folders at its top, want the folder of one chart", len(tops))
	}
	// Rename replaces no folder.
	if err := errors.Join(os.Remove(folder), os.Rename(filepath.Join(unpacked, tops[0].Name()), folder)); err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	return nil
}

// fetcher gets charts with the login of one repository.
type fetcher struct {
	client         *http.Client
	user, password string // "": no login
}

// fetcher returns a fetcher for the spec. It uses the proxy of the job's environment. Only the host of the repository gets
// the password, also after a redirect.
func (p *Plugin) fetcher(spec plugin.Spec, env plugin.Env) fetcher {
	environ := maps.Clone(p.env)
	maps.Copy(environ, spec.Env)
	proxy := (&httpproxy.Config{HTTPProxy: either(environ, "HTTP_PROXY"), HTTPSProxy: either(environ, "HTTPS_PROXY"), NoProxy: either(environ, "NO_PROXY")}).ProxyFunc()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	transport.DisableKeepAlives = true // few requests, and no connection may outlive the job
	f := fetcher{}
	if secret := env.Environ[spec.Build.From.Credentials]; secret != "" {
		var ok bool
		if f.user, f.password, ok = strings.Cut(secret, ":"); !ok {
			f.user, f.password = defaultUser, secret
		}
	}
	host := ""
	if u, err := url.Parse(spec.Build.From.URL); err == nil {
		host = u.Host
	}
	f.client = &http.Client{Transport: login{inner: transport, host: host, user: f.user, password: f.password}, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 || !safe(r.URL) {
			return fmt.Errorf("it redirects to %s", r.URL.Redacted())
		}
		return nil
	}}
	return f
}

func either(environ map[string]string, name string) string {
	if v := environ[name]; v != "" {
		return v
	}
	return environ[strings.ToLower(name)]
}

// safe reports whether a chart may be fetched from the URL: with TLS, or from this machine.
func safe(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// login adds the password to requests to one host.
type login struct {
	inner          http.RoundTripper
	host           string
	user, password string
}

func (l login) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == l.host && l.password != "" {
		r = r.Clone(r.Context())
		r.SetBasicAuth(l.user, l.password)
	}
	return l.inner.RoundTrip(r)
}

// chart returns the chart's archive.
func (f fetcher) chart(ctx context.Context, from events.Origin) ([]byte, error) {
	if strings.HasPrefix(from.URL, "oci://") {
		return f.fromRegistry(ctx, from)
	}
	return f.fromRepository(ctx, from)
}

func unavailable(err error, format string, args ...any) error {
	return &plugin.Error{Reason: fairlead.ReasonSourceUnavailable, Message: fmt.Sprintf(format, args...), Err: err}
}

// fromRegistry gets a chart from an OCI registry.
func (f fetcher) fromRegistry(ctx context.Context, from events.Origin) ([]byte, error) {
	tag := strings.ReplaceAll(from.Ref, "+", "_") // a tag has no "+"; Helm writes "_"
	ref, err := name.NewTag(strings.TrimPrefix(from.URL, "oci://")+":"+tag, name.StrictValidation)
	if err != nil {
		return nil, unavailable(err, "%s has no valid address of a chart: %v", from.URL, err)
	}
	auth := authn.Anonymous
	if f.password != "" {
		auth = &authn.Basic{Username: f.user, Password: f.password}
	}
	inner := f.client.Transport.(login).inner // the library logs in by itself
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(inner),
		remote.WithRetryBackoff(remote.Backoff{Duration: 500 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4}))
	if err != nil {
		return nil, unavailable(err, "the registry does not return chart %s in version %s: %v", from.URL, from.Ref, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, unavailable(err, "the registry's manifest of %s cannot be read: %v", ref, err)
	}
	for _, l := range layers {
		if m, err := l.MediaType(); err != nil || string(m) != chartLayer {
			continue
		}
		content, err := l.Compressed() // it verifies the digest at its end
		if err != nil {
			return nil, unavailable(err, "the registry does not return the archive of chart %s: %v", ref, err)
		}
		archive, err := atMost(content, maxChart)
		if err = errors.Join(err, content.Close()); err != nil {
			return nil, unavailable(err, "the registry does not return the archive of chart %s: %v", ref, err)
		}
		return archive, nil
	}
	return nil, plugin.Errorf(fairlead.ReasonSourceInvalid, "%s is no chart: it has no layer of type %s", ref, chartLayer)
}

// index is the part of a repository's index that a build needs.
type index struct {
	Entries map[string][]struct {
		Version string   `yaml:"version"`
		URLs    []string `yaml:"urls"`
		Digest  string   `yaml:"digest"`
	} `yaml:"entries"`
}

// fromRepository gets a chart from a repository of charts: a server with the file index.yaml.
func (f fetcher) fromRepository(ctx context.Context, from events.Origin) ([]byte, error) {
	base, err := url.Parse(strings.TrimSuffix(from.URL, "/") + "/")
	if err != nil || !safe(base) {
		return nil, unavailable(err, "%s is not an https URL of a repository of charts", from.URL)
	}
	raw, err := f.get(ctx, base.JoinPath("index.yaml"), maxIndex)
	if err != nil {
		return nil, unavailable(err, "the index of the repository %s cannot be fetched: %v", from.URL, err)
	}
	var idx index
	if err := yaml.Unmarshal(raw, &idx); err != nil {
		return nil, unavailable(err, "the index of the repository %s is not YAML", from.URL)
	}
	for _, e := range idx.Entries[from.Chart] {
		if strings.TrimPrefix(e.Version, "v") != strings.TrimPrefix(from.Ref, "v") || len(e.URLs) == 0 {
			continue
		}
		at, err := base.Parse(e.URLs[0])
		if err != nil || !safe(at) {
			return nil, unavailable(err, "the index of the repository %s has no https URL for chart %s %s", from.URL, from.Chart, from.Ref)
		}
		archive, err := f.get(ctx, at, maxChart)
		if err != nil {
			return nil, unavailable(err, "chart %s %s cannot be fetched: %v", from.Chart, from.Ref, err)
		}
		sum := sha256.Sum256(archive)
		if want := strings.TrimPrefix(e.Digest, "sha256:"); want != "" && !strings.EqualFold(want, hex.EncodeToString(sum[:])) {
			return nil, plugin.Errorf(fairlead.ReasonSourceInvalid, "the archive of chart %s %s has the digest %x, and the repository's index names %.64s", from.Chart, from.Ref, sum, want)
		}
		return archive, nil
	}
	if len(idx.Entries[from.Chart]) == 0 {
		return nil, unavailable(nil, "the repository %s has no chart %s", from.URL, from.Chart)
	}
	return nil, unavailable(nil, "the repository %s has no version %s of chart %s", from.URL, from.Ref, from.Chart)
}

// statusError is an answer other than 200.
type statusError struct{ code int }

func (e statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.code, http.StatusText(e.code))
}

// get returns the body of at most limit bytes. It repeats a request that the server did not answer, or answered with 429
// or 5xx, four times.
func (f fetcher) get(ctx context.Context, at *url.URL, limit int64) ([]byte, error) {
	tries := 0
	policy := retry.Policy{First: 500 * time.Millisecond, Longest: 10 * time.Second, Passing: func(err error) bool {
		tries++
		status, answered := errors.AsType[statusError](err)
		return tries < 5 && !errors.Is(err, errTooLarge) && (!answered || status.code == http.StatusTooManyRequests || status.code >= 500)
	}}
	return retry.Do(ctx, policy, func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, err
		}
		res, err := f.client.Do(req)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil, statusError{res.StatusCode}
		}
		return atMost(res.Body, limit)
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
