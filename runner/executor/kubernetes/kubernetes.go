// Package kubernetes runs each step as a Job of a Kubernetes cluster. The Job has
// one pod, which is never restarted. A step shares no folder with its agent: it
// gets its input in an environment variable and its launch token from a Secret,
// and reports directly to the control plane. The agent sees how the pod ended, and
// the step's own output in the pod's log.
//
// The Job exists until Remove, or until the cluster deletes it. So a new agent
// still learns how the step ended.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
)

const (
	// killFor bounds Kill: the kubelet of the node sees the deletion within
	// seconds, and the grace period is one second.
	killFor = time.Minute
	// ask bounds one request that is not part of a launch.
	ask = 10 * time.Second
)

// Options of New.
type Options struct {
	Job    runnerspec.KubernetesJob
	Runner string // id of the runner, for a label
	// Cluster configures the client of the API server. nil: the client uses the
	// kubeconfig or, without one, the service account of the agent's pod.
	Cluster *rest.Config
	// Via, if not nil, wraps the transport to the API server.
	Via func(http.RoundTripper) http.RoundTripper
}

// Executor starts steps as Jobs. Safe for concurrent use.
type Executor struct {
	o       Options
	c       *cluster
	overlay []byte           // merged into the pod, JSON; nil: none
	checker executor.Checker // checks the transport to the API server; nil: the transport has no check
}

// New returns an Executor. It sends no request: an agent can start while the
// cluster is unavailable.
func New(o Options) (*Executor, error) {
	j := &o.Job
	j.ImagePullPolicy = cmp.Or(j.ImagePullPolicy, "IfNotPresent")
	j.MemoryRequest = cmp.Or(j.MemoryRequest, 512<<20)
	j.Data = cmp.Or(j.Data, "/var/lib/fairlead-runner")
	j.StartTimeout = cmp.Or(j.StartTimeout, runnerspec.Duration(5*time.Minute))
	j.StopGrace = cmp.Or(j.StopGrace, runnerspec.Duration(2*time.Minute))
	j.KeepFor = cmp.Or(j.KeepFor, runnerspec.Duration(time.Hour))
	if j.PassEnv == nil {
		j.PassEnv = passEnv()
	}
	e := &Executor{o: o}
	if j.Image == "" {
		return nil, executor.Incomplete("job.image")
	}
	if j.ServiceAccount == "" {
		return nil, executor.Incomplete("job.service_account")
	}
	var err error
	if len(j.PodTemplate) > 0 {
		if e.overlay, err = overlayOf(j.PodTemplate); err != nil {
			return nil, fmt.Errorf("pod_template: %w", err)
		}
	}
	cfg, namespace := o.Cluster, ""
	if cfg == nil {
		if cfg, namespace, err = reach(j.Kubeconfig); err != nil {
			return nil, err
		}
	}
	namespace = cmp.Or(j.Namespace, namespace)
	if namespace == "" {
		return nil, fmt.Errorf("%w, and the agent does not run in a pod whose namespace it could use", executor.Incomplete("job.namespace"))
	}
	e.checker, _ = cfg.Transport.(executor.Checker)
	if o.Via != nil {
		cfg.Wrap(o.Via)
	}
	if e.c, err = newCluster(cfg, namespace); err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	// Report an invalid overlay now, not at the first job.
	if _, err := e.job(executor.Step{ID: "job_check-1"}); err != nil {
		return nil, err
	}
	return e, nil
}

// passEnv returns the variables with which a job's service account authenticates
// at the API server, AWS and Azure.
func passEnv() []string {
	return []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_STS_REGIONAL_ENDPOINTS", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
		"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"}
}

// Check returns an error if the cluster's cloud refuses access to the cluster. It
// does not contact the cluster itself.
func (e *Executor) Check(ctx context.Context) error {
	if e.checker == nil {
		return nil
	}
	return e.checker.Check(ctx)
}

// Close closes idle connections to the API server. Steps continue.
func (e *Executor) Close() { e.c.close() }

// Place is a pod. The agent and other pods cannot access its disk.
func (e *Executor) Place() executor.Place {
	return executor.Place{Data: e.o.Job.Data, OwnImages: true, Store: runnerspec.StoreKubernetes, PassEnv: e.o.Job.PassEnv, KillFor: killFor, Holds: func(s executor.Step) error {
		if size := len(executor.InputVariable) + len("=") + len(s.Input) + 1; size > maxVariable {
			return &executor.LaunchError{Cause: fairlead.CauseLaunchFailed, Err: fmt.Errorf("the variable %s of the pod has %d bytes, but Linux accepts at most %d", executor.InputVariable, size, maxVariable)}
		}
		return nil
	}}
}

// maxVariable is the longest environment variable that Linux passes to a program:
// MAX_ARG_STRLEN, in bytes, with the name and the terminating zero.
const maxVariable = 128 << 10

