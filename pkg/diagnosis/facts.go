package diagnosis

import (
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// Deployment holds the facts about a deployment.
type Deployment struct {
	deployment.Deployment
	Install string                     // name
	Parts   map[string]Component       // its components, by name; missing: not read
	Jobs    map[fairlead.JobID]job.Job // the jobs of its nodes; missing: not read
	Runner  *Runner                    // the runner of the install; nil: not read
	Ahead   *Ahead                     // for a queued deployment: the deployment that it waits for; nil: not read
	Missing []string                   // for a queued deployment that is the first of its install: IAM actions that its version declares and the customer's stack does not grant
	// For a queued deployment that is the first of its install: the bucket with the states of
	// the install, and the other bucket that the customer's stack has; "": the stack has the states.
	StatesIn, StackHas string
	Since              fairlead.DeploymentID // a later deployment that changed the install, so that this deployment cannot be retried; "": none
	Gone               bool                  // the install has been forgotten
}

// Ahead is what a queued deployment waits for.
type Ahead struct {
	ID      fairlead.DeploymentID // the running or waiting deployment
	State   deployment.State
	Since   time.Time // time of its last change: a waiting deployment waits for approval since this time; zero: not known
	Between int       // number of other queued deployments that come first
}

// Job holds the facts about a job, without its deployment.
type Job struct {
	job.Job
	Install string  // name; "": the job has no install
	Runner  *Runner // nil: not read
}

// Component holds the facts about a component of an install.
type Component struct {
	Name       string
	Type       string                // of package component
	Unknown    bool                  // an apply or destroy started and did not report its end
	Since      time.Time             // when Unknown was recorded
	Restored   bool                  // Unknown, because the control plane was restored from a backup
	Deployment fairlead.DeploymentID // the last deployment that changed the component
	State      *State                // nil: not read
	Lock       *Lock                 // nil: no lock, or a lock that only the runner can see
}

// State holds the facts about a component's stored state. If OnRunner and Outside are empty,
// the control plane stores the state.
type State struct {
	OnRunner string    // path of the state below the runner's data folder, which only the runner can read; "": not there
	Outside  string    // kind of the storage in the customer's account, which only the runner can read; "": not there
	Saved    time.Time // time of the last save; zero: never
	Serial   int64     // 0: not known
}

// Lock is the lock of a component's state.
type Lock struct {
	ID        string // assigned by the tool
	Job       fairlead.JobID
	Epoch     int64
	Who       string // reported by the tool; may be empty
	Operation string // reported by the tool; may be empty
	Since     time.Time
	Held      bool // the job that took the lock still holds its lease
}

// Install holds the facts about an install.
type Install struct {
	Name   string
	Active fairlead.DeploymentID // "": none
	Parts  []Component
	Runner *Runner // the runner of the install; nil: none, or not read
}

// Runner holds the facts about a runner.
type Runner struct {
	Name     string
	Gone     bool                   // the runner was deleted, and all fields except Name are empty
	Mode     fairlead.RunnerMode    // set by the vendor
	Customer *fairlead.CustomerMode // least restrictive mode of the online agents; nil: one of them is enabled, or none is online
	Agents   []Agent                // the newest first
	New      bool                   // it was created within the last day, so Agents lists all its agents; Agents omits agents that are offline for more than a day
	Kind     string                 // runner kind: it decides how agents are installed
	Wanted   *Wanted                // nil: any version
	Speaks   string                 // protocol version of the control plane; "": not read
	Waiting  int                    // number of queued jobs
	More     bool                   // there may be more queued jobs than Waiting
	Oldest   time.Time              // when the oldest queued job was created
	Beside   string                 // isolation of steps that run as processes beside an agent: "landlock" or "none"; "": all run in containers, or not read
	Several  bool                   // steps of several installs run as processes beside one agent; false if not read
}

// Wanted is the version that a runner's agents should run.
type Wanted struct {
	Version string
	Image   string // with digest; "": not set
	Channel string // "": set in the runner's configuration
}

// Refuses reports whether the agent gets no jobs, because the runner's configuration pins
// another version. A channel only recommends its version.
func (r Runner) Refuses(a Agent) bool { return r.Wanted != nil && r.Wanted.Channel == "" && a.Outdated }

// Agent is an agent process of a runner.
type Agent struct {
	Session  fairlead.SessionID
	Name     string // the name that the agent reports
	Online   bool
	Draining bool
	Version  string
	Protocol string              // protocol version; "": not reported
	Outdated bool                // it does not run the wanted version
	Mode     fairlead.RunnerMode // set by the customer
	Capacity int
	Running  int
	Seen     time.Time
}
