package store

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/placement"
)

// App is an app, stored under its name. Latest is its newest version.
type App struct {
	fairlead.Actors
	ID          fairlead.AppID     `json:"id"`
	Org         fairlead.OrgID     `json:"org"`
	Name        string             `json:"name"`
	Description string             `json:"description,omitempty"`
	Latest      fairlead.VersionID `json:"latest"`
	Created     time.Time          `json:"created"`
	Deleting    bool               `json:"deleting,omitempty"` // its deletion has begun: it gets no version, install or variable
}

// Version is an immutable app version.
type Version struct {
	fairlead.Actors
	ID        fairlead.VersionID `json:"id"`
	Org       fairlead.OrgID     `json:"org"`
	App       string             `json:"app"`
	Config    json.RawMessage    `json:"config"`    // canonical JSON, see package appspec
	Artifacts map[string]string  `json:"artifacts"` // digests by component
	// Builds are the builds that made the artifacts, by component.
	Builds  map[string]BuiltBy `json:"builds,omitempty"`
	Created time.Time          `json:"created"`
}

// BuiltBy is the build that made an artifact.
type BuiltBy struct {
	Job fairlead.JobID `json:"job"`
	// Revision is what was built: the commit of a git repository, as hexadecimal digits, or
	// the digest of the archive of a chart or module.
	Revision string `json:"revision"`
}

// Build is what a build job makes, and its result.
type Build struct {
	events.Build
	Artifact string `json:"artifact,omitempty"` // digest of the result; "": the job has not succeeded
	Revision string `json:"revision,omitempty"` // as in BuiltBy
	// Provenance is the DSSE envelope of the statement about a build that succeeded. Builds of earlier control planes have
	// none.
	Provenance json.RawMessage `json:"provenance,omitempty"`
}

