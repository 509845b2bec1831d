// Package plugin defines the plugins, which run jobs. Each component type has one plugin. A plugin declares its operations,
// keeps nothing between two jobs, and uses only what it gets in Env. Every plugin passes plugintest.
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
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/runner/internal/confine"
)

// Spec is the verified job spec.
type Spec = events.JobSpec

// Env is what a plugin can use for one job.
type Env struct {
	// Attempt names the job and its epoch; it is a valid file name.
	Attempt string
	// Workspace is an empty folder of this attempt only, removed afterwards. All jobs of a component have it at the same
	// path.
	Workspace string
	// Log is the job's log. It masks the spec's secrets in the text that is written to it.
	Log io.Writer
	// Mark writes to the log that a section begins or ends, so that a person can fold the section. nil: the log has no marks.
	Mark func(wire.LogMark)
	// Mask masks the secrets of the spec in a text, such as an error's message.
	Mask func(string) string
	// Environ holds the variables that the step sets for the tool, such as the location of its credentials. They override
	// all other sources. An empty value means that the tool must not have the variable.
	Environ map[string]string
	// Control is the control plane, called with the lease of this job.
	Control *client.Client
	// StateToken is the password for the state in the control plane. A tool gets it in place of the lease.
	StateToken string
	// Keys are the keys of the install, which encrypt what the control plane stores and must not read. Zero: the runner has no
	// seed, and the control plane seals the values itself.
	Keys installkey.Ring
	// Fetch unpacks an artifact from the control plane's registry into dst and verifies its digest. It returns the
	// component's folder in dst as a valid path: "." unless the artifact also has folders that the component shares.
	Fetch func(ctx context.Context, ref events.ArtifactRef, dst *os.Root) (folder string, err error)
	// Push stores an artifact in a repository of the control plane's registry and returns its digest. nil: the job may not push.
	Push func(ctx context.Context, repository string, a *artifact.Artifact) (digest string, err error)
	// PushImage stores the image of an image layout in a repository of the control plane's registry. The layout was checked,
	// and the image has the digest. The statements become referrers of the image. nil: the job may not push.
	PushImage func(ctx context.Context, repository, layout, digest string, statements []artifact.Statement) error
	// Policy is the policy of the customer; nil: there is none.
	Policy Policy
	// Narrow limits the credentials of the job's tools to what the use needs, for tools that start after it. A plugin that applies a saved
	// plan calls it before the first change, with what it read from the plan itself. Until then the credentials permit only to read and
	// write the state and the saved plan. nil: there is nothing to limit. It returns an *Error that a person can read, or ctx's error.
	Narrow func(ctx context.Context, u Use) error
	// Image is the component's image in the control plane's registry; nil: its artifact is another one.
	Image *BuiltImage
	// Confine runs the function f, which starts tools, and confines f and the tools. They can access only the files in the
	// parameter own and the files that every tool on this machine may access. nil: tools can access the same files as the
	// step.
	Confine func(own confine.Own, f func() error) error
}

// Policy is what a plugin asks of the customer's policy. Each method returns nil if the job may continue, else an *Error that a
// person can read, or ctx's error.
type Policy interface {
	// Module judges what a tool is about to run. The plugin asks after it has everything that the tool will read, and before the
	// tool makes or applies a plan.
	Module(m policy.Module) error
	// Planned judges the changes of a plan before the plan is saved. They must have KeepAll. digest is that of the saved plan, and
	// base what the plan was made on; nil: nothing, or the type has no such record.
	Planned(ctx context.Context, changes *changeset.Builder, base *changeset.Base, digest string) error
	// Applies judges a saved plan before its first change. changes are those that the plugin read from the saved plan itself, with
	// KeepAll; nil: only the plan's own program can read it, and the changes are those for which Planned was called with the digest.
	// base is that of the saved plan too; it does not count if changes is nil.
	Applies(ctx context.Context, changes *changeset.Builder, base *changeset.Base, digest string) error
}

// Use is what the tool of an apply will use.
type Use struct {
	Kinds    []string // types of resources, and of other objects that the tool reads from a cloud
	Programs []string // addresses of objects whose change runs a program of the module, which could call any service
}

// BuiltImage is an image that a build has made, in the control plane's registry.
type BuiltImage struct {
	URL        string // of the registry
	Repository string
	Digest     string
	Login      string // name of the variable of Environ with the login, as USER:PASSWORD
	CA         string // name of the variable of Environ with the certificates of the server, in PEM; "": those that the machine trusts
}

// Result is what a job changed and produced. It is valid also if Run returns an error: a failed apply may have changed
// resources.
type Result struct {
	Plan     *wire.Plan                 // only of a plan operation
	Built    *wire.Built                // only of a build
	Outputs  map[string]wire.FullOutput // all outputs in the state; nil if unknown
	Mutated  bool                       // the tool began to change resources
	ExitCode *int                       // of the tool; nil: no tool has exited without a signal
	Salvaged *wire.Salvaged             // the saved copy of a state that the tool could not save
	DiskFull bool                       // the tool or the plugin failed because the disk was full
}

// Plugin runs jobs of one component type. Safe for concurrent use.
type Plugin interface {
	// Operations lists the operations that Run supports.
	Operations() []string

	// Run executes the spec. When ctx is canceled, Run interrupts its tool once and gives the tool spec.Grace to save its
	// work. Then it kills the tool and all processes that the tool started, and returns an error that wraps ctx's error.
	// Every other error is an *Error or an internal fault.
	Run(ctx context.Context, spec Spec, env Env) (Result, error)
}

// Error is a failure with a typed reason. Message tells a person what happened and what to do next. It holds no secret.
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

// ReasonOf returns the reason of the nearest *Error in err's chain, or fairlead.ReasonInternal.
func ReasonOf(err error) fairlead.Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return fairlead.ReasonInternal
}

// Registry holds the plugins of a runner by name.
type Registry map[string]Plugin

// Operations lists the operations of the plugin with this name, or none if there is no such plugin.
func (r Registry) Operations(name string) []string {
	if p, ok := r[name]; ok {
		return p.Operations()
	}
	return nil
}

// Run runs the plugin that the spec names. The caller has checked that the plugin exists.
func (r Registry) Run(ctx context.Context, spec Spec, env Env) (Result, error) {
	return r[spec.Plugin].Run(ctx, spec, env)
}

// Names lists the plugins in sorted order, for messages.
func (r Registry) Names() string {
	var names []string
	for n := range r {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
