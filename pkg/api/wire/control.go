package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API.
var (
	GetMeta             = Route{"get-meta", "GET", "/v1/meta"}
	PublishVersion      = Route{"publish-version", "POST", "/v1/apps/{app}/versions"}
	ListVersions        = Route{"list-versions", "GET", "/v1/apps/{app}/versions"}
	OpenRegistry        = Route{"open-registry", "POST", "/v1/apps/{app}/registry-access"}
	ListApps            = Route{"list-apps", "GET", "/v1/apps"}
	GetApp              = Route{"get-app", "GET", "/v1/apps/{app}"}
	CreateInstall       = Route{"create-install", "POST", "/v1/installs"}
	ListInstalls        = Route{"list-installs", "GET", "/v1/installs"}
	GetInstall          = Route{"get-install", "GET", "/v1/installs/{install}"}
	UpdateInstall       = Route{"update-install", "PATCH", "/v1/installs/{install}"}
	ForgetInstall       = Route{"forget-install", "DELETE", "/v1/installs/{install}"}
	GetOutputs          = Route{"get-outputs", "GET", "/v1/installs/{install}/outputs"}
	UnlockState         = Route{"unlock-state", "POST", "/v1/installs/{install}/components/{component}/unlock"}
	PushState           = Route{"push-state", "PUT", "/v1/installs/{install}/components/{component}/state"}
	CreateDeployment    = Route{"create-deployment", "POST", "/v1/installs/{install}/deployments"}
	ListDeployments     = Route{"list-deployments", "GET", "/v1/deployments"}
	GetDeployment       = Route{"get-deployment", "GET", "/v1/deployments/{deployment}"}
	ApproveDeployment   = Route{"approve-deployment", "POST", "/v1/deployments/{deployment}/approve"}
	CancelDeployment    = Route{"cancel-deployment", "POST", "/v1/deployments/{deployment}/cancel"}
	RetryDeployment     = Route{"retry-deployment", "POST", "/v1/deployments/{deployment}/retry"}
	ListJobs            = Route{"list-jobs", "GET", "/v1/jobs"}
	GetJob              = Route{"get-job", "GET", "/v1/jobs/{job}"}
	CancelJob           = Route{"cancel-job", "POST", "/v1/jobs/{job}/cancel"}
	ReadJobLog          = Route{"read-job-log", "GET", "/v1/jobs/{job}/log"}
	CreateRunner        = Route{"create-runner", "POST", "/v1/runners"}
	ListRunners         = Route{"list-runners", "GET", "/v1/runners"}
	GetRunner           = Route{"get-runner", "GET", "/v1/runners/{runner}"}
	UpdateRunner        = Route{"update-runner", "PATCH", "/v1/runners/{runner}"}
	DeleteRunner        = Route{"delete-runner", "DELETE", "/v1/runners/{runner}"}
	SetRunnerChannel    = Route{"set-runner-channel", "PUT", "/v1/runner-channels/{channel}"}
	ListRunnerChannels  = Route{"list-runner-channels", "GET", "/v1/runner-channels"}
	DeleteRunnerChannel = Route{"delete-runner-channel", "DELETE", "/v1/runner-channels/{channel}"}
	SetRunnerMode       = Route{"set-runner-mode", "PUT", "/v1/runners/{runner}/mode"}
	CreateEnrolment     = Route{"create-enrolment", "POST", "/v1/runners/{runner}/enrolments"}
	CheckRunner         = Route{"check-runner", "POST", "/v1/runners/{runner}/checks"}
	AskRunnerLog        = Route{"ask-runner-log", "POST", "/v1/runners/{runner}/logs"}
)

// Meta describes the control plane.
type Meta struct {
	Version  string `json:"version" doc:"Version of the control plane"`
	Registry string `json:"registry" doc:"Host and port of the OCI registry for artifacts"`

	Keys []VerificationKey `json:"keys" nullable:"false" doc:"What job specs are signed with: a runner that does not enrol is given it beforehand, to pin"`
}

// PublishVersionRequest publishes an immutable app version. Publishing the
// same content again answers with the version that exists.
type PublishVersionRequest struct {
	Config    json.RawMessage   `json:"config" doc:"The app's configuration in canonical JSON"`
	Artifacts map[string]string `json:"artifacts" keys:"name" form:"digest" doc:"Digest of each component's source artifact, by component"`
}

// RegistryAccessRequest asks for a way to push the artifacts of components.
type RegistryAccessRequest struct {
	Components []string `json:"components" minItems:"1" maxItems:"200" nullable:"false" form:"name" doc:"Names of the app's components"`
}

