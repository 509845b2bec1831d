package store

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/placement"
)

// App is an app by name. Latest is its newest version.
type App struct {
	ID          fairlead.AppID     `json:"id"`
	Org         fairlead.OrgID     `json:"org"`
	Name        string             `json:"name"`
	Description string             `json:"description,omitempty"`
	Latest      fairlead.VersionID `json:"latest"`
	Created     time.Time          `json:"created"`
}

// Version is an immutable app version.
type Version struct {
	ID        fairlead.VersionID `json:"id"`
	Org       fairlead.OrgID     `json:"org"`
	App       string             `json:"app"`
	Config    json.RawMessage    `json:"config"`    // canonical JSON of package appspec
	Artifacts map[string]string  `json:"artifacts"` // digest by component
	Created   time.Time          `json:"created"`
}

// Install is one app in one customer's account. It is also the lock that keeps
// its deployments one at a time: each change of Active or Queue is a commit at
// the version that was read.
type Install struct {
	ID   fairlead.InstallID `json:"id"`
	Org  fairlead.OrgID     `json:"org"`
	Name string             `json:"name"`
	App  string             `json:"app"`
	// Runner and RunnerID are of the runner that the install names; empty of one
	// that rules place.
	Runner   string            `json:"runner,omitempty"`
	RunnerID fairlead.RunnerID `json:"runner_id,omitempty"`
	Group    placement.Path    `json:"group,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	HasVars  bool              `json:"has_vars,omitempty"` // whether variables are set on it
	// Bound is the runner that the install has since its first deployment.
	Bound   *Binding                `json:"bound,omitempty"`
	Moving  *Moving                 `json:"moving,omitempty"` // nil unless its states are being copied
	Inputs  map[string]Input        `json:"inputs,omitempty"`
	Active  fairlead.DeploymentID   `json:"active,omitempty"`
	Queue   []fairlead.DeploymentID `json:"queue,omitempty"`
	Created time.Time               `json:"created"`
}

// Binding is the runner that an install has, and where it is found.
type Binding struct {
	placement.Binding
	Org  fairlead.OrgID `json:"org,omitempty"` // of the runner; empty of a shared one
	Name string         `json:"name"`          // of the runner
	At   time.Time      `json:"at"`
	// State is the configuration of the state storage as the runner had it, of
	// package runnerspec. Bindings that were made before it was kept have none.
	State json.RawMessage `json:"state,omitempty"`
}

// Moving says that a job copies the states of an install, which is bound
// elsewhere once it has succeeded.
type Moving struct {
	Job        fairlead.JobID `json:"job"`
	To         Binding        `json:"to"` // At is not set yet
	Components []string       `json:"components"`
}

// Input is a value given to an install: plain, or sealed when it is sensitive.
type Input struct {
	Value  json.RawMessage `json:"value,omitempty"`
	Sealed []byte          `json:"sealed,omitempty"`
}

// ComponentState is what is known of a component in the customer's account.
type ComponentState string

// The states of a component.
const (
	Absent  ComponentState = "absent"  // never applied, or destroyed
	Present ComponentState = "present" // its last apply was reported
	Failed  ComponentState = "failed"  // its last apply or destroy ended without success; what exists is what its state has
	Unknown ComponentState = "unknown" // an apply or destroy began, and was lost or is not over; what exists may not be what its state has
)

// Component is one component of an install.
type Component struct {
	Install   fairlead.InstallID `json:"install"`
	Name      string             `json:"name"`
	State     ComponentState     `json:"state"`
	Type      string             `json:"type,omitempty"`    // of package component; as of that version
	Version   fairlead.VersionID `json:"version,omitempty"` // it was last applied from
	DependsOn []string           `json:"depends_on,omitempty"`
	Vars      []byte             `json:"vars,omitempty"` // sealed; as last applied, for the day it is destroyed
	Env       []byte             `json:"env,omitempty"`  // sealed; digest of the environment variables it was last applied with
	Outputs   map[string]Output  `json:"outputs,omitempty"`

	VarsBlob    string `json:"vars_blob,omitempty"`    // sealed; Vars, if they are too many for this record
	OutputsBlob string `json:"outputs_blob,omitempty"` // sealed; Outputs as JSON, with none sealed again, if they are too many

	Deployment fairlead.DeploymentID `json:"deployment,omitempty"`
	Lost       fairlead.JobID        `json:"lost,omitempty"` // an apply or destroy that was lost, and that nothing has completed since
	Updated    time.Time             `json:"updated"`
}

// TypeOf returns what is known of the component's type.
func (c Component) TypeOf() component.Type {
	t, _ := component.Of(c.Type)
	return t
}

// Output is an output of a component: plain, or sealed when it is sensitive.
type Output struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Sealed    []byte          `json:"sealed,omitempty"`
	Sensitive bool            `json:"sensitive,omitempty"`
}

// eventPrefix begins the type of every domain event.
const eventPrefix = "fairlead."

// Deployment is a deployment with the time of its last change. The install's
// name is kept, because an install may be forgotten before its deployments.
type Deployment struct {
	deployment.Deployment
	InstallName string    `json:"install_name"`
	RunnerName  string    `json:"runner_name"`
	Shared      bool      `json:"shared,omitempty"` // the runner is the operator's
	Changed     time.Time `json:"changed"`
}

// Job is a job with what it produced.
type Job struct {
	job.Job
	InstallName string             `json:"install_name,omitempty"`
	RunnerName  string             `json:"runner_name"`
	Shared      bool               `json:"shared,omitempty"` // the runner is the operator's
	Version     fairlead.VersionID `json:"version,omitempty"`
	Slot        bool               `json:"slot,omitempty"`        // it takes one of its runner's slots
	PlanJob     fairlead.JobID     `json:"plan_job,omitempty"`    // of apply and destroy
	PlanDigest  string             `json:"plan_digest,omitempty"` // of apply and destroy
	Plan        *Plan              `json:"plan,omitempty"`        // what a plan job reported
	DueAt       time.Time          `json:"due_at,omitzero"`       // its place in the Due index
	Stuck       *Stuck             `json:"stuck,omitempty"`       // the last time; nil: never
	OpenLogs    []OpenLog          `json:"open_logs,omitempty"`   // of attempts that were given up; the sweep has to end them yet
}

// Stuck says when it was noticed that no runner takes a job.
type Stuck struct {
	At      time.Time `json:"at"`
	Version int64     `json:"version"` // of the job, by that commit
}

// OpenLog is the log of an attempt that ended without a report of its step.
type OpenLog struct {
	Epoch int64     `json:"epoch"`
	Whole *WholeLog `json:"whole,omitempty"` // nil: bytes may be missing
}

// WholeLog describes a log of which nothing is missing, as its writer knew it.
type WholeLog struct {
	Size  int64  `json:"size"`
	CRC32 uint32 `json:"crc32"` // IEEE
}

// Due returns when the sweep must look at the job next, or the zero time for
// never: as package job says, and once more for logs that nobody has ended.
func (j Job) Due() time.Time {
	at := j.Job.Due()
	if at.IsZero() && len(j.OpenLogs) > 0 {
		at = j.Finished.Add(job.ResendAfter)
	}
	return at
}

// RunnerOrg is the org of the deployment's runner.
func (d Deployment) RunnerOrg() fairlead.OrgID {
	if d.Shared {
		return ""
	}
	return d.Org
}

// RunnerOrg is the org of the job's runner.
func (j Job) RunnerOrg() fairlead.OrgID {
	if j.Shared {
		return ""
	}
	return j.Org
}

// Event returns what happened to the deployment when the given version of it
// was committed. The item says it all, so the event is in the same commit by
// its nature, and costs nothing.
func (d Deployment) Event(version int64) events.Domain {
	return events.Domain{V: 1, Type: eventPrefix + "deployment." + string(d.State), Org: string(d.Org), Subject: string(d.ID), Version: version, Time: d.Changed}
}

// Event returns what happened to the job when the given version of it was
// committed. Renewals of a lease are versions too; they repeat the event of
// the state, with its time.
func (j Job) Event(version int64) events.Domain {
	at := j.QueuedAt()
	switch j.State {
	case job.Claimed:
		at = j.Claimed
	case job.Running:
		at = j.Started
	case job.Canceling:
		at = j.StopAsked
	case job.Succeeded, job.Failed, job.Canceled, job.Lost:
		at = j.Finished
	case job.Queued:
	}
	return events.Domain{V: 1, Type: eventPrefix + "job." + string(j.State), Org: string(j.Org), Subject: string(j.ID), Version: version, Time: at}
}

// StuckEvent returns that the job is stuck, if that is what the given version of
// it was committed for.
func (j Job) StuckEvent(version int64) (events.Domain, bool) {
	if j.Stuck == nil || j.Stuck.Version != version {
		return events.Domain{}, false
	}
	return events.Domain{V: 1, Type: eventPrefix + "job.stuck", Org: string(j.Org), Subject: string(j.ID), Version: version, Time: j.Stuck.At,
		Data: map[string]string{"runner": j.RunnerName}}, true
}

// FinalEvents are the types of the events that say that a job is over.
func FinalEvents() (types []string) {
	for _, s := range job.States() {
		if s.Final() {
			types = append(types, eventPrefix+"job."+string(s))
		}
	}
	return types
}

// PlanSummary is what a saved plan would change, resource by resource, with
// sensitive values masked by the runner. It may be large, and is read with one
// job at a time, so it is an item of its own.
type PlanSummary struct {
	Summary json.RawMessage `json:"summary"`
}

// Plan is what a plan job reported. The saved plan itself is beside the state.
type Plan struct {
	Digest  string             `json:"digest"`
	NoOp    bool               `json:"no_op"`
	Changes deployment.Changes `json:"changes"`
}

// Runner runs the jobs of its installs.
type Runner struct {
	ID          fairlead.RunnerID `json:"id"`
	Org         fairlead.OrgID    `json:"org"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	// Kind is that of package runnerspec; empty of one that was made before
	// there were kinds, which is local.
	Kind    string              `json:"kind,omitempty"`
	Storage string              `json:"storage"`           // the kind of state storage
	Place   string              `json:"place,omitempty"`   // where that is, as placement.Storage says
	Group   placement.Path      `json:"group,omitempty"`   // it serves, with those below
	Install fairlead.InstallID  `json:"install,omitempty"` // whose own runner it is; empty: of a group, or shared
	Mode    fairlead.RunnerMode `json:"mode,omitempty"`    // as its vendor has set it; empty: enabled
	// Config is the configuration in JSON, with secrets masked; Sealed, if it
	// has any, is all of it.
	Config json.RawMessage `json:"config,omitempty"`
	Sealed []byte          `json:"sealed,omitempty"`
	// Direct is whether it is served by an agent beside the control plane.
	Direct bool `json:"direct,omitempty"`
	// Revision is another whenever the configuration was given anew; empty of one
	// that agents are not told of.
	Revision string `json:"revision,omitempty"`
	// Env, Endpoint and Timeout are what the configuration gives to jobs.
	Env          map[string]string `json:"env,omitempty"`
	Endpoint     string            `json:"endpoint,omitempty"`
	Timeout      time.Duration     `json:"timeout,omitempty"`   // of jobs, in nanoseconds; 0: the job's own
	StartTimeout time.Duration     `json:"window,omitempty"`    // how long a job may take to start; 0: as the control plane grants
	Grace        time.Duration     `json:"grace,omitempty"`     // for an interrupted tool; 0: as the control plane grants
	NoOutput     time.Duration     `json:"no_output,omitempty"` // how long a tool may say nothing; 0: as the control plane grants
	Limit        int               `json:"limit,omitempty"`     // of jobs at once, over all agents; 0: none
	HasVars      bool              `json:"has_vars,omitempty"`  // whether variables are set on it: who has it need not look
	// Version is that which its agents are to run, and Channel the update channel
	// that says it; with neither, any will do.
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
	// Leaving is set while a runner is being deleted: nothing may be given to it.
	Leaving bool          `json:"leaving,omitempty"`
	Trust   *awsiam.Trust `json:"trust,omitempty"` // the AWS role of its agents; nil: none
	// Trusts are the names of its trusts in OIDC issuers, in order. Each is an item
	// of its own; whoever makes or removes one writes the runner as well.
	Trusts  []string  `json:"trusts,omitempty"`
	Created time.Time `json:"created"`
}

