package store

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/placement"
)

// Records of runners: their channels and limits, and their agents with their sessions.

// Runner runs the jobs of its installs.
type Runner struct {
	fairlead.Actors
	ID          fairlead.RunnerID `json:"id"`
	Org         fairlead.OrgID    `json:"org"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	// Kind is the runner kind, see package runnerspec. Empty means local, because records
	// that are older than runner kinds have no Kind.
	Kind    string              `json:"kind,omitempty"`
	Storage string              `json:"storage"`           // kind of the state storage
	Place   string              `json:"place,omitempty"`   // place of the state storage, see placement.Storage
	Group   placement.Path      `json:"group,omitempty"`   // the runner serves this group and its subgroups
	Install fairlead.InstallID  `json:"install,omitempty"` // the only install that the runner serves; empty: the runner serves a group, or is shared
	Mode    fairlead.RunnerMode `json:"mode,omitempty"`    // set by the vendor; empty: enabled
	// Config is the configuration in JSON, with masked secrets. Sealed is the
	// complete configuration, and is set only if it has secrets.
	Config json.RawMessage `json:"config,omitempty"`
	Sealed []byte          `json:"sealed,omitempty"`
	// InSandbox reports whether the runner is in the sandbox of Install, and serves only the components there.
	InSandbox bool `json:"in_sandbox,omitempty"`
	// Direct reports whether an agent beside the control plane serves the runner.
	Direct bool `json:"direct,omitempty"`
	// Builds reports whether the runner builds components of the org's apps.
	Builds bool `json:"builds,omitempty"`
	// Revision changes each time the configuration is set, even if the configuration
	// stays equal. If Revision is empty, agents do not receive the configuration.
	Revision string `json:"revision,omitempty"`
	// Env, Endpoint and the fields below are the configuration's settings for jobs.
	Env          map[string]string `json:"env,omitempty"`
	Endpoint     string            `json:"endpoint,omitempty"`
	Timeout      time.Duration     `json:"timeout,omitempty"`   // timeout of jobs, in nanoseconds; 0: the job's own timeout
	StartTimeout time.Duration     `json:"window,omitempty"`    // start timeout of jobs; 0: the control plane's default
	Grace        time.Duration     `json:"grace,omitempty"`     // time from interrupt to kill of a tool; 0: the control plane's default
	NoOutput     time.Duration     `json:"no_output,omitempty"` // no-output timeout of tools; 0: the control plane's default
	Limit        int               `json:"limit,omitempty"`     // greatest number of jobs that all agents run at once; 0: no limit
	HasVars      bool              `json:"has_vars,omitempty"`  // variables are set on the runner; if false, the caller need not read them
	// Version is the version that its agents must run. Channel is the update channel
	// that sets it. If both are empty, agents may run any version.
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
	// Leaving is set while the runner is being deleted: no install can be placed on it.
	Leaving bool          `json:"leaving,omitempty"`
	Trust   *awsiam.Trust `json:"trust,omitempty"` // the AWS role of its agents; nil: none
	// ServiceAccounts are the sorted names of the service accounts as which its agents can open sessions. Each has an Assignment.
	ServiceAccounts []string `json:"service_accounts,omitempty"`
	// Trusts are the sorted names of its own rules for OIDC tokens: of a runner in the sandbox, and those that
	// an earlier release made. Each trust is a separate item. A commit that makes or removes a trust also writes the runner.
	Trusts  []string  `json:"trusts,omitempty"`
	Created time.Time `json:"created"`
	// Seeded reports whether an agent has reported that it has a seed of install keys.
	Seeded bool `json:"seeded,omitempty"`
	// Seeds are the identifiers of the seeds that an agent reported last, the current one first. It is empty if all agents are of
	// earlier releases.
	Seeds []string `json:"seeds,omitempty"`
	// KeysWanted are the installs whose keys its agents have not reported yet.
	KeysWanted []WantedKey `json:"keys_wanted,omitempty"`
}

// WantedKey is an install whose key is wanted.
type WantedKey struct {
	Install fairlead.InstallID `json:"install"`
	Org     fairlead.OrgID     `json:"org"`
	Name    string             `json:"name"`
}

// Shared reports whether the operator owns the runner and shares it with every org.
func (r Runner) Shared() bool { return r.Org == "" }

// VendorMode returns the mode that the vendor has set.
func (r Runner) VendorMode() fairlead.RunnerMode { return cmp.Or(r.Mode, fairlead.ModeEnabled) }

// RunnerName is the reference from a runner's identifier to the runner. It repeats
// the fields that every claim needs.
type RunnerName struct {
	Org  fairlead.OrgID      `json:"org"`
	Name string              `json:"name"`
	Mode fairlead.RunnerMode `json:"mode,omitempty"` // as in Runner
	// Limit is the greatest number of jobs that all its agents run at once; 0: no limit.
	Limit int `json:"limit,omitempty"`
	// Revision is the revision of the runner's configuration.
	Revision string `json:"revision,omitempty"`
	// Version and Channel are as in Runner.
	Version string `json:"version,omitempty"`
	Channel string `json:"channel,omitempty"`
	// Seeded and KeysWanted are as in Runner.
	Seeded     bool        `json:"seeded,omitempty"`
	KeysWanted []WantedKey `json:"keys_wanted,omitempty"`
}

// Channel is an update channel: it sets the version that the agents of its runners must
// run.
type Channel struct {
	fairlead.Actors
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Image   string    `json:"image,omitempty"` // container image of the version, by digest; empty: not set
	Set     time.Time `json:"set"`
}

// RunnerSlots are the started, unfinished jobs of a runner with a limit.
type RunnerSlots struct {
	Runner fairlead.RunnerID `json:"runner"`
	Jobs   []fairlead.JobID  `json:"jobs"`
}

// RunnerUse is an install that names a runner, is bound to it, or is about to be
// bound to it. A runner with a RunnerUse cannot be deleted.
type RunnerUse struct {
	Org     fairlead.OrgID     `json:"org"`
	Install fairlead.InstallID `json:"install"`
	Name    string             `json:"name"`
	At      time.Time          `json:"at"`
}

// RunnerRule is a rule that maps installs to a runner. It is stored under its
// match, so each match has at most one rule.
type RunnerRule struct {
	fairlead.Actors
	placement.Rule
	RunnerName string    `json:"runner_name"`
	Made       string    `json:"made"` // identifies the request that made it
	Created    time.Time `json:"created"`
}

// Agent is an enrolled agent. A process with the private key of PublicKey can open
// sessions of the runner until the key is revoked.
type Agent struct {
	fairlead.Actors
	Runner    fairlead.RunnerID `json:"runner"`
	PublicKey []byte            `json:"public_key"`
	Enrolled  time.Time         `json:"enrolled"`
	Revoked   time.Time         `json:"revoked,omitzero"` // zero: not revoked
	// Open are the sessions of the key that may still be open, newest last.
	Open []OpenSession `json:"open,omitempty"`
}

// OpenSession is a session that may still be open.
type OpenSession struct {
	ID      fairlead.SessionID `json:"id"`
	Expires time.Time          `json:"expires"` // when it expires at the latest, after all renewals
}

// OpenSessions are the sessions of a runner that one identity opened and that may
// still be open, newest last. The identity is an AWS role or a subject of OIDC
// tokens.
type OpenSessions struct {
	Runner fairlead.RunnerID `json:"runner"`
	Open   []OpenSession     `json:"open"`
}

// Session is one agent process. The agent renews it, at most until it is a day old.
type Session struct {
	fairlead.Actors
	ID        fairlead.SessionID     `json:"id"`
	Org       fairlead.OrgID         `json:"org"`
	Runner    fairlead.RunnerID      `json:"runner"`
	Agent     string                 `json:"agent"`              // key id, or identity of the role
	Enrolled  bool                   `json:"enrolled,omitempty"` // opened with the key of an Agent record
	Instance  string                 `json:"instance"`
	Version   string                 `json:"version"`
	Protocol  string                 `json:"protocol,omitempty"` // version of the runner API that the agent uses; empty: not reported
	Capacity  int                    `json:"capacity"`
	Running   []string               `json:"running,omitempty"`
	Draining  bool                   `json:"draining,omitempty"`
	Customer  *fairlead.CustomerMode `json:"customer,omitempty"`  // nil: enabled
	Unhealthy string                 `json:"unhealthy,omitempty"` // why the agent cannot start jobs
	// Isolation is what separates the processes of jobs from the runner and from
	// other jobs: landlock, container or none; "": not reported.
	Isolation string `json:"isolation,omitempty"`
	WarmSteps int    `json:"warm_steps,omitempty"` // its steps that were started ahead and wait for a job
	Ended     bool   `json:"ended,omitempty"`
	// Seedless is set when the agent has reported, with the runner's configuration, that it has no seed of install keys.
	Seedless bool      `json:"seedless,omitempty"`
	Opened   time.Time `json:"opened,omitzero"` // zero: by a version that did not renew sessions
	Renewals int64     `json:"renewals,omitempty"`
	Expires  time.Time `json:"expires"`
	LastSeen time.Time `json:"last_seen"`
	// Suspect is when the sweep found that the agent does not do what a live agent does;
	// zero: not since its last heartbeat.
	Suspect time.Time `json:"suspect,omitzero"`
	// Account or Trust, TrustRev and Subject are set only if an OIDC token opened the session:
	// the name of the service account or of the runner's own rule, its Rev at that time, and the subject of the token.
	Account  string `json:"account,omitempty"`
	Trust    string `json:"trust,omitempty"`
	TrustRev string `json:"trust_rev,omitempty"`
	Subject  string `json:"subject,omitempty"`
}

// Enrolment is a single-use enrolment token, stored under the token's hash.
type Enrolment struct {
	fairlead.Actors
	Runner  fairlead.RunnerID `json:"runner"`
	UsedBy  string            `json:"used_by,omitempty"` // key id of the agent
	Expires time.Time         `json:"expires"`
}
