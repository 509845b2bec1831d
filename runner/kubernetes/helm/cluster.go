package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead/fairlead/runner/internal/redact"
)

// connection holds the clients of one operation.
type connection struct {
	getter   *getter
	dynamic  dynamic.Interface
	secrets  corev1.SecretInterface // of the release's namespace
	metadata metadata.Interface
	mapper   meta.ResettableRESTMapper
}

// connect returns clients that send their requests through wrap, which may be nil.
func (e *Engine) connect(wrap func(http.RoundTripper) http.RoundTripper) (*connection, error) {
	cfg := rest.CopyConfig(e.Config)
	if cfg.QPS == 0 {
		cfg.QPS, cfg.Burst = 50, 100 // the default of 5 requests a second is for controllers
	}
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(d)
	c := &connection{mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached)}
	c.getter = &getter{config: cfg, discovery: cached, mapper: c.mapper, namespace: e.Namespace}
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfig(cfg); err != nil {
		return nil, err
	}
	core, err := corev1.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c.secrets = core.Secrets(e.Namespace)
	return c, nil
}

// getter gives Helm a connection that a program made, instead of one from a kubeconfig.
type getter struct {
	config    *rest.Config
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.RESTMapper
	namespace string
}

var _ genericclioptions.RESTClientGetter = (*getter)(nil)

func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*api.NewConfig(), &clientcmd.ConfigOverrides{Context: api.Context{Namespace: g.namespace}})
}

// changes reports whether a request changes something in the cluster. A question about permissions is also a POST.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.Query().Get("dryRun") == "" && !strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/")
}

// readOnly refuses every request that would change something, as a plan must not.
type readOnly struct {
	next http.RoundTripper
	ctx  context.Context
}

func (t *readOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if changes(r) {
		return nil, errPlanWrites
	}
	return bind(t.ctx, r, t.next)
}

// gate lets a request that changes something pass only while the attempt owns the release and its context is not done.
// Helm's own requests have no context that ends.
type gate struct {
	next  http.RoundTripper
	ctx   context.Context
	check func(context.Context) error
}

func (t *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if changes(r) {
		if err := t.check(t.ctx); err != nil {
			return nil, err
		}
	}
	return bind(t.ctx, r, t.next)
}

// writeLimit limits a request that changes something. An API server ends one after a minute.
const writeLimit = 2 * time.Minute

// bind sends a request that also ends with ctx. A request that changes something goes on, because its result must be known.
func bind(ctx context.Context, r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	both, cancel := context.WithCancelCause(r.Context())
	var end func()
	if changes(r) {
		limit := time.AfterFunc(writeLimit, func() { cancel(context.DeadlineExceeded) })
		end = func() { limit.Stop(); cancel(nil) }
	} else {
		stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		end = func() { stop(); cancel(nil) }
	}
	resp, err := next.RoundTrip(r.WithContext(both))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &closer{ReadCloser: resp.Body, end: end}
	return resp, nil
}

type closer struct {
	io.ReadCloser
	end func()
}

func (c *closer) Close() error {
	err := c.ReadCloser.Close()
	c.end()
	return err
}

// lookups collects the values of the Secrets that templates read. A template can copy such a value into an object of any
// kind, whose changes the vendor reads.
type lookups struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []json.RawMessage
}

const (
	maxLookup = 32 << 20
	maxSecret = 64 << 10 // longer values are no credentials, but archives such as Helm's own records
)

func (t *lookups) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, "/secrets") {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxLookup+1))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if len(body) > maxLookup {
		return nil, errLookupTooLarge
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var secrets struct {
		Data  map[string][]byte
		Items []struct{ Data map[string][]byte }
	}
	if json.Unmarshal(body, &secrets) != nil {
		return resp, nil // a status, or no Secret
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range append(secrets.Items, struct{ Data map[string][]byte }{secrets.Data}) {
		for _, v := range s.Data {
			if raw, err := json.Marshal(string(v)); err == nil && len(v) <= maxSecret {
				t.seen = append(t.seen, raw)
			}
		}
	}
	return resp, nil
}

// mask returns a function that masks the collected values.
func (t *lookups) mask() func(string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seen) == 0 {
		return func(s string) string { return s }
	}
	return redact.New(t.seen...).String
}