// RegistryAccess is where an app's artifacts are pushed to, and by which login.
type RegistryAccess struct {
	Registry     string            `json:"registry" doc:"Host and port of the OCI registry"`
	Repositories map[string]string `json:"repositories" doc:"Repository by component"`
	Login        *RegistryLogin    `json:"login,omitempty" doc:"Absent where the caller's API token is the login"`
}

// RegistryLogin is a login to an OCI registry that ends soon.
type RegistryLogin struct {
	Username  string    `json:"username"`
	Password  string    `json:"password"`
	ExpiresAt time.Time `json:"expires_at" doc:"When the credentials end that it was bought with, and another is to be asked for"`
}

// App is an app and its newest version.
type App struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Version     AppVersion `json:"version" doc:"The newest version"`
	CreatedAt   time.Time  `json:"created_at"`
}

// AppVersion is an immutable version of an app.
type AppVersion struct {
	ID         string         `json:"id"`
	App        string         `json:"app" doc:"Name of the app"`
	CreatedAt  time.Time      `json:"created_at"`
	New        bool           `json:"new,omitempty" doc:"Whether this request made the version"`
	Inputs     []AppInput     `json:"inputs" nullable:"false"`
	Components []AppComponent `json:"components" nullable:"false"`
}

// AppInput is an input that an app declares.
type AppInput struct {
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Description string          `json:"description,omitempty"`
	Required    bool            `json:"required"`
	Sensitive   bool            `json:"sensitive"`
	Default     json.RawMessage `json:"default,omitempty"`
}

// AppComponent is a component of an app version.
type AppComponent struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	DependsOn []string `json:"depends_on" nullable:"false"`
	Artifact  string   `json:"artifact" doc:"Digest of the source artifact"`
}

// CreateInstallRequest makes an install.
type CreateInstallRequest struct {
	Name   string                     `json:"name" minLength:"1" maxLength:"63" form:"name"`
	App    string                     `json:"app" minLength:"1" maxLength:"63" form:"name"`
	Runner string                     `json:"runner,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of the runner; when absent, rules choose one at the first deployment"`
	Group  string                     `json:"group,omitempty" maxLength:"900" form:"group" doc:"Path of the group that it is in; the root group when absent"`
	Labels map[string]string          `json:"labels,omitempty" maxProperties:"16" keys:"label-key" form:"label-value" doc:"What rules can match on, beside group and app"`
	Inputs map[string]json.RawMessage `json:"inputs,omitempty"`
}

// UpdateInstallRequest changes inputs; those not named keep their values, and
// null takes a value back to its default.
type UpdateInstallRequest struct {
	Inputs map[string]json.RawMessage `json:"inputs,omitempty"`
	Labels map[string]*string         `json:"labels,omitempty" keys:"label-key" form:"label-value" doc:"Labels to set; null takes one away"`
	Runner *string                    `json:"runner,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of the runner that it is to name; empty: rules choose. It takes effect when the runner is refreshed"`
}

// Install is one app in one customer's account.
type Install struct {
	ID         string                     `json:"id"`
	Name       string                     `json:"name"`
	App        string                     `json:"app"`
	Runner     string                     `json:"runner" doc:"That runs its jobs: the one that it is bound to, or else names; empty before rules have chosen one"`
	Bound      bool                       `json:"bound" doc:"Whether its first deployment has bound it to the runner"`
	Group      string                     `json:"group" doc:"Path of its group; / is the root group"`
	Labels     map[string]string          `json:"labels,omitempty"`
	State      string                     `json:"state" enum:"new,deployed,partial,torn-down" doc:"What the last deployments left"`
	Inputs     map[string]json.RawMessage `json:"inputs" doc:"Given inputs; sensitive ones read as \"(sensitive)\""`
	Components []InstallComponent         `json:"components" nullable:"false"`
	Deployment string                     `json:"deployment,omitempty" doc:"The deployment that runs now"`
	Moving     string                     `json:"moving,omitempty" doc:"The job that moves its state now"`
	Queued     []string                   `json:"queued" nullable:"false" doc:"Deployments that wait for it, in order"`
	Situations []Situation                `json:"situations,omitempty" doc:"What there is to know or to decide; on single installs only"`
	Stack      string                     `json:"stack,omitempty" doc:"State of its runner stack, if it has one; on single installs only"`
	CreatedAt  time.Time                  `json:"created_at"`
	Effective  *Effective                 `json:"effective,omitempty" doc:"What a deployment would use now; on single installs only, and if asked for"`
}

