// Package executor starts a step somewhere and watches it: as a child process
// today, as a container or a cluster's job with another driver. What a step
// does is none of its business. Every driver passes executortest.
package executor

import (
	"context"
	"errors"
)

// Step is what to start. ID names it for good: Attach finds it again by its ID
// after the agent was replaced.
type Step struct {
	ID   string
	Args []string // after the driver's own: the subcommand and its flags
	Env  []string // the whole environment, "name=value"; nothing is added but what the driver needs to know its own
}

// Exit says how a step ended, as far as could be seen.
type Exit struct {
	Code    *int   // nil if nobody could see it, or a signal ended it
	Signal  string // such as "killed"; "" if none was seen
	Reason  string // one of the Reason constants
	Message string // what a person needs to know; may be empty
}

// Why a step ended. They travel in reports to the control plane.
const (
	Exited      = "exited"
	Killed      = "killed"
	OutOfMemory = "out-of-memory"
	Vanished    = "vanished"
)

// ErrGone says that Attach found no step of that ID at work.
var ErrGone = errors.New("the step is gone")

// Handle is one step. Safe for concurrent use.
type Handle interface {
	ID() string

	// Wait returns when the step has ended. It may be called again. The error
	// is ctx's: a step always has an end.
	Wait(ctx context.Context) (Exit, error)

	// Interrupt asks the step to stop, once and gently.
	Interrupt() error

	// Kill ends the step and everything that it has started, at whatever depth,
	// and returns when all of it is gone. It may be called after the end of the
	// step, to end what the step has left behind.
	Kill(ctx context.Context) error
}

// Executor starts and finds steps. Safe for concurrent use.
type Executor interface {
	// Start starts the step. Ending ctx does not end it, nor does the end of
	// the process that called Start.
	Start(ctx context.Context, s Step) (Handle, error)

	// Attach finds a step that an earlier process has started, or returns
	// ErrGone with a Handle on which Kill alone is useful.
	Attach(ctx context.Context, id string) (Handle, error)
}
