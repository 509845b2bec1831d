package diagnosis

import (
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// Deployment is what is known of a deployment.
type Deployment struct {
	deployment.Deployment
	Install string                     // name
	Parts   map[string]Component       // what is known of its components; those that are missing were not looked at
	Jobs    map[fairlead.JobID]job.Job // that its nodes name; those that are missing were not looked at
	Runner  *Runner                    // of the install; nil: not looked at
	Ahead   *Ahead                     // of a queued one; nil: not looked at
	Since   fairlead.DeploymentID      // a later one of the install, because of which this one cannot be retried; may be empty
	Gone    bool                       // the install has been forgotten
}

// Ahead is what a queued deployment waits for.
type Ahead struct {
	ID      fairlead.DeploymentID // that has the install now
	State   deployment.State
	Since   time.Time // when it changed last: one that awaits approval does so since then; zero: not known
	Between int       // queued ones that come before
}

// Job is what is known of a job by itself.
type Job struct {
	job.Job
	Install string  // name; "": of none
	Runner  *Runner // nil: not looked at
}

// Component is what is known of a component of an install.
type Component struct {
	Name       string
	Type       string                // of package component
	Unknown    bool                  // an apply or destroy began, and its end is not known
	Since      time.Time             // when that was recorded
	Deployment fairlead.DeploymentID // that changed it last
	State      *State                // nil: not looked at
	Lock       *Lock                 // nil: there is none, or only the runner knows
}

// State is what is known of a component's state, in the storage of its tool.
type State struct {
	OnRunner string    // path below the runner's data folder, where only the runner can look
	Outside  string    // the kind of storage, in the customer's account, where only the runner can look; with neither it is at the control plane
	Saved    time.Time // last time; zero: never
	Serial   int64     // 0: not known
}

// Lock is the lock of a component's state.
type Lock struct {
	ID        string // the tool's own
	Job       fairlead.JobID
	Epoch     int64
	Who       string // as its tool says; may be empty
	Operation string // as its tool says; may be empty
	Since     time.Time
	Held      bool // its job still has the lease under which it was taken
}

// Install is what is known of an install.
type Install struct {
	Name   string
	Active fairlead.DeploymentID // "": none
	Parts  []Component
	Runner *Runner // that the install is bound to; nil: to none, or not looked at
}

// Runner is what is known of a runner.
type Runner struct {
	Name     string
	Gone     bool                   // it was deleted: no more is known of it
	Mode     fairlead.RunnerMode    // as its vendor has set it
	Customer *fairlead.CustomerMode // the mildest of all agents that are online; nil: one of them is enabled, or none is online
	Agents   []Agent                // the newest first
	New      bool                   // it was made within the last day: agents that are gone for longer are not known
	Kind     string                 // of the runner, which says how its agents are installed
	Wanted   *Wanted                // nil: any version will do
	Speaks   string                 // the protocol of the control plane; "": not looked at
	Waiting  int                    // jobs that are queued for it
	More     bool                   // there may be more than those
	Oldest   time.Time              // when the first of those was made
	Beside   string                 // what keeps jobs apart that run beside an agent: "landlock", "none"; "": all have containers, or not looked at
	Several  bool                   // jobs of several installs do so; false if not looked at
}

// Wanted is the version that a runner's agents are to run.
type Wanted struct {
	Version string
	Image   string // by digest; "": nobody said it
	Channel string // "": the runner's own configuration says it
}

// Agent is an agent process of a runner.
type Agent struct {
	Session  fairlead.SessionID
	Name     string // its own for itself
	Online   bool
	Draining bool
	Version  string
	Protocol string              // that it speaks; "": it did not say
	Outdated bool                // it runs another version than is wanted
	Mode     fairlead.RunnerMode // as its customer has set it
	Capacity int
	Running  int
	Seen     time.Time
}