// Effective is what a deployment of an install would use now, and where that is not
// what the last successful deployment of a component used.
type Effective struct {
	Version     string                               `json:"version" doc:"App version that a deployment would use"`
	Inputs      map[string]EffectiveValue            `json:"inputs" doc:"From install, or from the app's default; an input that comes from nothing has no value"`
	Environment map[string]EffectiveValue            `json:"environment" doc:"Variables of the jobs' tools, each from the runner, group, app or install that it is set on"`
	Components  map[string]map[string]EffectiveValue `json:"components" doc:"Variables of each component, from inputs, facts of the install and outputs, or written in the app"`
	Undeployed  []Undeployed                         `json:"undeployed" nullable:"false" doc:"What was changed and is not deployed, by component. A component whose state is failed or unknown is not compared"`
}

// EffectiveValue is one value that a deployment would use.
type EffectiveValue struct {
	Value     json.RawMessage `json:"value,omitempty" doc:"Left out if it is sensitive, or not known before something else is deployed"`
	Sensitive bool            `json:"sensitive,omitempty"`
	From      []string        `json:"from" nullable:"false" doc:"What it comes from"`
}

// Undeployed is one thing in which a component is not what a deployment would make it.
type Undeployed struct {
	Component string `json:"component"`
	Kind      string `json:"what" enum:"new,removed,version,variable,environment" doc:"new: it is not there. removed: the version has no such component. Otherwise it was made from another version, with another value of a variable, or with other environment variables"`
	Name      string `json:"name,omitempty" doc:"Of the variable"`
}

// InstallComponent is what an install knows of one component.
type InstallComponent struct {
	Name       string    `json:"name"`
	State      string    `json:"state" enum:"absent,present,failed,unknown" doc:"failed: the last apply or destroy ended without success. unknown: an apply or destroy runs, or was lost and nothing has reconciled it yet"`
	Version    string    `json:"version,omitempty" doc:"App version it was last applied from"`
	Deployment string    `json:"deployment,omitempty" doc:"Deployment that last changed it"`
	UpdatedAt  time.Time `json:"updated_at"`
	LockedBy   string    `json:"locked_by,omitempty" doc:"Job that holds the lock of its state"`
	Lock       *Lock     `json:"lock,omitempty" doc:"The lock of its state, also one that a dead job left"`
}

// Lock is the lock of a component's state.
type Lock struct {
	ID        string    `json:"id"`
	Job       string    `json:"job"`
	Epoch     int64     `json:"epoch"`
	Who       string    `json:"who,omitempty" doc:"As its tool says"`
	Operation string    `json:"operation,omitempty" doc:"As its tool says"`
	Since     time.Time `json:"since"`
	Held      bool      `json:"held" doc:"Whether its job still has its lease; if not, the next job breaks it"`
}

// PushedState is a state that has been put in place.
type PushedState struct {
	Component string    `json:"component"`
	Serial    int64     `json:"serial" doc:"0 if the state does not say"`
	Size      int       `json:"size"`
	SavedAt   time.Time `json:"saved_at"`
}

// Situation is one thing that a person has to know, or to decide, when
// something does not go on by itself.
type Situation struct {
	Kind      string     `json:"kind" enum:"queued,approval,lost,poison,failed,state-unsaved,stopped,retrying,stopping,step-silent,runner-silent,runner-draining,runner-full,runner-off,runner-held,runner-outdated,runner-mixed,runner-gone,locked,lock-left,state-unknown,deployed-since"`
	Component string     `json:"component,omitempty" doc:"That it is about"`
	Job       string     `json:"job,omitempty" doc:"That it is about"`
	What      string     `json:"what" doc:"What happened"`
	Known     []string   `json:"known" nullable:"false" doc:"What is known, above all about the cloud"`
	Next      []NextStep `json:"next" nullable:"false" doc:"What can be done, in this order; nothing: wait"`
}

// NextStep is something that a person can do.
type NextStep struct {
	Action *Action `json:"action,omitempty" doc:"Absent if it is to be done by hand"`
	Effect string  `json:"effect" doc:"What the action does; or what is to be done by hand, which may name actions as hints do"`
}

// Output is one output of a component. Value is absent when it is sensitive
// and was not asked for.
type Output struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Sensitive bool            `json:"sensitive,omitempty"`
}

// Outputs holds outputs by component, then by name.
type Outputs struct {
	Components map[string]map[string]Output `json:"components"`
}