// Install is one app in one customer's account. Its record is also the lock that
// lets only one of its deployments run at a time: a commit that changes Active or
// Queue fails if the record has changed since it was read.
type Install struct {
	fairlead.Actors
	ID   fairlead.InstallID `json:"id"`
	Org  fairlead.OrgID     `json:"org"`
	Name string             `json:"name"`
	App  string             `json:"app"`
	// Runner and RunnerID are the runner that the install names; empty: rules place
	// the install.
	Runner   string            `json:"runner,omitempty"`
	RunnerID fairlead.RunnerID `json:"runner_id,omitempty"`
	Group    placement.Path    `json:"group,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	HasVars  bool              `json:"has_vars,omitempty"` // whether variables are set on it
	// Bound is the runner that the install is bound to since its first deployment.
	Bound *Binding `json:"bound,omitempty"`
	// SandboxRunner is the runner of the components in its sandbox; nil: Bound is the runner of all.
	SandboxRunner *Binding `json:"sandbox_runner,omitempty"`

	// Agents is what the agent in the sandbox must know of the control plane. A deployment that may deploy this agent records
	// it, because a function that later continues the deployment may not know it.
	Agents *AgentFacts      `json:"agents,omitempty"`
	Moving *Moving          `json:"moving,omitempty"` // nil: no job copies its states
	Inputs map[string]Input `json:"inputs,omitempty"`
	// Key is the public key that encrypts its secrets; nil: its runner has reported none, and the control plane seals them.
	Key *InstallKey `json:"key,omitempty"`
	// FingerprintKey is the sealed key of the fingerprints of its secrets.
	FingerprintKey []byte                  `json:"fingerprint_key,omitempty"`
	Active         fairlead.DeploymentID   `json:"active,omitempty"`
	Queue          []fairlead.DeploymentID `json:"queue,omitempty"`
	Created        time.Time               `json:"created"`
	// Deployed is the version of the last whole deployment that succeeded. Its actions can be run on the install. It is
	// empty before the first one and after a teardown.
	Deployed  fairlead.VersionID `json:"deployed,omitempty"`
	Scheduled bool               `json:"scheduled,omitempty"` // whether it has an ActionSchedule
	// CustomerApproves: a user has the role of an approver at this install. Then no other person approves its plans.
	CustomerApproves bool `json:"customer_approves,omitempty"`
	// Restored is the time of a restore of the table. Jobs after the backup may have made
	// components of which the install has no record; zero: the install is younger.
	Restored time.Time `json:"restored,omitzero"`
}

// InstallKey is the public key of an install, as its runner reported it.
type InstallKey struct {
	Public  string             `json:"public"` // see package installkey
	Since   time.Time          `json:"since"`
	Runner  fairlead.RunnerID  `json:"runner"`
	Session fairlead.SessionID `json:"session,omitempty"` // of the agent that reported it; "": a step did
	// Changed is another key that was reported later. It replaces this one when a person accepts it: a value arrives that is
	// encrypted with it.
	Changed *InstallKey `json:"changed,omitempty"`
}

// AgentFacts is what an agent must know of its control plane before its first request.
type AgentFacts struct {
	URL         string   `json:"url"`          // at which agents reach the control plane
	TrustedKeys []string `json:"trusted_keys"` // public keys, in base64, that verify job specs
}

// In returns the install as the jobs in its sandbox see it: the runner in the sandbox is the one that it is bound to. If
// sandbox is false, it returns the install itself. The result must not be stored.
func (i Install) In(sandbox bool) Install {
	if sandbox {
		i.Bound, i.Runner, i.RunnerID = i.SandboxRunner, "", ""
	}
	return i
}

// IsSandbox reports whether i is a result of In for the sandbox.
func (i Install) IsSandbox() bool { return i.SandboxRunner != nil && i.Bound == i.SandboxRunner }

// Of returns the install as the jobs of the runner see it. The result must not be stored.
func (i Install) Of(runner fairlead.RunnerID) Install {
	return i.In(i.SandboxRunner != nil && i.SandboxRunner.Runner == runner)
}

// Binding is the runner that an install is bound to.
type Binding struct {
	placement.Binding
	Org  fairlead.OrgID `json:"org,omitempty"` // org of the runner; empty: a shared runner
	Name string         `json:"name"`          // name of the runner
	At   time.Time      `json:"at"`
	// State is the runner's configuration of the state storage at the time of the
	// binding; see package runnerspec. Older bindings have no State.
	State json.RawMessage `json:"state,omitempty"`
}

// Moving is a job that copies the states of an install. When the job succeeds,
// the install is bound to To.
type Moving struct {
	Job        fairlead.JobID `json:"job"`
	To         Binding        `json:"to"` // its field At is not set yet
	Components []string       `json:"components"`
}

// Input is an input of an install: plain, or sealed or encrypted if it is sensitive.
type Input struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Sealed    []byte          `json:"sealed,omitempty"`    // under the key of the control plane
	Encrypted []byte          `json:"encrypted,omitempty"` // with the key of the install, which the control plane does not have
	Known
}

// Secret reports whether the value is sensitive, so that a reader does not get it.
func (in Input) Secret() bool { return in.Sealed != nil || in.Encrypted != nil }

// Known is what a record keeps of a sealed value beside its bytes, so that the value is compared and checked without being
// opened. Its fields are empty for a value that an earlier release stored.
type Known struct {
	Fingerprint string `json:"fingerprint,omitempty"` // see package fingerprint
	Type        string `json:"type,omitempty"`        // as appspec.TypeOf returns it
	Size        int    `json:"size,omitempty"`        // of its JSON, in bytes
}

// ComponentState is the condition of a component in the customer's account.
type ComponentState string

// The states of a component.
const (
	Absent  ComponentState = "absent"  // never applied, or destroyed
	Present ComponentState = "present" // its last apply succeeded
	Failed  ComponentState = "failed"  // its last apply or destroy did not succeed; its state matches what exists
	Unknown ComponentState = "unknown" // an apply or destroy is running or was lost; its state may not match what exists
)

// Component is one component of an install.
type Component struct {
	Install   fairlead.InstallID `json:"install"`
	Name      string             `json:"name"`
	State     ComponentState     `json:"state"`
	Type      string             `json:"type,omitempty"`      // see package component; as in Version
	Version   fairlead.VersionID `json:"version,omitempty"`   // of its last apply
	Size      job.Size           `json:"size,omitzero"`       // of its jobs, in this version
	OwnImage  bool               `json:"own_image,omitempty"` // its jobs run in an image of their own, in this version
	DependsOn []string           `json:"depends_on,omitempty"`
	Vars      []byte             `json:"vars,omitempty"` // sealed variables of its last apply; a destroy needs them

	// VarDigests has a digest of each variable of its last apply, and EnvDigest one of the environment variables. In place of
	// secrets the digests cover fingerprints. Without EnvDigest, the release of the last apply did not record them.
	VarDigests map[string]string `json:"var_digests,omitempty"`
	EnvDigest  string            `json:"env_digest,omitempty"`

	Outputs map[string]Output `json:"outputs,omitempty"`

	// InSandbox reports whether it was made by the runner in the sandbox of the install.
	InSandbox bool `json:"in_sandbox,omitempty"`

	Base        *Base  `json:"base,omitempty"`         // nil: the component has changed since, or its last job did not complete
	VarsBlob    string `json:"vars_blob,omitempty"`    // sealed; Vars, if they are too large for this record
	OutputsBlob string `json:"outputs_blob,omitempty"` // sealed as a whole; Outputs as JSON, if they are too large for this record

	OutputsFingerprint string `json:"outputs_fingerprint,omitempty"` // fingerprint of the content of OutputsBlob

	// BoundAt is Binding.At of the install when the component was last made. With another
	// binding the component may have no state.
	BoundAt time.Time `json:"bound_at,omitzero"`

	Deployment fairlead.DeploymentID `json:"deployment,omitempty"`
	Lost       fairlead.JobID        `json:"lost,omitempty"` // a lost apply or destroy; empty after a later apply or destroy completes
	// Restored is the time of a restore of the table, after which no plan or apply of the
	// component has completed. Jobs after the backup may have changed the component.
	Restored time.Time `json:"restored,omitzero"`
	Updated  time.Time `json:"updated"`
}

// Base is what the last job left that made a component complete, or found it complete.
type Base struct {
	StateWrites int64 `json:"state_writes"` // StateHead.Writes; 0: the state is not in the control plane
}

// Doubtful reports whether the component's record may differ from what exists: a job was
// lost, or the table was restored.
func (c Component) Doubtful() bool { return c.Lost != "" || !c.Restored.IsZero() }

// Settle records that an apply or a plan has shown what exists.
func (c *Component) Settle() { c.Lost, c.Restored = "", time.Time{} }

// TypeOf returns the component's type, or the zero Type if it is not known.
func (c Component) TypeOf() component.Type {
	t, _ := component.Of(c.Type)
	return t
}

// Output is an output of a component: plain, or sealed or encrypted if it is sensitive.
type Output struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Sealed    []byte          `json:"sealed,omitempty"`
	Encrypted []byte          `json:"encrypted,omitempty"` // as in Input
	Sensitive bool            `json:"sensitive,omitempty"`
	Known
}

// eventPrefix is the start of the type of every domain event.
const eventPrefix = "fairlead."

// Deployment is a deployment with the time of its last change. It has the
// install's name, because an install can be forgotten before its deployments.
type Deployment struct {
	deployment.Deployment
	InstallName string           `json:"install_name"`
	RunnerName  string           `json:"runner_name"`
	Shared      bool             `json:"shared,omitempty"` // the runner is shared by the operator
	Params      map[string]Input `json:"params,omitempty"` // of a run of an action: the given ones
	Changed     time.Time        `json:"changed"`
}

// ActionSchedule is the schedule of one action of an install. It exists while the version that the install has deployed
// declares a schedule for the action.
type ActionSchedule struct {
	Org         fairlead.OrgID        `json:"org"`
	Install     fairlead.InstallID    `json:"install"`
	InstallName string                `json:"install_name"`
	Action      string                `json:"action"`
	Cron        string                `json:"cron"`
	Timezone    string                `json:"timezone"`
	Next        time.Time             `json:"next"`              // when the sweep starts the next run
	Last        fairlead.DeploymentID `json:"last,omitempty"`    // the last run that the schedule started
	LastAt      time.Time             `json:"last_at,omitzero"`  // the time of the schedule for which it was started
	Skipped     *SkippedRun           `json:"skipped,omitempty"` // the last time for which no run was started; nil: none
}

// SkippedRun is a time of a schedule for which no run was started.
type SkippedRun struct {
	At      time.Time     `json:"at"`
	Code    fairlead.Code `json:"code"` // action-running, or the code of the refusal
	Message string        `json:"message"`
}

// Job is a job with its results.
type Job struct {
	fairlead.Actors
	job.Job
	InstallName string             `json:"install_name,omitempty"`
	RunnerName  string             `json:"runner_name"`
	Shared      bool               `json:"shared,omitempty"` // the runner is shared by the operator
	Version     fairlead.VersionID `json:"version,omitempty"`
	Run         *deployment.Run    `json:"run,omitempty"`         // as in the deployment's node; nil: a job of a component
	Rank        time.Time          `json:"rank,omitzero"`         // place in its runner's queue, see queue.Ranked; zero: the time of its creation
	Slot        bool               `json:"slot,omitempty"`        // the job needs a slot of its runner
	PlanJob     fairlead.JobID     `json:"plan_job,omitempty"`    // of apply and destroy
	PlanDigest  string             `json:"plan_digest,omitempty"` // of apply and destroy
	Signature   []byte             `json:"signature,omitempty"`   // of apply and destroy: the customer's signed approval; nil: none
	Plan        *Plan              `json:"plan,omitempty"`        // the report of a plan job
	Build       *Build             `json:"build,omitempty"`       // of a build
	DueAt       time.Time          `json:"due_at,omitzero"`       // time of its key in the Due index
	Stuck       *Stuck             `json:"stuck,omitempty"`       // the last time that the job was stuck; nil: it was never stuck
	OpenLogs    []OpenLog          `json:"open_logs,omitempty"`   // of attempts that ended without a report; the sweep must end them
}

// Stuck is the time at which the control plane found that no runner claims a job.
type Stuck struct {
	At      time.Time `json:"at"`
	Version int64     `json:"version"` // version of the job that recorded this
}

// OpenLog is the log of an attempt that ended without a report of its step.
type OpenLog struct {
	Epoch int64     `json:"epoch"`
	Whole *WholeLog `json:"whole,omitempty"` // nil: bytes may be missing
}

// WholeLog is the size and checksum of a complete log, from its writer.
type WholeLog struct {
	Size  int64  `json:"size"`
	CRC32 uint32 `json:"crc32"` // IEEE
}

// Due returns when the sweep must check the job next, or the zero time for never. It is
// job.Job.Due, and for a finished job also the time to check its open logs.
func (j Job) Due() time.Time {
	at := j.Job.Due()
	if at.IsZero() && len(j.OpenLogs) > 0 {
		at = j.Finished.Add(job.ResendAfter)
	}
	return at
}

// QueueRank returns the place of the job in the queue of its runner, see queue.Ranked.
func (j Job) QueueRank() time.Time {
	if j.Rank.IsZero() {
		return j.Created
	}
	return j.Rank
}

// RunnerOrg returns the org of the deployment's runner; "" for a shared runner.
func (d Deployment) RunnerOrg() fairlead.OrgID {
	if d.Shared {
		return ""
	}
	return d.Org
}

// RunnerOrg returns the org of the job's runner; "" for a shared runner.
func (j Job) RunnerOrg() fairlead.OrgID {
	if j.Shared {
		return ""
	}
	return j.Org
}

// Event returns the event of the given version of the deployment. It is computed
// from the record, so the event is in the same commit and needs no extra write.
func (d Deployment) Event(version int64) events.Domain {
	return events.Domain{V: 1, Type: eventPrefix + "deployment." + string(d.State), Org: string(d.Org), Subject: string(d.ID), Version: version, Time: d.Changed}
}

// Event returns the event of the given version of the job. A renewed lease is also a new
// version. Its event is the event of the state again, with the time of the state.
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

// StuckEvent returns the event that the job is stuck, if the given version of the
// job recorded that; otherwise false.
func (j Job) StuckEvent(version int64) (events.Domain, bool) {
	if j.Stuck == nil || j.Stuck.Version != version {
		return events.Domain{}, false
	}
	return events.Domain{V: 1, Type: eventPrefix + "job.stuck", Org: string(j.Org), Subject: string(j.ID), Version: version, Time: j.Stuck.At,
		Data: map[string]string{"runner": j.RunnerName}}, true
}

// FinalEvents returns the event types of the final states of a job.
func FinalEvents() (types []string) {
	for _, s := range job.States() {
		if s.Final() {
			types = append(types, eventPrefix+"job."+string(s))
		}
	}
	return types
}

// ChangeSet is the change set of a saved plan. The runner masks sensitive values. The
// set can be large and is needed for one job at a time, so it is a separate item.
type ChangeSet struct {
	JSON json.RawMessage `json:"summary"` // of package changeset, which also reads those of earlier runners
}

// Plan is the report of a plan job. The saved plan itself is stored with the state.
type Plan struct {
	Digest  string             `json:"digest"`
	NoOp    bool               `json:"no_op"`
	Changes deployment.Changes `json:"changes"`
	// NeedsSignature is the rule of the customer's policy that asks for a signed approval; "": none.
	NeedsSignature string `json:"needs_signature,omitempty"`
	Artifact       string `json:"artifact,omitempty"` // sha256:… of the source; "": an earlier runner made the plan
}

// StateHead describes the Terraform state of a component in http storage: its
// current blob and its lock.
type StateHead struct {
	Org       fairlead.OrgID     `json:"org,omitempty"`
	Install   fairlead.InstallID `json:"install"`
	Component string             `json:"component"`
	Blob      string             `json:"blob,omitempty"` // key of the current state; "": none
	Size      int                `json:"size,omitempty"`
	Writes    int64              `json:"writes"`            // number of states written so far; used to number the blobs
	History   []string           `json:"history,omitempty"` // keys of earlier states, newest first
	Lock      *StateLock         `json:"lock,omitempty"`
	Serial    int64              `json:"serial,omitempty"` // the tool's serial number of the current state; 0: not known
	Key       string             `json:"key,omitempty"`    // id of the install's key for which the current and all earlier states are encrypted; "": the control plane can open them
	Updated   time.Time          `json:"updated,omitzero"` // when the current state was written or removed
	Broken    *BrokenLock        `json:"broken,omitempty"` // the last lock that a person broke
	Pushed    *PushedState       `json:"pushed,omitempty"` // the last state that a person pushed
}

// BrokenLock is a lock that a person has broken.
type BrokenLock struct {
	StateLock
	At      time.Time      `json:"at"`
	By      fairlead.Actor `json:"by,omitzero"`
	Version int64          `json:"version"` // version of the head that recorded this
}

// PushedState is a state that a person pushed to replace another.
type PushedState struct {
	Blob    string         `json:"blob"`
	At      time.Time      `json:"at"`
	By      fairlead.Actor `json:"by,omitzero"`
	Version int64          `json:"version"` // version of the head that recorded this
}

// Event returns the event of the given version of the head if a person changed the
// state. It returns false if a job changed it: the job has its own events.
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

// StateLock is the state lock and the attempt that holds it.
type StateLock struct {
	ID      string         `json:"id"` // chosen by the tool
	Job     fairlead.JobID `json:"job"`
	Epoch   int64          `json:"epoch"`
	Info    []byte         `json:"info"` // the tool's lock info, unchanged
	Created time.Time      `json:"created"`
}

// Idempotency records the result of a creating request, for repeats of it.
type Idempotency struct {
	Request string `json:"request"` // hash of the route, caller and body
	Subject string `json:"subject"` // identifier of the object that the request created
}
