package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/executor"
)

const (
	// look is the duration of one watch of the pod. After each watch, the handle
	// checks the time limits and starts another watch.
	look = 10 * time.Second
	// retryWait is the pause after a request that failed.
	retryWait = time.Second
	// killed is the grace period of Kill, in seconds. With 0, the API server would
	// delete its record of a pod that may still run.
	killed = 1
)

const outOfMemory = "the kernel killed a process of the pod because the container reached its memory limit (job.memory_limit)"

type handle struct {
	e     *Executor
	id    string
	since time.Time // creation time of the Job

	executor.Ending
	dead atomic.Bool            // Kill killed the step
	seen atomic.Pointer[string] // resource version of the last list that contained the pod; nil: none
}

func (h *handle) ID() string { return h.id }

// Wait watches the pod. If the cluster is unavailable, Wait retries until it
// answers.
func (h *handle) Wait(ctx context.Context) (executor.Exit, error) {
	return h.Await(ctx, retryWait, func(ctx context.Context) error {
		version, err := h.see(ctx)
		if _, ok := h.Get(); ok {
			return nil
		}
		if err == nil {
			err = h.change(ctx, version)
		}
		return err
	})
}

// change watches the pod, starting at the resource version, until the pod has
// ended or is deleted, but at most for the duration look. It stores how the pod
// ended. A later list would not show this, because the cluster deletes an
// interrupted pod when the pod ends.
func (h *handle) change(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, look)
	defer cancel()
	o := listOptions(h.id)
	o.ResourceVersion = version
	w, err := h.e.c.watch(ctx, pods, o)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case e := <-w.ResultChan():
			p, is := e.Object.(*corev1.Pod)
			if !is {
				return nil // the watch has ended, or the resource version is too old
			}
			x, over := exitOf(p)
			if over && !never(x) {
				h.Set(x)
			}
			if over || e.Type == watch.Deleted {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// never reports whether x is the Exit of a step that did not start. For such a
// step, the cluster continues to try to start the pod.
func never(x executor.Exit) bool {
	return x.Cause == fairlead.CauseLaunchFailed || x.Cause == fairlead.CauseImagePull || x.Cause == fairlead.CauseImageUnavailable
}

// see reads the pod, or the Job if no pod exists. It stores the Exit if the step
// has ended or cannot start. Otherwise it returns the resource version from which
// a watch misses no change.
func (h *handle) see(ctx context.Context) (string, error) {
	var found corev1.PodList
	if err := h.e.c.list(ctx, pods, listOptions(h.id), &found); err != nil {
		return "", err
	}
	if len(found.Items) == 0 {
		return found.ResourceVersion, h.seeJob(ctx)
	}
	h.seen.Store(&found.ResourceVersion)
	slices.SortFunc(found.Items, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	p := &found.Items[0]
	x, over := exitOf(p)
	if !over && !started(p) && time.Since(h.since) > time.Duration(h.e.o.Job.StartTimeout) {
		x, over = executor.Never(fairlead.CauseLaunchFailed, "the pod did not start within %s: %s", h.e.o.Job.StartTimeout, waitsFor(p)), true
	}
	if !over {
		return found.ResourceVersion, nil
	}
	if never(x) { // otherwise the cluster would continue to try to start the pod
		if err := h.e.Remove(ctx, h.id); err != nil {
			return "", err
		}
	}
	h.Set(x)
	return "", nil
}

// seeJob does the work of see for a step without a pod.
func (h *handle) seeJob(ctx context.Context) error {
	if seen := h.seen.Swap(nil); seen != nil {
		// The pod existed. A watch that starts at the stored version still shows how the
		// pod ended.
		err := h.change(ctx, *seen)
		if _, ok := h.Get(); ok || err != nil {
			return err
		}
	}
	dead := h.dead.Load()
	var job batchv1.Job
	err := h.e.c.get(ctx, jobs, name(h.id), &job)
	switch {
	case dead && (apierrors.IsNotFound(err) || err == nil):
		h.Set(executor.Exit{Cause: fairlead.CauseKilled, Signal: "killed"})
		return nil
	case apierrors.IsNotFound(err):
		h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "the Job of the step does not exist: another program deleted it, or it was never created"})
		return nil
	case err != nil:
		return err
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "the pod of the step was deleted before the agent could see how it ended: " + c.Message})
			return nil
		}
	}
	if time.Since(h.since) <= time.Duration(h.e.o.Job.StartTimeout) {
		return nil
	}
	why := h.whyNoPod(ctx)
	if err := h.e.Remove(ctx, h.id); err != nil {
		return err
	}
	h.Set(executor.Never(fairlead.CauseLaunchFailed, "the cluster created no pod within %s: %s", h.e.o.Job.StartTimeout, why))
	return nil
}

// whyNoPod returns the message of the last event of a Job without a pod, such as
// an exhausted quota.
func (h *handle) whyNoPod(ctx context.Context) string {
	var found corev1.EventList
	err := h.e.c.list(ctx, events, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name(h.id), Limit: 20}, &found)
	if err != nil || len(found.Items) == 0 {
		return "it gives no reason"
	}
	return found.Items[len(found.Items)-1].Message
}

// fault returns the cause if a container with that waiting reason will not start,
// or "" if it may start. Some of these reasons can disappear after minutes, but
// another attempt is faster.
func fault(waiting string) fairlead.Cause {
	switch waiting {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return fairlead.CauseImagePull
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError":
		return fairlead.CauseLaunchFailed
	}
	return ""
}

