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

// mostTasks is how many tasks one DescribeTasks takes: AWS's limit.
const mostTasks = 100

// watcher looks at all tasks that somebody waits for in as few requests as can
// be: a request for each step would run into the account's rate. It works while
// somebody waits. Safe for concurrent use.
type watcher struct {
	api     *ecs.Client
	cluster string
	every   time.Duration

	mu      sync.Mutex
	waiting map[string][]chan look // by ARN
	working bool
}

type look struct {
	task *types.Task // nil: ECS does not know it
	err  error
}

// next returns what the next look shows of a task; nil if ECS does not know it.
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

// work looks until nobody waits.
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
