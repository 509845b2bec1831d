package executor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/pkg/retry"
)

// Ending is how a step ended, once that is known. What is said first stays:
// later a driver may find no more than that nothing is there. The zero value is
// ready. Safe for concurrent use.
type Ending struct{ exit atomic.Pointer[Exit] }

// Set says how the step ended, unless that is known, and returns what is.
func (e *Ending) Set(x Exit) Exit {
	e.exit.CompareAndSwap(nil, &x)
	return *e.exit.Load()
}

// Await returns how the step ended. It calls look, which is to find out and set it,
// until it is known. After an error of look it pauses: what was asked may answer later.
// Its own error is ctx's.
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

// Get returns how the step ended. ok is whether that is known.
func (e *Ending) Get() (x Exit, ok bool) {
	if p := e.exit.Load(); p != nil {
		return *p, true
	}
	return Exit{}, false
}
