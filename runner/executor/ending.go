package executor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/pkg/retry"
)

// Ending holds how a step ended. Only the first stored value counts, because a
// driver that looks later may only find that the step is gone. The zero value is ready to
// use. Safe for concurrent use.
type Ending struct{ exit atomic.Pointer[Exit] }

// Set stores x unless a value is already stored. It returns the stored value.
func (e *Ending) Set(x Exit) Exit {
	e.exit.CompareAndSwap(nil, &x)
	return *e.exit.Load()
}

// Await returns how the step ended. It calls look, which must call Set, until a
// value is stored. After an error of look it pauses, because the system that look
// asks may answer later. Await returns only errors of ctx.
func (e *Ending) Await(ctx context.Context, pause time.Duration, look func(context.Context) error) (Exit, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Exit{}, err
		}
		if x, ok := e.Get(); ok {
			return x, nil
		}
		if err := look(ctx); err != nil {
			retry.Sleep(ctx, pause)
		}
	}
}

// Get returns how the step ended. ok reports whether a value is stored.
func (e *Ending) Get() (x Exit, ok bool) {
	if p := e.exit.Load(); p != nil {
		return *p, true
	}
	return Exit{}, false
}