// CreateDeploymentRequest starts a deployment, or queues it behind the one
// that runs.
type CreateDeploymentRequest struct {
	Kind        string `json:"kind" enum:"deploy,teardown"`
	PlanOnly    bool   `json:"plan_only,omitempty"`
	AutoApprove bool   `json:"auto_approve,omitempty" doc:"The same as ask never, where ask is absent"`
	Ask         string `json:"ask,omitempty" enum:"never,destroys,changes,always" doc:"Which plans of all levels wait for approval: none, those that destroy or replace something, those that also change something in place, or all that do anything. A plan after a lost apply always does. always when absent"`
	Version     string `json:"version,omitempty" maxLength:"64" doc:"App version; the newest when absent"`
	NoQueue     bool   `json:"no_queue,omitempty" doc:"Refuse with deployment-runs, instead of queueing, while another deployment of the install is not over"`
}

// Deployment is a graph of jobs on one install.
type Deployment struct {
	ID          string                `json:"id"`
	Revision    int64                 `json:"revision" doc:"Grows with each change; pass it as 'after' to wait for the next"`
	Install     string                `json:"install"`
	App         string                `json:"app"`
	Version     string                `json:"version"`
	Kind        string                `json:"kind" enum:"deploy,teardown"`
	State       string                `json:"state" enum:"queued,running,awaiting-approval,canceling,succeeded,failed,canceled"`
	PlanOnly    bool                  `json:"plan_only"`
	AutoApprove bool                  `json:"auto_approve" doc:"Whether ask is never"`
	Ask         string                `json:"ask" enum:"never,destroys,changes,always" doc:"Which plans wait for approval"`
	RetryOf     string                `json:"retry_of,omitempty"`
	Message     string                `json:"message,omitempty" doc:"What happened, when that is not plain from the components"`
	Next        []NextStep            `json:"next,omitempty" doc:"What a person can do next"`
	Situations  []Situation           `json:"situations,omitempty" doc:"What there is to know or to decide; on single deployments only"`
	Ahead       *DeploymentAhead      `json:"ahead,omitempty" doc:"The deployment that a queued one waits for; on single deployments only"`
	Components  []DeploymentComponent `json:"components" nullable:"false" doc:"In an order that respects dependencies"`
	CreatedAt   time.Time             `json:"created_at"`
	CreatedBy   *Actor                `json:"created_by,omitempty" doc:"Absent of deployments of an earlier release"`
	CanceledBy  *Actor                `json:"canceled_by,omitempty"`
	FinishedAt  *time.Time            `json:"finished_at,omitempty"`
}

// DeploymentAhead is the deployment that a queued one waits for.
type DeploymentAhead struct {
	ID      string    `json:"id" doc:"That has the install now"`
	State   string    `json:"state" enum:"queued,running,awaiting-approval,canceling,succeeded,failed,canceled"`
	Since   time.Time `json:"since" doc:"When it changed last: one that awaits approval does so since then"`
	Between int       `json:"between" minimum:"0" doc:"Queued deployments that begin before this one"`
}

// Done reports whether the deployment has reached a final state.
func (d Deployment) Done() bool {
	return d.State == "succeeded" || d.State == "failed" || d.State == "canceled"
}

// DeploymentComponent is one component's way through a deployment.
type DeploymentComponent struct {
	Name    string   `json:"name"`
	State   string   `json:"state" enum:"pending,planning,awaiting-approval,approved,applying,reconciling,applied,unchanged,planned,failed,canceled,skipped,lost"`
	Needs   []string `json:"needs" nullable:"false" doc:"Components that come first in this deployment"`
	PlanJob string   `json:"plan_job,omitempty"`
	Job     string   `json:"job,omitempty" doc:"The job that applies or destroys"`
	Plan    string   `json:"plan,omitempty" doc:"Digest of the saved plan: what is approved and applied"`
	Changes *Changes `json:"changes,omitempty" doc:"What the plan would change"`
	Reason  string   `json:"reason,omitempty" doc:"Typed reason of a failure"`
	Message string   `json:"message,omitempty"`

	Next       []NextStep `json:"next,omitempty" doc:"What a person can do next"`
	ApprovedBy *Actor     `json:"approved_by,omitempty" doc:"Whose approval the plan has; absent if nobody was asked"`
}

