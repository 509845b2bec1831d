package ecs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
)

const (
	stopped     = "STOPPED"
	outOfMemory = "the container was killed because it reached its memory limit (job.memory, or the limit of the task definition)"
)

type handle struct {
	e       *Executor
	id      string
	since   time.Time         // about the time of the request to start the task; zero: unknown
	request *ecs.RunTaskInput // the request that started the task; nil for a task of an earlier agent; only used while arn is unknown

	executor.Ending

	mu   sync.Mutex
	arn  string    // "" if unknown
	seen time.Time // when ECS last knew the task; initially, when ECS accepted it
}

func (h *handle) ID() string { return h.id }

func (h *handle) task() (arn string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.arn
}

// find searches for a task whose start ECS did not confirm. If this agent sent the
// request, find sends the request again: its token prevents a second task. If an
// earlier agent sent the request, find lists tasks by startedBy.
func (h *handle) find(ctx context.Context) error {
	if h.request == nil {
		return h.list(ctx)
	}
	out, err := h.e.api.RunTask(ctx, h.request)
	switch {
	case err != nil && passing(err) && time.Since(h.since) > time.Duration(h.e.o.Job.StartTimeout):
		h.Set(executor.Never(fairlead.CauseLaunchFailed, "ECS has not confirmed within %s that it runs the task: %v", h.e.o.Job.StartTimeout, err))
		return nil
	case err != nil && passing(err):
		return err
	case err != nil:
		h.Set(executor.Never(fairlead.CauseLaunchFailed, "run a task: %v", err))
		return nil
	case len(out.Tasks) == 0:
		h.Set(executor.Never(fairlead.CauseLaunchFailed, "run a task: %v", refusal(out.Failures)))
		return nil
	}
	h.found(aws.ToString(out.Tasks[0].TaskArn))
	return nil
}

// found stores the ARN of the step's task.
func (h *handle) found(arn string) {
	h.mu.Lock()
	h.arn, h.seen = arn, time.Now()
	h.mu.Unlock()
	_ = h.e.keep(h.id, arn) // as in Start
}

// errUnlisted means that ECS does not list a task of the step, but may do so later.
var errUnlisted = errors.New("ECS lists no task of the step yet")

// list searches for a task that an earlier agent started and did not record.
// With a startedBy filter, ECS lists only tasks that run or will run.
func (h *handle) list(ctx context.Context) error {
	out, err := h.e.api.ListTasks(ctx, &ecs.ListTasksInput{Cluster: &h.e.o.Job.Cluster, StartedBy: &h.id})
	switch {
	case err != nil:
		return err
	case len(out.TaskArns) > 0:
		h.found(out.TaskArns[0])
	case time.Since(h.since) < h.e.o.UnknownFor:
		return errUnlisted
	default:
		h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "ECS runs no task of the step: it was never started, or it ended before an agent found it"})
	}
	return nil
}

// Wait describes the task until it has ended.
func (h *handle) Wait(ctx context.Context) (executor.Exit, error) {
	return h.Await(ctx, h.e.watcher.every, func(ctx context.Context) error {
		if arn := h.task(); arn != "" {
			_ = h.look(ctx, arn) // no pause after an error: the watcher waits before its next request
			return nil
		}
		return h.find(ctx)
	})
}

// look waits for the watcher's next description of the task. It stores the Exit
// if the task has ended, or did not start within the start timeout.
func (h *handle) look(ctx context.Context, arn string) error {
	task, err := h.e.watcher.next(ctx, arn)
	if err != nil {
		return err
	}
	if task == nil {
		return h.unknown(ctx, arn)
	}
	h.mu.Lock()
	h.seen = time.Now()
	h.mu.Unlock()
	if x, over := exitOf(task); over {
		h.Set(x)
		return nil
	}
	begun := h.since
	if task.CreatedAt != nil {
		begun = *task.CreatedAt
	}
	if task.StartedAt == nil && !slices.Contains([]string{"RUNNING", "DEACTIVATING", "STOPPING", "DEPROVISIONING"}, aws.ToString(task.LastStatus)) &&
		time.Since(begun) > time.Duration(h.e.o.Job.StartTimeout) {
		if err := h.stop(ctx, arn, "the task did not start in time"); err != nil {
			return err
		}
		h.Set(executor.Never(fairlead.CauseLaunchFailed, "the task did not start within %s: its status is %s", h.e.o.Job.StartTimeout, strings.ToLower(aws.ToString(task.LastStatus))))
	}
	return nil
}

// unknown handles a description in which ECS did not know the task. ECS is
// eventually consistent, so the task may run. After UnknownFor, unknown stops the
// task and then reports the step as vanished, because a vanished step must not
// run.
func (h *handle) unknown(ctx context.Context, arn string) error {
	h.mu.Lock()
	seen := h.seen
	h.mu.Unlock()
	if time.Since(seen) < h.e.o.UnknownFor {
		return nil
	}
	if err := h.stop(ctx, arn, "the runner cannot find the task"); err != nil {
		return err
	}
	h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: fmt.Sprintf("ECS has not known the task of the step for %s; ECS deletes a task an hour after its end", h.e.o.UnknownFor)})
	return nil
}

