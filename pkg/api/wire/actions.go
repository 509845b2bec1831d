package wire

import (
	"encoding/json"
	"time"
)

// AppAction is an action of an app version.
type AppAction struct {
	Name           string          `json:"name"`
	Description    string          `json:"description,omitempty"`
	Type           string          `json:"type"`
	Params         []AppInput      `json:"params" nullable:"false"`
	Role           string          `json:"role,omitempty" enum:"read-only,deploy,provision" doc:"The role of the customer's stack that a run uses; absent: deploy"`
	TimeoutSeconds int64           `json:"timeout_seconds,omitempty" minimum:"0" doc:"How long a run may take; absent: as long as an apply"`
	Schedule       *ActionSchedule `json:"schedule,omitempty" doc:"When the action runs by itself"`
	Before         []string        `json:"before,omitempty" doc:"Operations, such as web.apply, before which a deployment runs the action"`
	Artifact       string          `json:"artifact,omitempty" doc:"Digest of the source artifact; only on versions of apps"`
	After          []string        `json:"after,omitempty" doc:"Operations, such as web.apply, after which a deployment runs the action"`
}

// ActionSchedule is when an action runs by itself.
type ActionSchedule struct {
	Cron     string `json:"cron" doc:"Minute, hour, day of the month, month, day of the week"`
	Timezone string `json:"timezone" doc:"Name in the IANA database"`
}

// InstallAction is an action of the version that an install has deployed.
type InstallAction struct {
	AppAction
	Version string      `json:"version" doc:"The version that declares it"`
	NextRun *time.Time  `json:"next_run,omitempty" doc:"When its schedule starts the next run"`
	LastRun string      `json:"last_run,omitempty" doc:"The deployment that its schedule started last"`
	Skipped *SkippedRun `json:"skipped,omitempty" doc:"The last time of its schedule for which no run was started"`
}

// SkippedRun is a time of a schedule for which no run was started.
type SkippedRun struct {
	At      time.Time `json:"at"`
	Code    string    `json:"code" doc:"action-running, or the code of the problem that refused the run"`
	Message string    `json:"message"`
}

// InstallActions lists the actions of an install.
type InstallActions struct {
	Items []InstallAction `json:"items" nullable:"false"`
}

// RunActionRequest starts a run of an action, or queues it behind the running deployment.
type RunActionRequest struct {
	Params    map[string]json.RawMessage `json:"params,omitempty" doc:"Values of the action's params, by name; null or absent: the default"`
	Encrypted map[string]Encrypted       `json:"encrypted,omitempty" doc:"Sensitive params, by name, that this client has encrypted with the key of the install, for the place param/ and the name. They are not in params"`
	Ask       string                     `json:"ask,omitempty" enum:"never,always" doc:"Whether the run waits for approval after its plan; never when absent"`
	NoQueue   bool                       `json:"no_queue,omitempty" doc:"Do not queue: refuse with deployment-runs while another deployment of the install is not finished"`
}