// Changes counts what a plan would do.
type Changes struct {
	Add     int  `json:"add" minimum:"0"`
	Change  int  `json:"change" minimum:"0"`
	Destroy int  `json:"destroy" minimum:"0"`
	Outputs bool `json:"outputs,omitempty" doc:"Whether outputs change"`
	Run     int  `json:"run,omitempty" minimum:"0" doc:"Programs that would run, of which a plan cannot tell what they change"`
}

// ApproveRequest approves plans that wait for approval: all that wait when
// Components and Plans are empty.
type ApproveRequest struct {
	Components []string          `json:"components,omitempty" maxItems:"1000"`
	Plans      map[string]string `json:"plans,omitempty" doc:"Digests of the plans that were looked at, by component; one that has changed since is refused"`
}

// Job is one operation on one component, run by a runner.
type Job struct {
	ID         string          `json:"id"`
	State      string          `json:"state" enum:"queued,claimed,running,canceling,succeeded,failed,canceled,lost"`
	Operation  string          `json:"operation" enum:"plan,apply,plan-destroy,destroy,check,agent-log,migrate-state"`
	Runner     string          `json:"runner"`
	Install    string          `json:"install,omitempty"`
	Deployment string          `json:"deployment,omitempty"`
	Component  string          `json:"component,omitempty"`
	Epoch      int64           `json:"epoch" doc:"How often it was claimed; the current attempt"`
	Reason     string          `json:"reason,omitempty" doc:"Typed reason of a failure"`
	Message    string          `json:"message,omitempty"`
	Next       []NextStep      `json:"next,omitempty" doc:"What a person can do next"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Salvaged   *Salvaged       `json:"salvaged,omitempty" doc:"What the runner keeps of a state that the tool could not save"`
	DiskFull   bool            `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
	Plan       *Plan           `json:"plan,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	ClaimedAt  *time.Time      `json:"claimed_at,omitempty"`
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	CanceledBy *Actor          `json:"canceled_by,omitempty"`
	Log        []LogStreamInfo `json:"log,omitempty" doc:"One stream for each attempt; on single jobs only"`
	Deaths     []JobDeath      `json:"deaths,omitempty" doc:"Attempts that ended without a report, the oldest first"`
	Situations []Situation     `json:"situations,omitempty" doc:"What there is to know or to decide; on single jobs only"`
}

// JobDeath is an attempt that ended without a report.
type JobDeath struct {
	Epoch      int64      `json:"epoch"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message,omitempty"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	DiskFull   bool       `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	LastSeenAt *time.Time `json:"heard_at,omitempty" doc:"When the attempt was last seen; absent if that is not known"`
	At         time.Time  `json:"at" doc:"When it was noticed"`
}

// Plan is a saved plan as the control plane knows it: never the plan itself.
type Plan struct {
	Digest  string          `json:"digest" doc:"sha256:… of the saved plan; what is approved and applied"`
	Changes Changes         `json:"changes"`
	NoOp    bool            `json:"no_op"`
	Summary json.RawMessage `json:"summary,omitempty" doc:"Resource changes, sensitive values masked; on single jobs only"`
}

// LogStreamInfo describes one attempt's log.
type LogStreamInfo struct {
	Epoch     int64 `json:"epoch"`
	Size      int64 `json:"size"`
	Ended     bool  `json:"ended"`
	Truncated bool  `json:"truncated"`
}

// LogChunk is a piece of a job's log. The reader asks again with Epoch and
// Next until Done.
type LogChunk struct {
	Epoch     int64  `json:"epoch"`
	Offset    int64  `json:"offset"`
	Data      []byte `json:"data" doc:"Base64"`
	Next      int64  `json:"next"`
	Truncated bool   `json:"truncated,omitempty"`
	Done      bool   `json:"done" doc:"The job is over and this was the last of its log"`
}

// CreateRunnerRequest makes a runner: of the configuration that Config or Text
// holds, with the fields of Set on top; without any, one of kind local.
type CreateRunnerRequest struct {
	Name        string `json:"name,omitempty" maxLength:"63" form:"name" doc:"May be absent if the configuration has an id"`
	Description string `json:"description,omitempty" maxLength:"1000" doc:"Of a runner without a configuration"`
	Storage     string `json:"storage,omitempty" enum:"local,http" doc:"Where the state of its installs is kept, of a runner without a configuration; \"local\" when absent"`
	RunnerConfigurationInput
	Shared    bool   `json:"shared,omitempty" doc:"It serves the installs of every org; for whoever runs the control plane"`
	AWSRole   string `json:"aws_role,omitempty" maxLength:"700" doc:"ARN, with path, of the AWS role that its agents have"`
	AWSRoleID string `json:"aws_role_id,omitempty" maxLength:"128" doc:"The role's unique identifier, AROA and more; without it, the first role of that name and account that proves itself, within seven days, is the one"`
}

