package ecs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// mostTasks is the number of tasks that one DescribeTasks accepts, a limit of AWS.
const mostTasks = 100

// watcher describes all tasks that handles wait for, in as few requests as
// possible, because one request for each step would exceed the account's rate
// limit. The watcher's goroutine runs only while a handle waits. Safe for concurrent use.
type watcher struct {
	api     *ecs.Client
	cluster string
	every   time.Duration

	mu      sync.Mutex
	waiting map[string][]chan look // by ARN
	working bool
}

type look struct {
	task *types.Task // nil: ECS does not know the task
	err  error
}

// next returns the next description of a task, or nil if ECS does not know the
// task.
func (w *watcher) next(ctx context.Context, arn string) (*types.Task, error) {
	ch := make(chan look, 1)
	w.mu.Lock()
	if w.waiting == nil {
		w.waiting = map[string][]chan look{}
	}
	w.waiting[arn] = append(w.waiting[arn], ch)
	if !w.working {
		w.working = true
		go w.work(context.WithoutCancel(ctx))
	}
	w.mu.Unlock()
	select {
	case l := <-ch:
		return l.task, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// work describes tasks until no handle waits.
func (w *watcher) work(ctx context.Context) {
	for {
		time.Sleep(w.every)
		w.mu.Lock()
		batch := w.waiting
		w.waiting = nil
		if len(batch) == 0 {
			w.working = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		for arns := range slices.Chunk(slices.Sorted(maps.Keys(batch)), mostTasks) {
			found, err := w.describe(ctx, arns)
			for _, arn := range arns {
				for _, ch := range batch[arn] {
					ch <- look{found[arn], err}
				}
			}
		}
	}
}

func (w *watcher) describe(ctx context.Context, arns []string) (map[string]*types.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	out, err := w.api.DescribeTasks(ctx, &ecs.DescribeTasksInput{Cluster: &w.cluster, Tasks: arns})
	if err != nil {
		return nil, err
	}
	found := map[string]*types.Task{}
	for i := range out.Tasks {
		found[aws.ToString(out.Tasks[i].TaskArn)] = &out.Tasks[i]
	}
	return found, nil
}
