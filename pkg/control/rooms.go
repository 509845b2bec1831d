package control

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// What the rooms have for those who call them, named here: nobody else enters a room.
type (
	Artifacts = kernel.Artifacts
	Deps      = kernel.Deps
	Holder    = kernel.Holder
	Intervals = kernel.Intervals
	User      = kernel.User

	AWSProof           = runners.AWSProof
	Agent              = runners.Agent
	AgentConfiguration = runners.AgentConfiguration
	Channel            = runners.Channel
	Explained          = runners.Explained
	Group              = runners.Group
	Heartbeat          = runners.Heartbeat
	NewRunner          = runners.NewRunner
	NewRunnerRule      = runners.NewRunnerRule
	NewStack           = runners.NewStack
	NewTrust           = runners.NewTrust
	OIDCProof          = runners.OIDCProof
	Runner             = runners.Runner
	RunnerFile         = runners.RunnerFile
	RunnerRule         = runners.RunnerRule
	Session            = runners.Session
	SessionProof       = runners.SessionProof
	Stack              = runners.Stack
	StackChange        = runners.StackChange
	StackReport        = runners.StackReport
	SessionStack       = runners.SessionStack
	Trust              = runners.Trust
	TrustRule          = runners.TrustRule
	Wanted             = runners.Wanted

	App            = catalog.App
	Bound          = catalog.Bound
	Component      = catalog.Component
	Effective      = catalog.Effective
	EffectiveValue = catalog.EffectiveValue
	Input          = catalog.Input
	Install        = catalog.Install
	InstallChange  = catalog.InstallChange
	NewInstall     = catalog.NewInstall
	Output         = catalog.Output
	Variable       = catalog.Variable
	VariableScope  = catalog.VariableScope
	Version        = catalog.Version

	LockedError = state.LockedError
	PushedState = state.PushedState

	Claim            = execution.Claim
	Death            = execution.Death
	Deployment       = execution.Deployment
	DeploymentFilter = execution.DeploymentFilter
	Job              = execution.Job
	NewDeployment    = execution.NewDeployment
	Plan             = execution.Plan
	Report           = execution.Report
	Started          = execution.Started
	Swept            = execution.Swept
	WholeLog         = execution.WholeLog
)

// Their constants.
const (
	ImagePattern      = runners.ImagePattern
	MaxSessions       = runners.MaxSessions
	MaxSharedSessions = runners.MaxSharedSessions
	Protocol          = runners.Protocol
	SessionTTL        = runners.SessionTTL
	StackExpired      = runners.StackExpired
	StackLost         = runners.StackLost
	StackOnline       = runners.StackOnline
	StackStopped      = runners.StackStopped
	StackWaiting      = runners.StackWaiting
	VersionPattern    = runners.VersionPattern

	DefaultRunner   = catalog.DefaultRunner
	DigestPattern   = catalog.DigestPattern
	VariablePattern = catalog.VariablePattern

	MaxState = state.MaxState

	OutcomeCanceled  = execution.OutcomeCanceled
	OutcomeFailed    = execution.OutcomeFailed
	OutcomeSucceeded = execution.OutcomeSucceeded
)

// As returns a context whose use cases record that the actor asked for them.
func As(ctx context.Context, a fairlead.Actor) context.Context { return kernel.As(ctx, a) }

// Metered is the intervals where each request is paid for.
func Metered() Intervals { return kernel.Metered() }

// OwnsLog returns nil if the stream is of an attempt of a job of the install.
// Whoever may write for one install may write anything, also in the name of
// another's job; that is of KindForbidden. A job that is not there is of
// KindNotFound.
func OwnsLog(ctx context.Context, jobs kernel.JobReader, install fairlead.InstallID, s joblog.Stream) error {
	return kernel.OwnsLog(ctx, jobs, install, s)
}

// Repositories begins the names of an org's repositories in the control plane's
// own registry, and of no other org's.
func Repositories(org fairlead.OrgID) string { return catalog.Repositories(org) }

// Repository is where the control plane's own registry keeps the artifacts of a
// component of the org's app.
func Repository(org fairlead.OrgID, app, component string) string {
	return catalog.Repository(org, app, component)
}

// RepositoryOrg is the part of a repository's name, in the control plane's own
// registry, that names its org; "" of a name that Repository does not give.
func RepositoryOrg(repository string) string { return catalog.RepositoryOrg(repository) }

// StatePath is where the runner API serves the Terraform state of a component.
func StatePath(install, component string) string { return state.StatePath(install, component) }

// LockID reads the tool's lock ID out of its lock info.
func LockID(info []byte) string { return state.LockID(info) }

// ErrNoWork says that no job of the runner was queued while a claim waited.
// It is normal.
var ErrNoWork = execution.ErrNoWork
