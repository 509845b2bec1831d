// Package executor starts and watches steps: as child processes, containers,
// jobs of a cluster or tasks of a cloud. It does not know what a step does.
// Every driver passes executortest.
package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Step describes the step to start. IDs are unique and never reused: Attach finds
// the step by its ID after the agent was replaced.
type Step struct {
	ID   string
	Args []string // the subcommand and its flags; the driver puts its own arguments before them
	Env  []string // "name=value"; the driver adds no variables of the agent's environment
	// Secrets has the form of Env. The driver hides these variables, if it can, from
	// people who may inspect the place where the step runs. Each driver documents
	// who can read them.
	Secrets []string
	// Stored are variables whose values the place reads from its own store of secrets: references, by the names of the
	// variables. The step starts without a variable whose value does not exist. Only a driver whose place has a Store gives them.
	Stored map[string]string
	// ConfigMap is the ConfigMap that the place mounts for the step at runnerspec.PolicyFolder, with the key ConfigKey as the only
	// file; "": none. If it does not exist, the folder is empty. Only a driver whose steps are pods has it.
	ConfigMap, ConfigKey string
	// Folders are the folders of the data folder that the step can access, if the
	// place does not let the step access the whole data folder.
	Folders []Folder
	// Site is the name of the workspace of the step's component. If it is "", the
	// tool works in a workspace that only this attempt uses.
	Site string
	// Identity is the identity that the place gives to the step, such as the ARN of a
	// task's role. If it is "", the step gets the identity of the driver's configuration. A
	// driver whose place gives no identities ignores it.
	Identity string
	// Role is the role of the step's operation; "" for a job of the runner itself, which changes
	// nothing outside of the runner. A driver whose place has one identity for each role uses it,
	// and others ignore it.
	Role component.Role
	// CPU and Memory are the size that the step's component asks for; both are 0 if it asks
	// for none. They take precedence over the driver's configuration. A driver that does not
	// divide its machine ignores them.
	CPU    runnerspec.CPU
	Memory runnerspec.Size
	// Light reports that the job needs no client of a cloud and builds nothing. A driver that has a program without these
	// starts the step in it, and others ignore it.
	Light bool
	// Image is the image, by digest, in which the step runs; "": that of the driver's configuration.
	// Only a driver whose place has OwnImages starts such a step. The step runs the driver's program
	// there, see EnvironIn.
	Image string
	// Input is the input of a step that cannot access the agent's folders. It is
	// not secret.
	Input []byte
}

// Folder is a folder of the runner's data folder. It is created if missing.
type Folder struct {
	Path  string // below the data folder
	Write bool   // the step may write there
}

// InputVariable is the environment variable for Step.Input. Only drivers whose
// steps cannot access the agent's folders set it.
const InputVariable = "FAIRLEAD_STEP_INPUT"

// Place describes where a driver runs its steps.
type Place struct {
	// Data is the runner's data folder as a step sees it.
	Data string
	// Shared reports whether Data is the agent's own data folder. If so, the
	// caller creates the step's folder before Start and can read the files that
	// the step writes. Otherwise the agent only learns the step's Exit and output.
	Shared bool
	// Machine reports whether steps are processes on the agent's own machine. They
	// find the same programs and files, and a tool may outlive its step.
	Machine bool
	// StartsAhead reports whether steps start so slowly that the agent starts them
	// before their jobs are known. Such a place is not Shared.
	StartsAhead bool
	// Store is the store of secrets that the place reads for its steps, such as runnerspec.StoreKubernetes. "": none.
	Store string
	// OwnImages reports whether the driver can start a step in an image of its own.
	// It may still refuse an image that its configuration does not name.
	OwnImages bool
	// PassEnv names the variables that the place itself sets for a step and that
	// the step passes to its tools: its identity in the cloud. The agent's own
	// variables are not passed.
	PassEnv []string
	// KillFor is the longest time that Kill may take.
	KillFor time.Duration
	// Holds returns an error if the step's input is too large for the place.
	// Start refuses the step, too. If Holds is nil, the place accepts any size.
	Holds func(Step) error
}

// Exit describes how a step ended. A field that the driver could not determine is
// nil or empty.
type Exit struct {
	Code    *int   // nil if unknown, or if a signal ended the step
	Signal  string // for example "killed"; "" if the driver saw no signal
	Cause   fairlead.Cause
	Message string // for a person; may be empty
}

// ErrGone is the error of Attach if no step with the ID is running.
var ErrGone = errors.New("the step is gone")

// LaunchTime is the longest time until a failed launch is reported. Until this
// time is over, temporary errors are retried.
const LaunchTime = 10 * time.Second

// LaunchError is an error of Start with its own cause. Other errors of Start have
// the cause fairlead.CauseLaunchFailed.
type LaunchError struct {
	Cause fairlead.Cause // CauseLaunchFailed, CauseImagePull, CauseImageUnavailable, CauseImageRefused, CauseInstallRefused or CauseMisconfigured
	Err   error
}

func (e *LaunchError) Error() string { return e.Err.Error() }

func (e *LaunchError) Unwrap() error { return e.Err }

// ErrIncomplete means that a required setting of an executor is missing. The
// runner's configuration may set it later.
var ErrIncomplete = errors.New("is missing: neither the agent's file nor the runner's configuration gives it")

// Incomplete returns ErrIncomplete for a field of the runner_configuration.
func Incomplete(field string) error {
	return fmt.Errorf("runner_configuration.%s %w", field, ErrIncomplete)
}

// Checker is an executor that can check, before the first step, whether the
// system that starts its steps is available.
type Checker interface {
	// Check returns nil if the system is available.
	Check(ctx context.Context) error
}

// Finder is an executor whose steps outlive the agent and its disk, as the tasks of a cloud do. An agent that drains leaves
// its steps there, and the next agent finds them without the folders of the first.
type Finder interface {
	// Find returns the IDs of the steps that run or will run, of all agents of the runner; it may also return IDs of
	// others. Attach accepts each of them.
	Find(ctx context.Context) ([]string, error)
}

// Handle is one step. Safe for concurrent use.
type Handle interface {
	ID() string

	// Wait returns when the step has ended, or will certainly not start. It may be
	// called again. It returns only errors of ctx, because every step ends.
	Wait(ctx context.Context) (Exit, error)

	// Interrupt asks the step once to stop. It returns an error if the step has
	// not started yet, and nil if the step has ended.
	Interrupt() error

	// Kill kills the step and all its descendants, and returns when all of them
	// are gone. It may be called after the step has ended, to kill processes that
	// the step left running.
	Kill(ctx context.Context) error

	// Output returns the step's own output, at most its last limit bytes. It
	// explains a step that ended without a report. A job's log does not pass
	// through it.
	Output(ctx context.Context, limit int) (string, error)
}

// Executor starts and finds steps. Safe for concurrent use.
type Executor interface {
	// Place returns where steps run. The result never changes.
	Place() Place

	// Start starts the step. The step continues after ctx ends and after the
	// process that called Start ends. An error means that the step does not run
	// and will not start later. Start returns it within LaunchTime of the last
	// sign of progress.
	Start(ctx context.Context, s Step) (Handle, error)

	// Attach finds a step that an earlier process started. If the step is gone, it
	// returns ErrGone and a Handle on which only Kill and Output are useful.
	Attach(ctx context.Context, id string) (Handle, error)

	// Remove removes all that the driver keeps for a step that has ended. It
	// returns nil if the driver keeps nothing for the step.
	Remove(ctx context.Context, id string) error
}