// Shared reports whether the runner is the operator's, for every org.
func (r Runner) Shared() bool { return r.Org == "" }

// VendorMode returns the mode that the vendor has set.
func (r Runner) VendorMode() fairlead.RunnerMode { return cmp.Or(r.Mode, fairlead.ModeEnabled) }

// RunnerName finds a runner by its identifier, and says what every claim has to
// know of it.
type RunnerName struct {
	Org  fairlead.OrgID      `json:"org"`
	Name string              `json:"name"`
	Mode fairlead.RunnerMode `json:"mode,omitempty"` // as in Runner
	// Limit is how many jobs it may run at once, over all its agents; 0: as many
	// as they can.
	Limit int `json:"limit,omitempty"`
	// Revision is that of the runner's configuration.
	Revision string `json:"revision,omitempty"`
	// Version and Channel are those of the runner.
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// Channel is an update channel: the version that those who follow it are to run.
type Channel struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Image   string    `json:"image,omitempty"` // of that version, by digest; empty: nobody said it
	Set     time.Time `json:"set"`
}

// RunnerSlots are the jobs that a runner with a limit has begun and not ended.
type RunnerSlots struct {
	Runner fairlead.RunnerID `json:"runner"`
	Jobs   []fairlead.JobID  `json:"jobs"`
}