// exitOf returns how a task ended. over reports whether its step has ended or
// will never start.
func exitOf(t *types.Task) (x executor.Exit, over bool) {
	c := containerOf(t, Container)
	reason := aws.ToString(c.Reason)
	if c.ExitCode != nil && (aws.ToString(c.LastStatus) == stopped || aws.ToString(t.LastStatus) == stopped) {
		x = executor.ExitOf(int(*c.ExitCode), strings.HasPrefix(reason, "OutOfMemoryError"), outOfMemory)
		if x.Message == "" && x.Cause == fairlead.CauseKilled {
			x.Message = aws.ToString(t.StoppedReason)
		}
		return x, true
	}
	if aws.ToString(t.LastStatus) != stopped {
		return x, false
	}
	why := strings.TrimSpace(aws.ToString(t.StoppedReason) + " " + reason)
	switch {
	case strings.Contains(why, "CannotPull"), strings.Contains(why, "CannotVerifyImage"):
		if image := ownImageOf(t); image != "" && strings.Contains(why, nameOf(image)) {
			return executor.Never(executor.ImageCause(true), "the image %s of the component cannot be pulled: %s", image, why), true
		}
		return executor.Never(executor.ImageCause(false), "%s", why), true
	case copyFailed(t) != "":
		return executor.Never(fairlead.CauseLaunchFailed, "the task did not start: %s. %s", copyFailed(t), why), true
	case t.StartedAt == nil || t.StopCode == types.TaskStopCodeTaskFailedToStart:
		return executor.Never(fairlead.CauseLaunchFailed, "the task did not start: %s", why), true
	}
	return executor.Exit{Cause: fairlead.CauseKilled, Message: "ECS stopped the task: " + why}, true
}

// containerOf returns a container of a task; an empty one if the task has none with this name.
func containerOf(t *types.Task, name string) types.Container {
	if i := slices.IndexFunc(t.Containers, func(c types.Container) bool { return aws.ToString(c.Name) == name }); i >= 0 {
		return t.Containers[i]
	}
	return types.Container{}
}

// ownImageOf returns the image of its own in which the step of a task runs; "" if it runs in the runner's image. ECS
// returns the variables with which the driver started the task, so an agent that did not start it knows the image too.
func ownImageOf(t *types.Task) string {
	if t.Overrides == nil {
		return ""
	}
	for _, c := range t.Overrides.ContainerOverrides {
		for _, v := range c.Environment {
			if aws.ToString(v.Name) == executor.ImageVariable {
				return aws.ToString(v.Value)
			}
		}
	}
	return ""
}

// nameOf returns an image's reference without its digest. Messages of ECS contain it.
func nameOf(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return name
}

// copyFailed returns why the container that copies the runner's program failed; "" if it did not fail.
func copyFailed(t *types.Task) string {
	c := containerOf(t, CopyContainer)
	if code := c.ExitCode; code != nil && *code != 0 {
		return fmt.Sprintf("the container %s could not copy the runner's program out of the runner's image, which must not be older than the agent: exit code %d. The log stream of this container has its output", CopyContainer, *code)
	}
	return ""
}

func (h *handle) stop(ctx context.Context, arn, reason string) error {
	err := executor.Try(ctx, passing, func(ctx context.Context) error {
		_, err := h.e.api.StopTask(ctx, &ecs.StopTaskInput{Cluster: &h.e.o.Job.Cluster, Task: &arn, Reason: &reason})
		return err
	})
	if gone, ok := errors.AsType[*types.InvalidParameterException](err); ok && strings.Contains(gone.ErrorMessage(), "not found") {
		return nil
	}
	return err
}

// Interrupt stops the task: ECS sends SIGTERM, and SIGKILL after the stop timeout
// of the container.
func (h *handle) Interrupt() error {
	arn := h.task()
	if _, ended := h.Get(); ended {
		return nil
	}
	if arn == "" {
		return fmt.Errorf("interrupt step %s: ECS has not confirmed its task yet", h.id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ask)
	defer cancel()
	if err := h.stop(ctx, arn, "the runner interrupts the step"); err != nil {
		return fmt.Errorf("interrupt step %s: %w", h.id, err)
	}
	return nil
}

// Kill stops the task and waits for its end. ECS cannot kill a task before its
// stop timeout.
func (h *handle) Kill(ctx context.Context) error {
	arn := h.task()
	if _, ended := h.Get(); ended {
		return nil // a container ends with its first process
	}
	if arn == "" {
		return fmt.Errorf("kill step %s: ECS has not confirmed its task yet", h.id)
	}
	if err := h.stop(ctx, arn, "the runner kills the step"); err != nil {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	if _, err := h.Wait(ctx); err != nil {
		return fmt.Errorf("kill step %s: ECS has not confirmed the end of its task: %w", h.id, err)
	}
	return nil
}

// Output reads the end of the container's log stream.
func (h *handle) Output(ctx context.Context, limit int) (string, error) {
	arn := h.task()
	if h.e.o.Job.LogGroup == "" || arn == "" {
		return "", nil
	}
	stream := h.e.o.Job.LogPrefix + "/" + Container + "/" + arn[strings.LastIndexByte(arn, '/')+1:]
	var pages [][]logtypes.OutputLogEvent
	var before *string
	for size := 0; size < limit; {
		head := false
		out, err := h.e.logs.GetLogEvents(ctx, &cloudwatchlogs.GetLogEventsInput{LogGroupName: &h.e.o.Job.LogGroup, LogStreamName: &stream, NextToken: before, StartFromHead: &head})
		if _, none := errors.AsType[*logtypes.ResourceNotFoundException](err); none {
			break // the container wrote nothing
		}
		if err != nil {
			return "", fmt.Errorf("read the output of step %s: %w", h.id, err)
		}
		if len(out.Events) == 0 {
			break
		}
		pages = append(pages, out.Events)
		for _, e := range out.Events {
			size += len(aws.ToString(e.Message)) + 1
		}
		if aws.ToString(out.NextBackwardToken) == aws.ToString(before) {
			break
		}
		before = out.NextBackwardToken
	}
	tail := executor.NewTail(limit)
	for _, page := range slices.Backward(pages) {
		for _, e := range page {
			fmt.Fprintln(tail, aws.ToString(e.Message))
		}
	}
	return tail.String(), nil
}