// Runner runs the jobs of its installs.
type Runner struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Kind        string          `json:"kind" enum:"aws-ecs,aws-eks,azure-aks,gcp-gke,kubernetes,docker,local"`
	Storage     string          `json:"storage" enum:"s3,gcs,azurerm,kubernetes,http,local" doc:"Where the state of its installs is kept"`
	Group       string          `json:"group,omitempty" doc:"Path of the group that it serves, with those below; / is the whole org. Absent of a shared runner, and of an install's own"`
	Shared      bool            `json:"shared,omitempty" doc:"It serves the installs of every org"`
	State       string          `json:"state" enum:"never-seen,online,lost" doc:"never-seen: no agent is known; one is for a day after it was there last"`
	Mode        string          `json:"mode" enum:"enabled,paused,draining,disabled" doc:"The mode that the vendor has set: whether it takes new jobs"`
	Customer    *CustomerMode   `json:"customer,omitempty" doc:"The mode that the customer has set, the mildest of its agents that are online; absent if one of them takes jobs"`
	Wanted      *WantedVersion  `json:"wanted,omitempty" doc:"The version that its agents are to run; absent if any will do"`
	Sessions    []RunnerSession `json:"sessions" nullable:"false"`
	Situations  []Situation     `json:"situations,omitempty" doc:"What there is to know or to decide; on single runners only"`
	AWS         *RunnerAWSRole  `json:"aws,omitempty" doc:"The AWS role of its agents, if it has one"`
	Trusts      []string        `json:"trusts,omitempty" doc:"Names of its trusts in OIDC issuers"`
	Config      json.RawMessage `json:"config,omitempty" doc:"Its configuration, secrets read as \"(masked)\"; on single runners only"`
	Warnings    []string        `json:"warnings,omitempty" doc:"What the configuration that was given had better not say"`
	CreatedAt   time.Time       `json:"created_at"`
}

// RunnerAWSRole is the AWS role whose sessions may be agents of a runner.
type RunnerAWSRole struct {
	RoleARN    string     `json:"role_arn"`
	RoleID     string     `json:"role_id,omitempty" doc:"The role's unique identifier; absent while the runner waits for its first proof"`
	WaitsUntil *time.Time `json:"waits_until,omitempty" doc:"When the runner stops waiting for the first proof"`
}

// RunnerSession is one agent process.
type RunnerSession struct {
	ID        string    `json:"id"`
	Instance  string    `json:"instance" doc:"The agent's own name for itself"`
	Trust     string    `json:"trust,omitempty" doc:"The trust by which it was opened, if an OIDC token has opened it"`
	Subject   string    `json:"subject,omitempty" doc:"Whose token that was"`
	Version   string    `json:"version"`
	Protocol  string    `json:"protocol,omitempty" doc:"Version of the runner protocol that the agent speaks; absent if it did not say"`
	Capacity  int       `json:"capacity" doc:"Jobs it runs at once"`
	Running   []string  `json:"running" nullable:"false"`
	Draining  bool      `json:"draining"`
	Unhealthy string    `json:"unhealthy,omitempty" doc:"What keeps the agent from starting jobs; absent if it knows of nothing"`
	State     string    `json:"state" enum:"online,lost,ended"`
	LastSeen  time.Time `json:"last_seen"`

	Isolation string        `json:"isolation,omitempty" enum:"landlock,container,none" doc:"What keeps that which jobs start from the runner's files and processes, and from other jobs'; absent if the agent did not say"`
	Customer  *CustomerMode `json:"customer,omitempty" doc:"The mode that the customer has set for this agent; absent if it takes jobs"`
}

// SetRunnerChannelRequest says which version an update channel is.
type SetRunnerChannelRequest struct {
	Version string `json:"version" minLength:"1" maxLength:"63" form:"version" example:"v1.2.3"`
	Image   string `json:"image,omitempty" maxLength:"500" form:"image" doc:"The runner's image of that version, by digest"`
}

// RunnerChannel is an update channel: those who follow it are to run its version.
type RunnerChannel struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Image   string    `json:"image,omitempty"`
	SetAt   time.Time `json:"set_at"`
}

// Enrolment is a single-use token that lets one agent enrol.
type Enrolment struct {
	Token     string    `json:"token" doc:"Shown once"`
	ExpiresAt time.Time `json:"expires_at"`
}