// Start creates a Secret with the step's secrets and a Job that refers to it. The
// Job owns the Secret, so the cluster deletes both together.
func (e *Executor) Start(ctx context.Context, s executor.Step) (executor.Handle, error) {
	job, err := e.job(s)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	secret := e.secret(s)
	if err := executor.Try(ctx, passing, func(ctx context.Context) error {
		err := e.c.create(ctx, secrets, secret, &corev1.Secret{})
		if apierrors.IsAlreadyExists(err) {
			return nil // created by an earlier request whose answer was lost
		}
		return err
	}); err != nil {
		return nil, e.giveUp(ctx, s.ID, fmt.Errorf("create the Secret of step %s: %w", s.ID, err))
	}
	unclear := false
	made, err := executor.Retry(ctx, passing, func(ctx context.Context) (*batchv1.Job, error) {
		var made batchv1.Job
		err := e.c.create(ctx, jobs, job, &made)
		if apierrors.IsAlreadyExists(err) {
			err = e.c.get(ctx, jobs, job.Name, &made)
		}
		unclear = unclear || err != nil && passing(err) && !executor.NeverSent(err)
		return &made, err
	})
	h := &handle{e: e, id: s.ID, since: time.Now()}
	switch {
	case err == nil:
		h.since = made.CreationTimestamp.Time
		e.own(ctx, secret.Name, made)
		return h, nil
	case unclear && passing(err):
		// The Job may exist. After an error here, another attempt would start while
		// this step may run. Wait retries until the cluster answers.
		return h, nil
	}
	return nil, e.giveUp(ctx, s.ID, fmt.Errorf("create the Job of step %s: %w", s.ID, err))
}

// own makes the Job the owner of the Secret. If this fails, Remove still removes
// the Secret.
func (e *Executor) own(ctx context.Context, name string, job *batchv1.Job) {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":%q,"uid":%q}]}}`, job.Name, job.UID)
	_ = e.c.patch(ctx, secrets, name, types.MergePatchType, []byte(patch))
}

// giveUp removes the Job and the Secret of a failed start, unless no request reached
// the API server.
func (e *Executor) giveUp(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ask)
	defer cancel()
	if executor.NeverSent(cause) || refused(cause) {
		return cause // no request reached the API server, so nothing exists
	}
	return errors.Join(cause, e.Remove(ctx, id))
}

// Attach finds the Job of an attempt, running or ended.
func (e *Executor) Attach(ctx context.Context, id string) (executor.Handle, error) {
	h := &handle{e: e, id: id}
	job, err := executor.Retry(ctx, passing, func(ctx context.Context) (*batchv1.Job, error) {
		var j batchv1.Job
		return &j, e.c.get(ctx, jobs, name(id), &j)
	})
	switch {
	case apierrors.IsNotFound(err):
		h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "the cluster has no Job of the step: it was never started, or another program removed it"})
		return h, executor.ErrGone
	case err != nil && (passing(err) || refused(err)):
		h.since = time.Now()
		return h, nil // the cluster may be available later; Wait retries until it answers
	case err != nil:
		return nil, fmt.Errorf("attach to step %s: %w", id, err)
	}
	h.since = job.CreationTimestamp.Time
	return h, nil
}

// maxFound bounds the pods that one search reads.
const maxFound = 1000

// Find returns the attempts of the runner's pods that have not ended. It lists pods and not Jobs,
// because the agent's rules let it list pods. The pod of a new Job may appear only in a later search.
func (e *Executor) Find(ctx context.Context) ([]string, error) {
	found, err := executor.Retry(ctx, passing, func(ctx context.Context) (*corev1.PodList, error) {
		var list corev1.PodList
		return &list, e.c.list(ctx, pods, metav1.ListOptions{LabelSelector: LabelRunner + "=" + e.o.Runner, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed", Limit: maxFound}, &list)
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of runner %s: %w", e.o.Runner, err)
	}
	var ids []string
	for i := range found.Items {
		if p := &found.Items[i]; !finished(p) && p.Labels[LabelAttempt] != "" {
			ids = append(ids, p.Labels[LabelAttempt])
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Remove removes the Job, its pod and its Secret.
func (e *Executor) Remove(ctx context.Context, id string) error {
	for _, k := range []kind{jobs, secrets} {
		err := executor.Try(ctx, passing, func(ctx context.Context) error { return e.c.remove(ctx, k, name(id), -1) })
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the %s of step %s: %w", k, id, err)
		}
	}
	return nil
}

// passing reports whether a retry may succeed.
func passing(err error) bool {
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) {
		return slices.ContainsFunc([]func(error) bool{apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsTooManyRequests,
			apierrors.IsServiceUnavailable, apierrors.IsInternalError, apierrors.IsUnexpectedServerError}, func(is func(error) bool) bool { return is(err) })
	}
	return !errors.Is(err, context.Canceled) && !refused(err)
}

// refused reports whether the transport did not send the request to the API
// server, because the access to the cluster is misconfigured. A person must change
// the configuration first.
func refused(err error) bool {
	_, is := errors.AsType[*executor.LaunchError](err)
	return is
}

// reach returns the configuration of the client, and the namespace of the agent's
// pod. The namespace is "" if a kubeconfig is used.
func reach(kubeconfig string) (*rest.Config, string, error) {
	if kubeconfig == "" {
		return fromPod()
	}
	return fromFile(kubeconfig)
}

func listOptions(id string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: LabelAttempt + "=" + id}
}
