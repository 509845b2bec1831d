// Package cluster connects a program to a Kubernetes cluster. It finds the connection's settings, maps kinds to resources, and tells
// failures that may pass from those that do not.
package cluster

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Source names where the settings of a connection are. The zero value is the pod's own service account.
type Source struct {
	// Endpoint is the https URL of the API server; "": the fields Kubeconfig and Context decide.
	Endpoint string
	CA       string // certificates that the server's certificate must be signed by: PEM, or PEM in base64; "": those of the system
	Token    string // "": Tokens makes tokens
	Tokens   oauth2.TokenSource

	Kubeconfig string // path, or several in the form of KUBECONFIG; "": the pod's service account
	Context    string // a context of the kubeconfig; "": the current one
}

// Config reads the settings of a connection. It opens no connection.
func Config(s Source) (*rest.Config, error) {
	if s.Endpoint != "" {
		return s.named()
	}
	if s.Kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, &plugin.Error{Reason: fairlead.ReasonClusterUnknown, Err: err,
				Message: "no Kubernetes cluster is configured: start the agent with KUBECONFIG and FAIRLEAD_PASS_ENV=KUBECONFIG, or run the job in a pod with a service account"}
		}
		return cfg, nil
	}
	rules := clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(s.Kubeconfig), WarnIfAllMissing: false}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&rules, &clientcmd.ConfigOverrides{CurrentContext: s.Context}).ClientConfig()
	if err != nil {
		// The cause can quote the file, which holds credentials, so the message does not.
		return nil, &plugin.Error{Reason: fairlead.ReasonClusterUnknown, Err: err,
			Message: fmt.Sprintf("the kubeconfig %s names no usable cluster%s: check the file", s.Kubeconfig, inContext(s.Context))}
	}
	return cfg, nil
}

// named returns the settings of the cluster at s.Endpoint.
func (s Source) named() (*rest.Config, error) {
	refused := func(format string, args ...any) (*rest.Config, error) {
		return nil, plugin.Errorf(fairlead.ReasonClusterUnknown, format, args...)
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return refused("the option cluster_endpoint is not the https URL of an API server")
	}
	cfg := &rest.Config{Host: s.Endpoint}
	if s.CA != "" {
		pem := []byte(s.CA)
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s.CA)); err == nil {
			pem = decoded
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return refused("the option cluster_ca has no certificate: give PEM, or PEM in base64")
		}
		cfg.CAData = pem
	}
	switch {
	case s.Tokens != nil:
		cfg.Wrap(transport.TokenSourceWrapTransport(s.Tokens))
	case s.Token != "":
		cfg.BearerToken = s.Token
	default:
		return refused("the cluster at %s has no credentials: set the option eks_cluster, or the environment variable KUBE_TOKEN", u.Host)
	}
	return cfg, nil
}

func inContext(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" in the context %q", name)
}

// requestTimeout is the longest time of one request, if the configuration sets none. A request without a limit would wait
// forever for a server that accepts a connection and does not answer.
const requestTimeout = 30 * time.Second

// Cluster is a connection. Safe for concurrent use.
type Cluster struct {
	Objects  dynamic.Interface
	Metadata metadata.Interface

	mu        sync.Mutex // guards discovery and mapper
	discovery discovery.CachedDiscoveryInterfaceWithContext
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

// Connect makes the clients of a cluster. It sends no request. warn gets the warnings of the API server, such as the one about a
// version that it will soon not serve; nil: they are dropped. warn must be safe for concurrent use.
func Connect(cfg *rest.Config, warn func(text string)) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.Timeout == 0 {
		cfg.Timeout = requestTimeout
	}
	if cfg.QPS == 0 {
		cfg.QPS = -1 // The API server limits its clients itself, and asks them to wait.
	}
	cfg.WarningHandler, cfg.WarningHandlerWithContext = nil, warnings{warn}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, unusable(err)
	}
	c := &Cluster{}
	if c.Objects, err = dynamic.NewForConfigAndClient(cfg, client); err != nil {
		return nil, unusable(err)
	}
	if c.Metadata, err = metadata.NewForConfigAndClient(cfg, client); err != nil {
		return nil, unusable(err)
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, unusable(err)
	}
	c.discovery = memory.NewMemCacheClientWithContext(d)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapperWithContext(c.discovery)
	return c, nil
}

func unusable(err error) error {
	return &plugin.Error{Reason: fairlead.ReasonClusterUnknown, Err: err, Message: "the settings of the connection to the Kubernetes cluster are not usable: check the kubeconfig"}
}

type warnings struct{ warn func(string) }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if w.warn != nil && code == 299 && text != "" {
		w.warn(text)
	}
}

// Mapping returns the resource of a kind. If version is "", it chooses the version that the server prefers. If the cluster does not
// know the kind, meta.IsNoMatchError reports true for the error. If the part of the cluster that would know it does not answer, the
// error is temporary.
func (c *Cluster) Mapping(ctx context.Context, kind schema.GroupKind, version string) (*meta.RESTMapping, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var versions []string
	if version != "" {
		versions = []string{version}
	}
	m, err := c.mapper.RESTMappingWithContext(ctx, kind, versions...)
	if err == nil || !meta.IsNoMatchError(err) {
		return m, err
	}
	_, _, all := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if failed, ok := discovery.GroupDiscoveryFailedErrorGroups(all); ok {
		for gv, cause := range failed {
			if gv.Group == kind.Group {
				return nil, &undiscovered{group: kind.Group, err: cause}
			}
		}
	}
	return nil, err
}

// undiscovered is the error of a kind whose API group does not answer.
type undiscovered struct {
	group string
	err   error
}

func (e *undiscovered) Error() string {
	return fmt.Sprintf("the API group %s of the cluster does not answer: %v", e.group, e.err)
}
func (e *undiscovered) Unwrap() error { return e.err }

// Reset forgets the kinds of the cluster, so that the next Mapping reads them again.
func (c *Cluster) Reset(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mapper.ResetWithContext(ctx)
}

// Listable returns the namespaced resources of the cluster that can be listed, one version each. Groups that do not answer are
// missing, and the error then is not nil.
func (c *Cluster) Listable(ctx context.Context) (map[schema.GroupVersionResource]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lists, err := c.discovery.ServerPreferredNamespacedResourcesWithContext(ctx)
	kinds := map[schema.GroupVersionResource]string{}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		gv, parseErr := schema.ParseGroupVersion(l.GroupVersion)
		if parseErr != nil {
			continue
		}
		for _, r := range l.APIResources {
			kinds[gv.WithResource(r.Name)] = r.Kind
		}
	}
	return kinds, err
}