// RunnerUse is an install that names a runner, is bound to it, or is about to be:
// the runner cannot be deleted.
type RunnerUse struct {
	Org     fairlead.OrgID     `json:"org"`
	Install fairlead.InstallID `json:"install"`
	Name    string             `json:"name"`
	At      time.Time          `json:"at"`
}

// RunnerRule is a rule that sends installs to a runner. It is stored under what
// it matches, so there is one for each match.
type RunnerRule struct {
	placement.Rule
	RunnerName string    `json:"runner_name"`
	Made       string    `json:"made"` // names the request that made it
	Created    time.Time `json:"created"`
}

// Group is a group of installs and runners. The root group exists without one.
type Group struct {
	Org         fairlead.OrgID `json:"org"`
	Path        placement.Path `json:"path"`
	Description string         `json:"description,omitempty"`
	Leaving     bool           `json:"leaving,omitempty"` // while it is being deleted: nothing may come into it
	Made        string         `json:"made"`              // names the request that made it
	Created     time.Time      `json:"created"`
}

// Kinds of members of a group.
const (
	MemberInstall = "INSTALL"
	MemberRunner  = "RUNNER"
)

// Member is what is in a group, which cannot be deleted until it is empty. The
// root group, which cannot be deleted, has no list of members.
type Member struct {
	Group placement.Path `json:"group"`
	Kind  string         `json:"kind"`
	Name  string         `json:"name"`
}

