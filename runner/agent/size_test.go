package agent

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/test/plane"
)

// recorder is an executor that keeps the last step.
type recorder struct {
	hostile
	last executor.Step
}

// Start implements executor.Executor.
func (r *recorder) Start(_ context.Context, s executor.Step) (executor.Handle, error) {
	r.last = s
	return dead(s.ID), nil
}

func TestStepHasTheSizeOfItsClaim(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	e := &recorder{hostile: hostile{data: cfg.Data}}
	a, err := open(t.Context(), cfg, Options{Executor: e}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer a.lock.Close()
	for job, size := range map[string]*wire.JobSize{"job_sized": {CPU: 500, Memory: 2 << 30}, "job_plain": nil} {
		c := claimOf(job)
		c.Size = size
		if _, err := a.start(t.Context(), job+"-1", c); err != nil {
			t.Fatal(err)
		}
		var want wire.JobSize
		if size != nil {
			want = *size
		}
		if got := (wire.JobSize{CPU: int64(e.last.CPU), Memory: int64(e.last.Memory)}); got != want {
			t.Errorf("the step has the size %+v, want %+v", got, want)
		}
	}
}