// exitOf returns how a pod ended. over reports whether its step has ended or will
// never start.
func exitOf(p *corev1.Pod) (x executor.Exit, over bool) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && s.Name == Container {
			if t.Reason == "StartError" || t.Reason == "ContainerCannotRun" {
				return executor.Never(fairlead.CauseLaunchFailed, "the container did not start: %s", t.Message), true
			}
			x = executor.ExitOf(int(t.ExitCode), t.Reason == "OOMKilled", outOfMemory)
			if x.Message == "" && p.Status.Reason != "" { // such as Evicted
				x.Message = strings.TrimSpace(p.Status.Reason + ": " + p.Status.Message)
			}
			return x, true
		}
		if t := s.State.Terminated; t != nil && s.Name == CopyContainer && t.ExitCode != 0 {
			return executor.Never(fairlead.CauseLaunchFailed, "the container %s could not copy the runner's program out of the image %s, which must not be older than the agent: exit code %d: %s", s.Name, s.Image, t.ExitCode, strings.TrimSpace(t.Message)), true
		}
		w := s.State.Waiting
		if w == nil {
			continue
		}
		if cause := fault(w.Reason); cause != "" {
			if cause == fairlead.CauseImagePull {
				cause = executor.ImageCause(s.Name == Container && ownImage(p))
			}
			return executor.Never(cause, "the container %s cannot be started from the image %s: %s: %s", s.Name, s.Image, w.Reason, w.Message), true
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		what := strings.TrimSpace(p.Status.Reason + ": " + p.Status.Message)
		if !started(p) {
			return executor.Never(fairlead.CauseLaunchFailed, "the pod failed before the step ran: %s", what), true
		}
		return executor.Exit{Cause: fairlead.CauseKilled, Message: "the cluster ended the pod: " + what}, true
	}
	return x, false
}

// ownImage reports whether the step of the pod runs in an image of its own.
func ownImage(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == CopyContainer })
}

// started reports whether the container of the step has ever run.
func started(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == Container && (s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil)
	})
}

// waitsFor returns why a pod has not started, as the cluster reports it.
func waitsFor(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node accepts it: " + c.Message
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && (w.Reason != "PodInitializing" || w.Message != "") {
			return fmt.Sprintf("the container %s waits: %s %s", s.Name, w.Reason, w.Message)
		}
	}
	return "it is " + strings.ToLower(string(p.Status.Phase))
}

// Interrupt deletes the pod: the step gets SIGTERM, and SIGKILL after
// job.stop_grace.
func (h *handle) Interrupt() error {
	if _, ok := h.Get(); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ask)
	defer cancel()
	count, err := h.endPods(ctx, -1)
	if _, ended := h.Get(); err == nil && count == 0 && !ended {
		err = errors.New("the cluster has created no pod yet")
	}
	if err != nil {
		return fmt.Errorf("interrupt step %s: %w", h.id, err)
	}
	return nil
}

// endPods deletes the pods of the step that have not ended. count is the number of
// all its pods, ended ones included.
func (h *handle) endPods(ctx context.Context, grace int64) (count int, err error) {
	var found corev1.PodList
	if err := h.e.c.list(ctx, pods, listOptions(h.id), &found); err != nil {
		return 0, err
	}
	for i := range found.Items {
		p := &found.Items[i]
		if finished(p) {
			continue // keep the pod: another agent may still read how the pod ended
		}
		if err := h.e.c.remove(ctx, pods, p.Name, grace); err != nil && !apierrors.IsNotFound(err) {
			return len(found.Items), err
		}
	}
	return len(found.Items), nil
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Kill deletes the Job, so that the cluster creates no other pod, and then the
// pod. It returns when the node has reported the end of the pod, because an
// unavailable node may still run the pod.
func (h *handle) Kill(ctx context.Context) error {
	if _, ok := h.Get(); !ok {
		if _, err := executor.Retry(ctx, passing, h.see); err != nil { // read how the pod ended before the Job is deleted: the pod is deleted with the Job
			return fmt.Errorf("kill step %s: %w", h.id, err)
		}
	}
	_, ended := h.Get()
	h.dead.Store(!ended)
	if err := executor.Try(ctx, passing, func(ctx context.Context) error {
		err := h.e.c.remove(ctx, jobs, name(h.id), -1)
		if err == nil || apierrors.IsNotFound(err) {
			_, err = h.endPods(ctx, killed)
		}
		return err
	}); err != nil {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	for {
		var found corev1.PodList
		err := h.e.c.list(ctx, pods, listOptions(h.id), &found)
		if err == nil && !slices.ContainsFunc(found.Items, func(p corev1.Pod) bool { return !finished(&p) }) {
			if _, ok := h.Get(); !ok {
				_, err = h.see(ctx)
			}
			return err
		}
		if err == nil {
			err = h.change(ctx, found.ResourceVersion)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("kill step %s: the cluster has not reported the end of its pod: %w", h.id, ctx.Err())
		}
		if err != nil {
			retry.Sleep(ctx, retryWait)
		}
	}
}

// Output reads the cluster's log of the container.
func (h *handle) Output(ctx context.Context, limit int) (string, error) {
	var found corev1.PodList
	if err := h.e.c.list(ctx, pods, listOptions(h.id), &found); err != nil {
		return "", fmt.Errorf("read the output of step %s: %w", h.id, err)
	}
	for i := range found.Items {
		if !started(&found.Items[i]) {
			continue
		}
		output, err := h.e.c.log(ctx, found.Items[i].Name, Container, limit)
		if err != nil {
			return "", fmt.Errorf("read the output of step %s: %w", h.id, err)
		}
		return output, nil
	}
	return "", nil
}