// Kinds of scopes of variables, from the weakest.
const (
	ScopeRunner  = "RUNNER"  // by identifier
	ScopeGroup   = "GROUP"   // by path
	ScopeApp     = "APP"     // by name
	ScopeInstall = "INSTALL" // by identifier
)

// Scope is what variables are set on.
type Scope struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Variables are the environment variables that one scope gives to jobs.
type Variables struct {
	Org    fairlead.OrgID   `json:"org"` // empty of a shared runner
	Of     Scope            `json:"of"`
	Values map[string]Input `json:"values"`
}

// Agent is an enrolled agent: whoever holds the private half of PublicKey may
// open sessions of the runner, until the key is revoked.
type Agent struct {
	Runner    fairlead.RunnerID `json:"runner"`
	PublicKey []byte            `json:"public_key"`
	Enrolled  time.Time         `json:"enrolled"`
	Revoked   time.Time         `json:"revoked,omitzero"` // zero: it is good
	// Open are the sessions that the key has opened and that may still be open,
	// the newest last.
	Open []OpenSession `json:"open,omitempty"`
}

// OpenSession is a session that may still be open.
type OpenSession struct {
	ID      fairlead.SessionID `json:"id"`
	Expires time.Time          `json:"expires"`
}

// OpenSessions are the sessions of a runner that one AWS role, or the subject of
// OIDC tokens, has opened and that may still be open, the newest last.
type OpenSessions struct {
	Runner fairlead.RunnerID `json:"runner"`
	Open   []OpenSession     `json:"open"`
}

