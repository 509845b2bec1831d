// Package kubernetes runs each step as a Job of a Kubernetes cluster, one pod
// each, which is never started again. A step shares no folder with its agent:
// it gets its input in an environment variable and its launch token from a
// Secret, and reports to the control plane by itself. The agent sees the end of
// the pod, and what the step itself has said as the cluster's log of it.
//
// The Job stays until Remove, or until the cluster removes it, so an agent that
// was replaced still learns how the step ended.
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
	// killFor is how long Kill may take: the API server tells the node's
	// kubelet, which looks within seconds and grants a second.
	killFor = time.Minute
	// ask bounds one question outside of a launch.
	ask = 10 * time.Second
)

// Options of New.
type Options struct {
	Job    runnerspec.KubernetesJob
	Runner string // id of the runner, for a label
	// Cluster is how the API server is reached; nil: by the kubeconfig, or as the
	// agent's pod.
	Cluster *rest.Config
	// Via, if not nil, wraps the transport to the API server.
	Via func(http.RoundTripper) http.RoundTripper
}

// Executor starts steps as Jobs. Safe for concurrent use.
type Executor struct {
	o       Options
	c       *cluster
	overlay []byte           // on the pod, JSON; nil: none
	way     executor.Checker // to the API server; nil: it is open, or shows to be shut when it is taken
}

// New returns an Executor. Whether the cluster answers shows at the first step:
// an agent need not wait for it.
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
		return nil, fmt.Errorf("%w, and the agent runs in no pod whose namespace it could take", executor.Incomplete("job.namespace"))
	}
	e.way, _ = cfg.Transport.(executor.Checker)
	if o.Via != nil {
		cfg.Wrap(o.Via)
	}
	if e.c, err = newCluster(cfg, namespace); err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	// What can be seen to be wrong now need not wait for the first job.
	if _, err := e.job(executor.Step{ID: "job_check-1"}); err != nil {
		return nil, err
	}
	return e, nil
}

// passEnv are the variables by which a job's service account is somebody to the
// API server, to AWS and to Azure.
func passEnv() []string {
	return []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_STS_REGIONAL_ENDPOINTS", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
		"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"}
}

// Check says what keeps the cluster shut, where that can be known without it.
func (e *Executor) Check(ctx context.Context) error {
	if e.way == nil {
		return nil
	}
	return e.way.Check(ctx)
}

// Close closes idle connections to the API server. Steps go on.
func (e *Executor) Close() { e.c.close() }

// Place is a pod, whose disk nobody else sees.
func (e *Executor) Place() executor.Place {
	return executor.Place{Data: e.o.Job.Data, PassEnv: e.o.Job.PassEnv, KillFor: killFor, Holds: func(s executor.Step) error {
		if size := len(executor.InputVariable) + len("=") + len(s.Input) + 1; size > maxVariable {
			return &executor.LaunchError{Cause: fairlead.CauseLaunchFailed, Err: fmt.Errorf("the variable %s of its pod has %d bytes, and Linux takes %d", executor.InputVariable, size, maxVariable)}
		}
		return nil
	}}
}

// maxVariable is the longest variable that Linux gives to a program, in bytes with
// its name and its end (MAX_ARG_STRLEN).
const maxVariable = 128 << 10

// Start makes a Secret with the step's secrets and a Job that refers to it. The
// Secret goes with the Job.
func (e *Executor) Start(ctx context.Context, s executor.Step) (executor.Handle, error) {
	job, err := e.job(s)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	secret := e.secret(s)
	if err := executor.Try(ctx, passing, func(ctx context.Context) error {
		err := e.c.create(ctx, secrets, secret, &corev1.Secret{})
		if apierrors.IsAlreadyExists(err) {
			return nil // made before; the answer was lost
		}
		return err
	}); err != nil {
		return nil, e.giveUp(ctx, s.ID, fmt.Errorf("make the Secret of step %s: %w", s.ID, err))
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
		// It may be there. To say that it is not would make another attempt
		// beside it; Wait asks until the cluster answers.
		return h, nil
	}
	return nil, e.giveUp(ctx, s.ID, fmt.Errorf("make the Job of step %s: %w", s.ID, err))
}

// own makes the Secret go with its Job. Should that fail, Remove removes it.
func (e *Executor) own(ctx context.Context, name string, job *batchv1.Job) {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":%q,"uid":%q}]}}`, job.Name, job.UID)
	_ = e.c.patch(ctx, secrets, name, types.MergePatchType, []byte(patch))
}

func (e *Executor) giveUp(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ask)
	defer cancel()
	if executor.NeverSent(cause) || refused(cause) {
		return cause // nor is there anything to remove
	}
	return errors.Join(cause, e.Remove(ctx, id))
}

// Attach finds the Job of an attempt, at work or ended.
func (e *Executor) Attach(ctx context.Context, id string) (executor.Handle, error) {
	h := &handle{e: e, id: id}
	job, err := executor.Retry(ctx, passing, func(ctx context.Context) (*batchv1.Job, error) {
		var j batchv1.Job
		return &j, e.c.get(ctx, jobs, name(id), &j)
	})
	switch {
	case apierrors.IsNotFound(err):
		h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "the cluster has no Job of the step: it was never started, or was removed by somebody else"})
		return h, executor.ErrGone
	case err != nil && (passing(err) || refused(err)):
		h.since = time.Now()
		return h, nil // a cluster that is away may be back; Wait asks until it knows
	case err != nil:
		return nil, fmt.Errorf("attach to step %s: %w", id, err)
	}
	h.since = job.CreationTimestamp.Time
	return h, nil
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

// passing reports whether the API server may answer differently in a moment.
func passing(err error) bool {
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) {
		return slices.ContainsFunc([]func(error) bool{apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsTooManyRequests,
			apierrors.IsServiceUnavailable, apierrors.IsInternalError, apierrors.IsUnexpectedServerError}, func(is func(error) bool) bool { return is(err) })
	}
	return !errors.Is(err, context.Canceled) && !refused(err)
}

// refused reports whether a request was not let through to the API server, as
// the way there is not as it must be: somebody has to change it first.
func refused(err error) bool {
	_, is := errors.AsType[*executor.LaunchError](err)
	return is
}

// reach returns how the cluster is reached, and the namespace that goes with it.
func reach(kubeconfig string) (*rest.Config, string, error) {
	if kubeconfig == "" {
		return fromPod()
	}
	return fromFile(kubeconfig)
}

func listOptions(id string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: LabelAttempt + "=" + id}
}
