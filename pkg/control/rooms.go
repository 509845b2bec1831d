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

// The types of the internal packages that callers of this package use.
type (
	AgentFacts = kernel.AgentFacts
	// SigningKeys keeps the private keys of a control plane that changes its keys itself.
	SigningKeys = kernel.SigningKeys
	Artifacts   = kernel.Artifacts
	Binding     = kernel.Binding
	Deps        = kernel.Deps
	Holder      = kernel.Holder
	Intervals   = kernel.Intervals
	Launch      = kernel.Launch
	User        = kernel.User

	AWSProof           = runners.AWSProof
	Agent              = runners.Agent
	AgentConfiguration = runners.AgentConfiguration
	AgentSettings      = runners.AgentSettings
	Channel            = runners.Channel
	Explained          = runners.Explained
	Group              = runners.Group
	Heartbeat          = runners.Heartbeat
	NewRunner          = runners.NewRunner
	NewRunnerRule      = runners.NewRunnerRule
	NewStack           = runners.NewStack
	OIDCProof          = runners.OIDCProof
	Runner             = runners.Runner
	RunnerFile         = runners.RunnerFile
	RunnerRule         = runners.RunnerRule
	Session            = runners.Session
	SessionProof       = runners.SessionProof
	OpenedSession      = runners.OpenedSession
	Stack              = runners.Stack
	StackChange        = runners.StackChange
	StackReport        = runners.StackReport
	StackResource      = runners.StackResource
	StackStates        = runners.StackStates
	SessionStack       = runners.SessionStack
	TokenRule          = runners.TokenRule
	StackInstall       = runners.StackInstall
	Wanted             = runners.Wanted

	App            = catalog.App
	Bound          = catalog.Bound
	BuiltBy        = catalog.BuiltBy
	Component      = catalog.Component
	DeclaredImage  = catalog.DeclaredImage
	DeclaredSecret = catalog.DeclaredSecret
	Effective      = catalog.Effective
	EffectiveValue = catalog.EffectiveValue
	Input          = catalog.Input
	Install        = catalog.Install
	InstallChange  = catalog.InstallChange
	NewInstall     = catalog.NewInstall
	NewVersion     = catalog.NewVersion
	Output         = catalog.Output
	Encrypted      = catalog.Encrypted
	MovedSecret    = catalog.Moved
	InstallKey     = catalog.InstallKey
	Provenance     = catalog.Provenance
	Rendered       = catalog.Rendered
	Variable       = catalog.Variable
	VariableScope  = catalog.VariableScope
	Version        = catalog.Version

	LockedError = state.LockedError
	Staged      = state.Staged
	Stager      = state.Stager
	PushedState = state.PushedState

	Action           = execution.Action
	AheadRequest     = execution.AheadRequest
	Attempt          = execution.Attempt
	Build            = execution.Build
	Built            = execution.Built
	JobBuild         = execution.JobBuild
	Adopted          = execution.Adopted
	Claim            = execution.Claim
	ClaimOption      = execution.ClaimOption
	Death            = execution.Death
	Deployment       = execution.Deployment
	DeploymentFilter = execution.DeploymentFilter
	Job              = execution.Job
	LogTerms         = execution.LogTerms
	NewDeployment    = execution.NewDeployment
	NewRun           = execution.NewRun
	Plan             = execution.Plan
	Report           = execution.Report
	LogTail          = execution.LogTail
	Started          = execution.Started
	Swept            = execution.Swept
	WarmHolder       = execution.WarmHolder
	WarmStep         = execution.WarmStep
	WholeLog         = execution.WholeLog
)

// The constants of the internal packages that callers of this package use.
const (
	ImagePattern      = runners.ImagePattern
	MaxSessions       = runners.MaxSessions
	MaxSharedSessions = runners.MaxSharedSessions
	Protocol          = runners.Protocol
	MaxSessionAge     = runners.MaxSessionAge
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

	IntoWarmStep = execution.IntoWarmStep

	MaxAhead = execution.MaxAhead
	MaxWarm  = execution.MaxWarm
	WarmFor  = execution.WarmFor

	OutcomeCanceled  = execution.OutcomeCanceled
	OutcomeFailed    = execution.OutcomeFailed
	OutcomeSucceeded = execution.OutcomeSucceeded
)

// Request is the request of an actor.
type Request = kernel.Request

// Asked returns a context that carries the actor's request. Entries of the audit name it.
func Asked(ctx context.Context, r Request) context.Context { return kernel.Asked(ctx, r) }

// As returns a context that carries the actor. Use cases record this actor as the
// requester.
func As(ctx context.Context, a fairlead.Actor) context.Context { return kernel.As(ctx, a) }

// Metered returns the intervals for platforms that bill each request.
func Metered() Intervals { return kernel.Metered() }

// OwnsLog returns the job's runner if the stream belongs to an attempt of a job of the install.
// Without this check, a writer with access to one install could write to the log of
// another install's job. OwnsLog returns an error of KindNotFound if the job does not
// exist, and an error of KindForbidden if the job belongs to another install or the
// attempt does not exist.
func OwnsLog(ctx context.Context, jobs kernel.JobReader, install fairlead.InstallID, s joblog.Stream) (fairlead.RunnerID, error) {
	return kernel.OwnsLog(ctx, jobs, install, s)
}

// Repositories returns the prefix of an org's repositories in the control plane's own
// registry.
func Repositories(org fairlead.OrgID) string { return catalog.Repositories(org) }

// Repository returns the name of the repository of a component of the org's app, in the
// control plane's own registry.
func Repository(org fairlead.OrgID, app, component string) string {
	return catalog.Repository(org, app, component)
}

// RepositoryOrg returns the part of a repository's name that identifies its org, in the
// control plane's own registry. It returns "" for a name that Repository does not return.
func RepositoryOrg(repository string) string { return catalog.RepositoryOrg(repository) }

// JobRepositories are the repositories of the control plane's own registry that a job may use.
type JobRepositories = catalog.JobRepositories

// InBuilt reports whether a clean path, which begins with the name of a repository in the
// control plane's own registry, is in a repository to which only builds push.
func InBuilt(path string) bool { return catalog.InBuilt(path) }

// ImageRepositories returns the begin of the names of the org's repositories for images of installs, in the control plane's
// own registry.
func ImageRepositories(org fairlead.OrgID) string { return catalog.ImageRepositories(org) }

// StatePath returns the path under which the runner API serves the Terraform state of a
// component.
func StatePath(install, component string) string { return state.StatePath(install, component) }

// RuleNotFound returns the error of a runner rule that does not exist.
func RuleNotFound(id string) error { return runners.RuleNotFound(id) }

// LockID reads the lock ID from a tool's lock info.
func LockID(info []byte) string { return state.LockID(info) }

// ErrNoWork is returned when no job of the runner was queued while a claim waited. It
// is normal.
var ErrNoWork = execution.ErrNoWork