// Session is one agent process.
type Session struct {
	ID        fairlead.SessionID     `json:"id"`
	Org       fairlead.OrgID         `json:"org"`
	Runner    fairlead.RunnerID      `json:"runner"`
	Agent     string                 `json:"agent"`              // key id, or whose role it is
	Enrolled  bool                   `json:"enrolled,omitempty"` // it was opened with a key that Agent keeps
	Instance  string                 `json:"instance"`
	Version   string                 `json:"version"`
	Protocol  string                 `json:"protocol,omitempty"` // of the runner API that the agent speaks; empty: it did not say
	Capacity  int                    `json:"capacity"`
	Running   []string               `json:"running,omitempty"`
	Draining  bool                   `json:"draining,omitempty"`
	Customer  *fairlead.CustomerMode `json:"customer,omitempty"`  // nil: enabled
	Unhealthy string                 `json:"unhealthy,omitempty"` // what keeps the agent from starting jobs
	// Isolation is what keeps that which its jobs start from the runner, and from
	// other jobs: landlock, container or none; "": it did not say.
	Isolation string    `json:"isolation,omitempty"`
	Ended     bool      `json:"ended,omitempty"`
	Expires   time.Time `json:"expires"`
	LastSeen  time.Time `json:"last_seen"`
	// Of a session that an OIDC token has opened: by which trust, as it was, and
	// whose token.
	Trust    string `json:"trust,omitempty"`
	TrustRev string `json:"trust_rev,omitempty"`
	Subject  string `json:"subject,omitempty"`
}

// Enrolment is a single-use enrolment token, by the hash of the token.
type Enrolment struct {
	Runner  fairlead.RunnerID `json:"runner"`
	UsedBy  string            `json:"used_by,omitempty"` // key id of the agent
	Expires time.Time         `json:"expires"`
}

// StateHead is the Terraform state of a component in http storage: which blob
// is current, and who holds the lock.
type StateHead struct {
	Org       fairlead.OrgID     `json:"org,omitempty"`
	Install   fairlead.InstallID `json:"install"`
	Component string             `json:"component"`
	Blob      string             `json:"blob,omitempty"` // key of the current state; "": none
	Size      int                `json:"size,omitempty"`
	Writes    int64              `json:"writes"`            // states written so far; numbers the blobs
	History   []string           `json:"history,omitempty"` // keys of earlier states, newest first
	Lock      *StateLock         `json:"lock,omitempty"`
	Serial    int64              `json:"serial,omitempty"` // of the current state, as its tool counts; 0: not known
	Updated   time.Time          `json:"updated,omitzero"` // when the current state was written or removed
	Broken    *BrokenLock        `json:"broken,omitempty"` // the last lock that a person broke
	Pushed    *PushedState       `json:"pushed,omitempty"` // the last state that a person put in place
}

// BrokenLock is a lock that a person has broken.
type BrokenLock struct {
	StateLock
	At      time.Time      `json:"at"`
	By      fairlead.Actor `json:"by,omitzero"`
	Version int64          `json:"version"` // of the head, by that commit
}

// PushedState is a state that a person has put in place of another.
type PushedState struct {
	Blob    string         `json:"blob"`
	At      time.Time      `json:"at"`
	By      fairlead.Actor `json:"by,omitzero"`
	Version int64          `json:"version"` // of the head, by that commit
}

// Event returns what a person did to the state when the given version of the
// head was committed; false if that was a job's doing, of which the job tells.
func (h StateHead) Event(version int64) (events.Domain, bool) {
	e := events.Domain{V: 1, Org: string(h.Org), Subject: string(h.Install) + "/" + h.Component, Version: version}
	switch {
	case h.Pushed != nil && h.Pushed.Version == version:
		e.Type, e.Time = eventPrefix+"state.pushed", h.Pushed.At
	case h.Broken != nil && h.Broken.Version == version:
		e.Type, e.Time = eventPrefix+"state.unlocked", h.Broken.At
	default:
		return e, false
	}
	return e, true
}

// StateLock says who holds the lock of a state.
type StateLock struct {
	ID      string         `json:"id"` // the tool's own
	Job     fairlead.JobID `json:"job"`
	Epoch   int64          `json:"epoch"`
	Info    []byte         `json:"info"` // the tool's lock info, as it came
	Created time.Time      `json:"created"`
}

// Idempotency remembers the answer to a creating request.
type Idempotency struct {
	Request string `json:"request"` // hash of route, caller and body
	Subject string `json:"subject"` // what it made
}
