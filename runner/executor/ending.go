package executor

import "sync/atomic"

// Ending is how a step ended, once that is known. What is said first stays:
// later a driver may find no more than that nothing is there. The zero value is
// ready. Safe for concurrent use.
type Ending struct{ exit atomic.Pointer[Exit] }

// Set says how the step ended, unless that is known, and returns what is.
func (e *Ending) Set(x Exit) Exit {
	e.exit.CompareAndSwap(nil, &x)
	return *e.exit.Load()
}

// Get returns how the step ended. ok is whether that is known.
func (e *Ending) Get() (x Exit, ok bool) {
	if p := e.exit.Load(); p != nil {
		return *p, true
	}
	return Exit{}, false
}
