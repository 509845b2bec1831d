// Package executor starts a step somewhere and watches it: as a child process,
// as a container, as a job of a cluster, as a task of a cloud. What a step does
// is none of its business. Every driver passes executortest.
package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Step is what to start. ID names it for good: Attach finds it again by its ID
// after the agent was replaced. No two steps ever have the same one.
type Step struct {
	ID   string
	Args []string // after the driver's own: the subcommand and its flags
	Env  []string // "name=value"; nothing of the agent's own environment is added
	// Secrets are as Env, but kept from whoever may look at the place where the
	// step runs, as far as that place can; a driver says how far.
	Secrets []string
	// Folders are those of the data folder that the step gets to see where it does
	// not see all of it.
	Folders []Folder
	// Site is the name of the workspace of the step's component; "": its tool works
	// in a workspace of the attempt alone.
	Site string
	// Input is what a step needs to know that sees no folder of the agent's.
	// It is no secret.
	Input []byte
}

// Folder is a folder of the runner's data folder, made if it is not there.
type Folder struct {
	Path  string // below the data folder
	Write bool   // the step may write there
}

// InputVariable is the environment variable with Step.Input, where a driver
// passes it on.
const InputVariable = "FAIRLEAD_STEP_INPUT"

// Place is where the steps of a driver are.
type Place struct {
	// Data is the runner's data folder as a step sees it.
	Data string
	// Shared is whether a step sees the agent's data folder there: the folder
	// of the step is then made before Start, and what the step writes can be
	// read. Otherwise all that is known of a step is how it ended and its output.
	Shared bool
	// Machine is whether steps are processes of the agent's own machine: they
	// find the same programs and files, and a tool may outlive its step there.
	Machine bool
	// PassEnv are variables that the place itself sets for a step, and that its
	// tools get: who it is to the cloud. The agent's own are not passed on by it.
	PassEnv []string
	// KillFor is how long Kill may take.
	KillFor time.Duration
	// Holds returns an error if the step's input is larger than the place takes;
	// Start refuses it, too. nil: the place takes any size.
	Holds func(Step) error
}

// Exit says how a step ended, as far as could be seen.
type Exit struct {
	Code    *int   // nil if nobody could see it, or a signal ended it
	Signal  string // such as "killed"; "" if none was seen
	Cause   fairlead.Cause
	Message string // what a person needs to know; may be empty
}

// ErrGone says that Attach found no step of that ID at work.
var ErrGone = errors.New("the step is gone")

// LaunchTime bounds how long a launch that fails may go untold: a fault that
// may pass is retried within it, and reported after it.
const LaunchTime = 10 * time.Second

// LaunchError says why a step was not started, for a reason that is worth
// telling apart. Other errors of Start are of fairlead.CauseLaunchFailed.
type LaunchError struct {
	Cause fairlead.Cause // CauseLaunchFailed, CauseImagePull or CauseMisconfigured
	Err   error
}

func (e *LaunchError) Error() string { return e.Err.Error() }

func (e *LaunchError) Unwrap() error { return e.Err }

// ErrIncomplete says that something an executor cannot do without has not been
// said, where the runner's configuration may yet say it.
var ErrIncomplete = errors.New("is missing: neither the agent's file nor the runner's configuration gives it")

// Incomplete returns ErrIncomplete of a field of the runner_configuration.
func Incomplete(field string) error {
	return fmt.Errorf("runner_configuration.%s %w", field, ErrIncomplete)
}

// Checker is an executor that can tell before there is a step whether what
// starts steps is there.
type Checker interface {
	// Check returns nil if it is.
	Check(ctx context.Context) error
}

// Handle is one step. Safe for concurrent use.
type Handle interface {
	ID() string

	// Wait returns when the step has ended, or is known never to begin. It may
	// be called again. The error is ctx's: a step always has an end.
	Wait(ctx context.Context) (Exit, error)

	// Interrupt asks the step to stop, once and gently. It is an error if there
	// is nothing yet that could be asked; of a step that has ended it is none.
	Interrupt() error

	// Kill ends the step and everything that it has started, at whatever depth,
	// and returns when all of it is gone. It may be called after the end of the
	// step, to end what the step has left behind.
	Kill(ctx context.Context) error

	// Output returns what the step itself has said, from its first line, or the
	// last limit bytes of it. It is for the end of a step that has said nothing
	// to anybody else; a job's log goes another way.
	Output(ctx context.Context, limit int) (string, error)
}

// Executor starts and finds steps. Safe for concurrent use.
type Executor interface {
	// Place says where steps are. It never changes.
	Place() Place

	// Start starts the step. Ending ctx does not end it, nor does the end of
	// the process that called Start. An error means that no step runs, nor ever
	// will; it comes within LaunchTime of the last sign of progress.
	Start(ctx context.Context, s Step) (Handle, error)

	// Attach finds a step that an earlier process has started, or returns
	// ErrGone with a Handle on which Kill and Output alone are useful.
	Attach(ctx context.Context, id string) (Handle, error)

	// Remove removes what the driver keeps of a step that has ended. A step of
	// which nothing is kept is no error.
	Remove(ctx context.Context, id string) error
}
