package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/runner/executor"
)

// namespaceFile tells a pod its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func fromPod() (*rest.Config, string, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, "", errors.New("the agent runs in no pod; name a file in runner_configuration.job.kubeconfig")
	}
	if err != nil {
		return nil, "", fmt.Errorf("service account of the agent's pod: %w", err)
	}
	b, err := os.ReadFile(namespaceFile)
	if err != nil {
		return cfg, "", nil // job.namespace is needed then
	}
	return cfg, string(bytes.TrimSpace(b)), nil
}

func fromFile(path string) (*rest.Config, string, error) {
	c := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, nil)
	cfg, err := c.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("runner_configuration.job.kubeconfig: %w", err)
	}
	return cfg, "", nil
}

// kind is a kind of thing in the namespace.
type kind string

const (
	jobs    kind = "jobs"
	pods    kind = "pods"
	secrets kind = "secrets"
	events  kind = "events"
)

// cluster is what an executor needs of the API server, in one namespace. It
// knows the types of two groups alone: the generated client of all groups costs
// each step, which is the same program, more at its start than it does itself.
type cluster struct {
	namespace   string
	core, batch *rest.RESTClient
	parameters  runtime.ParameterCodec
	transport   http.RoundTripper
}

// Requests a second, on average and at once: a hundred steps that start
// together make some three hundred.
const (
	qps   = 50
	burst = 300
)

func newCluster(cfg *rest.Config, namespace string) (*cluster, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	group := func(gv schema.GroupVersion, path string) (*rest.RESTClient, error) {
		c := rest.CopyConfig(cfg)
		c.GroupVersion, c.APIPath, c.QPS, c.Burst = &gv, path, qps, burst
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		c.UserAgent = "fairlead-runner"
		return rest.RESTClientForConfigAndClient(c, hc)
	}
	c := &cluster{namespace: namespace, parameters: runtime.NewParameterCodec(scheme), transport: hc.Transport}
	if c.core, err = group(corev1.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	if c.batch, err = group(batchv1.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *cluster) close() {
	(&http.Client{Transport: c.transport}).CloseIdleConnections()
}

func (c *cluster) of(k kind) *rest.RESTClient {
	if k == jobs {
		return c.batch
	}
	return c.core
}

func (c *cluster) create(ctx context.Context, k kind, in, out runtime.Object) error {
	return c.of(k).Post().Namespace(c.namespace).Resource(string(k)).Body(in).Do(ctx).Into(out)
}

func (c *cluster) get(ctx context.Context, k kind, name string, out runtime.Object) error {
	return c.of(k).Get().Namespace(c.namespace).Resource(string(k)).Name(name).Do(ctx).Into(out)
}

func (c *cluster) list(ctx context.Context, k kind, o metav1.ListOptions, out runtime.Object) error {
	return c.of(k).Get().Namespace(c.namespace).Resource(string(k)).VersionedParams(&o, c.parameters).Do(ctx).Into(out)
}

func (c *cluster) watch(ctx context.Context, k kind, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.of(k).Get().Namespace(c.namespace).Resource(string(k)).VersionedParams(&o, c.parameters).Watch(ctx)
}

func (c *cluster) patch(ctx context.Context, k kind, name string, how types.PatchType, patch []byte) error {
	return c.of(k).Patch(how).Namespace(c.namespace).Resource(string(k)).Name(name).Body(patch).Do(ctx).Error()
}

// remove removes one thing, and in the background what it owns. grace is how
// many seconds a pod has to end; -1: as its spec says.
func (c *cluster) remove(ctx context.Context, k kind, name string, grace int64) error {
	background := metav1.DeletePropagationBackground
	o := metav1.DeleteOptions{PropagationPolicy: &background}
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	return c.of(k).Delete().Namespace(c.namespace).Resource(string(k)).Name(name).Body(&o).Do(ctx).Error()
}

// log returns the last limit bytes of what a container has said.
func (c *cluster) log(ctx context.Context, pod, container string, limit int) (string, error) {
	r, err := c.core.Get().Namespace(c.namespace).Resource(string(pods)).Name(pod).SubResource("log").
		VersionedParams(&corev1.PodLogOptions{Container: container}, c.parameters).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer r.Close()
	tail := executor.NewTail(limit)
	if _, err := io.Copy(tail, r); err != nil {
		return "", err
	}
	return tail.String(), nil
}
