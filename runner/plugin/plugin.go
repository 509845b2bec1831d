// Package plugin is what runs a job: a plugin per kind of component. A plugin
// declares its operations, holds nothing between two jobs, and gets all that it
// may use in Env. Every plugin passes plugintest.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
)

// Spec is the verified job spec.
type Spec = events.JobSpec

// Env is what a plugin may use for one job.
type Env struct {
	// Attempt names the job and its epoch; it is a valid file name.
	Attempt string
	// Workspace is an empty folder that this attempt has for itself, removed
	// afterwards. All jobs of a component have it at the same path.
	Workspace string
	// Log is the job's log. Secrets of the spec are masked in what is written.
	Log io.Writer
	// Mark marks in the log where a section of it begins or ends, for readers who
	// fold it. nil: the log has no marks.
	Mark func(wire.LogMark)
	// Mask masks the secrets of the spec in a text, such as an error's message.
	Mask func(string) string
	// Environ is what the tool is told by its step, such as where it finds its
	// credentials. It wins over all else that the tool gets; a variable with the
	// value "" is one that the tool must not have.
	Environ map[string]string
	// Control is the control plane, called with the lease of this job.
	Control *client.Client
	// Fetch unpacks an artifact of the control plane's registry into dst,
	// verified against its digest, and returns where in dst the component's folder
	// is: a valid path, "." unless folders that it shares are beside it.
	Fetch func(ctx context.Context, ref events.ArtifactRef, dst *os.Root) (folder string, err error)
	// Confine runs f, which starts tools, such that they reach of the machine's
	// files what own names, and what the step's machine has for all. f itself is
	// confined with them. nil: tools reach what the step does.
	Confine func(own confine.Own, f func() error) error
}

// Result is what a job brought about. It is of meaning beside an error, too: a
// failed apply has changed something.
type Result struct {
	Plan     *wire.Plan                 // of a plan
	Outputs  map[string]wire.FullOutput // all outputs in the state; nil if not known
	Mutated  bool                       // the tool began to change something
	ExitCode *int                       // the tool's, if one ran
	Salvaged *wire.Salvaged             // what is kept of a state that the tool could not save
	DiskFull bool                       // the tool, or what was done for it, met a disk without space
}

// Plugin runs jobs of one kind. Safe for concurrent use.
type Plugin interface {
	// Operations lists what Run supports.
	Operations() []string

	// Run carries out the spec. When ctx is canceled it interrupts its tool
	// once, gives it spec.Grace to save what there is, kills it and everything
	// it has started, and returns an error that wraps ctx's. Every other error
	// is an *Error or a fault of ours.
	Run(ctx context.Context, spec Spec, env Env) (Result, error)
}

// Error is a failure with a typed reason. Message says what happened and what
// to do next, for a person; it holds no secret.
type Error struct {
	Reason  fairlead.Reason
	Message string
	Err     error // cause; may be nil
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an *Error.
func Errorf(reason fairlead.Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// ReasonOf returns the reason of the nearest *Error in err's chain, or
// fairlead.ReasonInternal.
func ReasonOf(err error) fairlead.Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return fairlead.ReasonInternal
}

// Registry is the plugins of a runner, by name.
type Registry map[string]Plugin

// Operations lists what the plugin supports; nothing if there is no such plugin.
func (r Registry) Operations(name string) []string {
	if p, ok := r[name]; ok {
		return p.Operations()
	}
	return nil
}

// Run has the spec's plugin carry it out.
func (r Registry) Run(ctx context.Context, spec Spec, env Env) (Result, error) {
	return r[spec.Plugin].Run(ctx, spec, env)
}

// Names lists the plugins in order, for messages.
func (r Registry) Names() string {
	var names []string
	for n := range r {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
