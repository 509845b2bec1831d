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

// namespaceFile contains the namespace of the agent's pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func fromPod() (*rest.Config, string, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, "", errors.New("the agent does not run in a pod: set runner_configuration.job.kubeconfig to a file")
	}
	if err != nil {
		return nil, "", fmt.Errorf("service account of the agent's pod: %w", err)
	}
	b, err := os.ReadFile(namespaceFile)
	if err != nil {
		return cfg, "", nil // New then requires job.namespace
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

// kind is a resource type in the namespace.
type kind string

const (
	jobs    kind = "jobs"
	pods    kind = "pods"
	secrets kind = "secrets"
	events  kind = "events"
)

// cluster is a client of the API server for one namespace. Safe for concurrent
// use. It supports only two API groups. The generated client of all groups would
// more than double the start time of the program, and each step is a start of the
// same program.
type cluster struct {
	namespace   string
	core, batch *rest.RESTClient
	parameters  runtime.ParameterCodec
	transport   http.RoundTripper
}

// Limits of the client: requests per second on average, and in one burst. A
// hundred steps that start together send about three hundred requests.
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

// remove deletes one resource. The cluster deletes the resources that it owns in
// the background. grace is the grace period of a pod in seconds; -1: the period of
// the pod's spec.
func (c *cluster) remove(ctx context.Context, k kind, name string, grace int64) error {
	background := metav1.DeletePropagationBackground
	o := metav1.DeleteOptions{PropagationPolicy: &background}
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	return c.of(k).Delete().Namespace(c.namespace).Resource(string(k)).Name(name).Body(&o).Do(ctx).Error()
}

// log returns the last limit bytes of a container's output.
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
