package wire

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// The routes of the control API.
var (
	GetMeta             = Route{"get-meta", "GET", "/v1/meta"}
	UploadPart          = Route{"upload-part", "PUT", "/v1/parts/{digest}/{part}"}
	DownloadPart        = Route{"download-part", "GET", "/v1/parts/{digest}/{part}"}
	PublishVersion      = Route{"publish-version", "POST", "/v1/apps/{app}/versions"}
	BuildApp            = Route{"build-app", "POST", "/v1/apps/{app}/builds"}
	ListVersions        = Route{"list-versions", "GET", "/v1/apps/{app}/versions"}
	GetVersion          = Route{"get-version", "GET", "/v1/apps/{app}/versions/{version}"}
	GetProvenance       = Route{"get-provenance", "GET", "/v1/apps/{app}/versions/{version}/components/{component}/provenance"}
	DeleteApp           = Route{"delete-app", "DELETE", "/v1/apps/{app}"}
	OpenRegistry        = Route{"open-registry", "POST", "/v1/apps/{app}/registry-access"}
	ListApps            = Route{"list-apps", "GET", "/v1/apps"}
	GetApp              = Route{"get-app", "GET", "/v1/apps/{app}"}
	CreateInstall       = Route{"create-install", "POST", "/v1/installs"}
	ListInstalls        = Route{"list-installs", "GET", "/v1/installs"}
	GetInstall          = Route{"get-install", "GET", "/v1/installs/{install}"}
	UpdateInstall       = Route{"update-install", "PATCH", "/v1/installs/{install}"}
	ForgetInstall       = Route{"forget-install", "DELETE", "/v1/installs/{install}"}
	RenderInstall       = Route{"render-install", "GET", "/v1/installs/{install}/rendered"}
	GetOutputs          = Route{"get-outputs", "GET", "/v1/installs/{install}/outputs"}
	UnlockState         = Route{"unlock-state", "POST", "/v1/installs/{install}/components/{component}/unlock"}
	PushState           = Route{"push-state", "PUT", "/v1/installs/{install}/components/{component}/state"}
	ListActions         = Route{"list-actions", "GET", "/v1/installs/{install}/actions"}
	RunAction           = Route{"run-action", "POST", "/v1/installs/{install}/actions/{action}/runs"}
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

	MaxBody int64 `json:"max_body,omitempty" minimum:"0" doc:"The largest body of a request, in bytes, that the control plane's front end accepts. A client sends a larger body in parts; absent: it accepts every body"`

	Keys []VerificationKey `json:"keys" nullable:"false" doc:"Public keys of the signatures of job specs and provenance. A runner that does not enrol needs them before it starts: it pins them"`
}

// CreateInstallRequest creates an install.
type CreateInstallRequest struct {
	Name   string                     `json:"name" minLength:"1" maxLength:"63" form:"name"`
	App    string                     `json:"app" minLength:"1" maxLength:"63" form:"name"`
	Runner string                     `json:"runner,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of the runner; when absent, rules choose one at the first deployment"`
	Group  string                     `json:"group,omitempty" maxLength:"900" form:"group" doc:"Path of its group; the root group when absent"`
	Labels map[string]string          `json:"labels,omitempty" maxProperties:"16" keys:"label-key" form:"label-value" doc:"Labels that rules can match, in addition to group and app"`
	Inputs map[string]json.RawMessage `json:"inputs,omitempty"`
}

// UpdateInstallRequest changes an install. Inputs and labels that it does not
// name keep their values. A null input returns to its default.
type UpdateInstallRequest struct {
	Inputs    map[string]json.RawMessage `json:"inputs,omitempty"`
	Encrypted map[string]Encrypted       `json:"encrypted_inputs,omitempty" maxProperties:"1000" doc:"Sensitive inputs, encrypted with the key of the install for the place input/NAME. If the install has a key, other values of sensitive inputs are refused"`
	Labels    map[string]*string         `json:"labels,omitempty" keys:"label-key" form:"label-value" doc:"Labels to set; null removes a label"`
	Runner    *string                    `json:"runner,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of its runner; if empty, rules choose one. The change takes effect when the runner is refreshed"`
}

// Install is one app in one customer's account.
type Install struct {
	Actors
	ID         string                     `json:"id"`
	Name       string                     `json:"name"`
	App        string                     `json:"app"`
	Runner     string                     `json:"runner" doc:"The runner of its jobs: the one that it is bound to, otherwise the one that it names; empty until rules have chosen one"`
	Bound      bool                       `json:"bound" doc:"Whether its first deployment has bound it to the runner"`
	Group      string                     `json:"group" doc:"Path of its group; / is the root group"`
	Labels     map[string]string          `json:"labels,omitempty"`
	State      string                     `json:"state" enum:"new,deployed,partial,torn-down" doc:"Result of the last deployments"`
	Inputs     map[string]json.RawMessage `json:"inputs" doc:"The inputs that were set; the value of a sensitive one is \"(sensitive)\""`
	Components []InstallComponent         `json:"components" nullable:"false"`
	Deployment string                     `json:"deployment,omitempty" doc:"The deployment that runs now"`
	Moving     string                     `json:"moving,omitempty" doc:"The job that moves its state now"`
	Queued     []string                   `json:"queued" nullable:"false" doc:"Deployments that wait for the running one, in order"`
	Situations []Situation                `json:"situations,omitempty" doc:"What a person must know or decide; on single installs only"`
	Stack      string                     `json:"stack,omitempty" doc:"State of its runner stack, if it has one; on single installs only"`
	CreatedAt  time.Time                  `json:"created_at"`

	Key         *InstallKey `json:"key,omitempty" doc:"The key that encrypts its secrets; absent: the control plane can read them, because the runner has no seed of install keys, or has not reported the key yet"`
	KeyExpected bool        `json:"key_expected,omitempty" doc:"The runner has a seed, and reports the key soon, or it has a new agent that has not reported yet whether it has one; on single installs only"`

	MissingInputs []MissingInput `json:"missing_inputs,omitempty" doc:"Required inputs that are not set; a deployment is refused without them; on single installs only"`

	Sandbox *InstallSandbox `json:"sandbox,omitempty" doc:"What the install stands on; on single installs only"`

	CustomerSecrets []CustomerSecret `json:"customer_secrets,omitempty" doc:"Secrets that the app needs from the customer; on single installs only"`

	Effective *Effective `json:"effective,omitempty" doc:"What a deployment would use now; on single installs only, and only if requested"`
}

// InstallKey is the public key of an install, as its runner reported it.
type InstallKey struct {
	PublicKey   string      `json:"public_key" doc:"flk1_ and an X25519 key in base64url"`
	Fingerprint string      `json:"fingerprint" doc:"Text by which people compare the key" example:"SHA256:b74+O5AWl+MbzFAQaFXYjSwlhfUM1jR1XpQ+VpVj5CM"`
	Since       time.Time   `json:"since"`
	Changed     *InstallKey `json:"changed,omitempty" doc:"Another key that was reported later. It is used only after a person accepted it"`
}

// InstallSandbox is what an install stands on.
type InstallSandbox struct {
	Kind      string `json:"kind" doc:"Kind of the sandbox"`
	CreatedBy string `json:"created_by,omitempty" doc:"The component that creates it; absent: it exists already"`
	Runner    string `json:"runner,omitempty" doc:"The runner in it, after a deployment has made it"`
	Warning   string `json:"warning,omitempty" doc:"Why the install's runner should not run its jobs, although it can"`
}

// Effective holds the values that a deployment of an install would use now, and the
// differences from the last successful deployment of each component.
type Effective struct {
	Version     string                               `json:"version" doc:"App version that a deployment would use"`
	Names       []string                             `json:"version_names,omitempty" doc:"Names of the version"`
	Inputs      map[string]EffectiveValue            `json:"inputs" doc:"From the install or the app's default; an input without either has no value"`
	Environment map[string]EffectiveValue            `json:"environment" doc:"Environment variables of the jobs' tools, each from the runner, group, app or install on which it is set"`
	Components  map[string]map[string]EffectiveValue `json:"components" doc:"Variables of each component, from inputs, facts of the install, outputs, or constants of the app"`
	Off         []string                             `json:"off,omitempty" doc:"Components that an input switches off; a deployment does not have them"`
	Undeployed  []Undeployed                         `json:"undeployed" nullable:"false" doc:"Changes that are not deployed yet, by component. A component whose state is failed or unknown is not compared"`
}

// EffectiveValue is one value that a deployment would use.
type EffectiveValue struct {
	Value     json.RawMessage `json:"value,omitempty" doc:"Absent if it is sensitive, or unknown until another component is deployed"`
	Sensitive bool            `json:"sensitive,omitempty"`
	From      []string        `json:"from" nullable:"false" doc:"Sources of the value"`
}

// Undeployed is one difference between a deployed component and the component that a
// new deployment would apply.
type Undeployed struct {
	Component string `json:"component"`
	Kind      string `json:"what" enum:"new,removed,off,version,variable,environment" doc:"new: the component is not deployed. removed: the app version has no such component. off: an input switches the component off, and it still exists. version, variable, environment: it was deployed from another version, with another value of a variable, or with other environment variables"`
	Name      string `json:"name,omitempty" doc:"Name of the variable"`
}

// InstallComponent is the record of one component of an install.
type InstallComponent struct {
	Name       string    `json:"name"`
	State      string    `json:"state" enum:"absent,present,failed,unknown" doc:"failed: the last apply or destroy ended without success. unknown: an apply or destroy runs, or was lost and no later plan has compared the state with the cloud"`
	Version    string    `json:"version,omitempty" doc:"App version of its last apply"`
	Names      []string  `json:"version_names,omitempty" doc:"Names of the version"`
	Deployment string    `json:"deployment,omitempty" doc:"Deployment that last changed it"`
	UpdatedAt  time.Time `json:"updated_at"`
	LockedBy   string    `json:"locked_by,omitempty" doc:"Job that holds its state lock"`
	Lock       *Lock     `json:"lock,omitempty" doc:"Its state lock, also if a lost job left it"`
}

// Lock is the state lock of a component.
type Lock struct {
	ID        string    `json:"id"`
	Job       string    `json:"job"`
	Epoch     int64     `json:"epoch"`
	Who       string    `json:"who,omitempty" doc:"As its tool reported"`
	Operation string    `json:"operation,omitempty" doc:"As its tool reported"`
	Since     time.Time `json:"since"`
	Held      bool      `json:"held" doc:"Whether its job still has its lease; if not, the next job breaks the lock"`
}

// PushedState is a state that a person uploaded in place of the stored one.
type PushedState struct {
	Component string    `json:"component"`
	Serial    int64     `json:"serial" doc:"0 if the state has none"`
	Size      int       `json:"size"`
	SavedAt   time.Time `json:"saved_at"`
}

// Situation is one thing that a person must know or decide, because an install,
// deployment or job does not continue without a person.
type Situation struct {
	Kind      string     `json:"kind" enum:"queued,not-granted,states-apart,approval,lost,poison,failed,state-unsaved,stopped,retrying,starting,stopping,step-silent,runner-silent,runner-draining,runner-full,runner-off,runner-pinned,runner-held,runner-outdated,runner-mixed,runner-gone,locked,lock-left,state-unknown,deployed-since"`
	Component string     `json:"component,omitempty" doc:"The component concerned"`
	Job       string     `json:"job,omitempty" doc:"The job concerned"`
	What      string     `json:"what" doc:"What happened"`
	Known     []string   `json:"known" nullable:"false" doc:"Known facts, above all about the cloud resources"`
	Next      []NextStep `json:"next" nullable:"false" doc:"Possible next steps, the best first; if empty, wait"`
}

// NextStep is something that a person can do.
type NextStep struct {
	Action *Action `json:"action,omitempty" doc:"Absent if the step is manual"`
	Effect string  `json:"effect" doc:"What the action does. For a manual step: what to do; it may name actions in braces, as hints do"`
}

// Rendered is what a deployment of an install would give to its components.
type Rendered struct {
	Install    string              `json:"install"`
	App        string              `json:"app"`
	Version    string              `json:"version"`
	Names      []string            `json:"version_names,omitempty" doc:"Names of the version"`
	Components []RenderedComponent `json:"components" nullable:"false" doc:"By name"`
}

// RenderedComponent is what a deployment would give to the jobs of one component.
type RenderedComponent struct {
	Name        string                   `json:"name"`
	Type        string                   `json:"type"`
	Source      string                   `json:"source" doc:"Folder of the source in the app's folder"`
	Artifact    string                   `json:"artifact" doc:"Digest of the source artifact"`
	Off         bool                     `json:"off,omitempty" doc:"Whether an input switches the component off; a deployment does not have it then"`
	DependsOn   []string                 `json:"depends_on" nullable:"false"`
	Secrets     []string                 `json:"secrets,omitempty" doc:"Names of the secrets that the customer gives"`
	Image       *RenderedValue           `json:"image,omitempty" doc:"Image in which the jobs run; absent: they run as the runner's other jobs do"`
	Options     map[string]RenderedValue `json:"options" doc:"Options of the component's type, by name"`
	Vars        map[string]RenderedValue `json:"vars" doc:"Variables, by name"`
	Environment []string                 `json:"environment" nullable:"false" doc:"Names of the environment variables of the tool, without those that the runner sets itself"`
}

// RenderedValue is a value that a deployment would use, without its secrets.
type RenderedValue struct {
	Value     json.RawMessage `json:"value,omitempty" doc:"Has \"(sensitive)\" in place of each secret, and \"(known after NAME)\" in place of what an output of component NAME decides; absent if there is a problem"`
	Sensitive bool            `json:"sensitive,omitempty" doc:"Whether a part of the value is hidden"`
	After     []string        `json:"known_after,omitempty" doc:"The components whose outputs decide a part of the value"`
	Problem   string          `json:"problem,omitempty" doc:"Why a deployment would refuse the value"`
}

// Output is one output of a component. The value of a sensitive output is absent
// unless the caller requested it.
type Output struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Encrypted *Encrypted      `json:"encrypted,omitempty" doc:"In place of value: only the customer's side can open it. Present only if sensitive values were asked for"`
}

// Outputs holds outputs by component, then by name.
type Outputs struct {
	Components map[string]map[string]Output `json:"components"`
}

// CreateDeploymentRequest starts a deployment, or queues it behind the running one.
type CreateDeploymentRequest struct {
	Kind        string   `json:"kind" enum:"deploy,teardown"`
	PlanOnly    bool     `json:"plan_only,omitempty"`
	AutoApprove bool     `json:"auto_approve,omitempty" doc:"The same as \"ask\": \"never\"; used only if ask is absent"`
	Ask         string   `json:"ask,omitempty" enum:"never,destroys,changes,always" doc:"Which plans of all components wait for approval. never: none. destroys: those that destroy or replace something. changes: also those that change something in place. always, the default: all that do anything. A plan after a lost apply always waits"`
	PlansExpire int64    `json:"plans_expire_seconds,omitempty" minimum:"60" maximum:"2419200" doc:"The age at which a plan expires: it cannot be approved or applied any more. Absent: 7 days"`
	Refresh     bool     `json:"refresh,omitempty" doc:"Plan each component. Without it, a component whose source, variables and environment are those of its last deployment has no job, so changes that others made to its resources are not found"`
	Targets     []string `json:"targets,omitempty" maxItems:"40" doc:"Names of components: deploy only these and the components that they need; all when absent. A teardown destroys these and the components that need them"`
	Version     string   `json:"version,omitempty" maxLength:"64" doc:"App version, by its identifier or a name; the newest when absent"`
	NoQueue     bool     `json:"no_queue,omitempty" doc:"Do not queue: refuse with deployment-runs while another deployment of the install is not finished"`
}

// Deployment is a graph of jobs on one install.
type Deployment struct {
	ID          string                `json:"id"`
	Revision    int64                 `json:"revision" doc:"Grows with each change; pass it as 'after' to wait for the next change"`
	Install     string                `json:"install"`
	App         string                `json:"app"`
	Version     string                `json:"version"`
	Names       []string              `json:"version_names,omitempty" doc:"Names of the version"`
	Kind        string                `json:"kind" enum:"deploy,teardown,action"`
	Action      string                `json:"action,omitempty" doc:"Of the kind action: the name of the action that runs"`
	Trigger     string                `json:"trigger,omitempty" enum:"manual,schedule" doc:"Of the kind action: what started the run"`
	State       string                `json:"state" enum:"queued,running,awaiting-approval,canceling,succeeded,failed,canceled"`
	PlanOnly    bool                  `json:"plan_only"`
	AutoApprove bool                  `json:"auto_approve" doc:"Whether ask is never"`
	Ask         string                `json:"ask" enum:"never,destroys,changes,always" doc:"Which plans wait for approval"`
	PlansExpire int64                 `json:"plans_expire_seconds" doc:"The age at which a plan expires"`
	Refresh     bool                  `json:"refresh,omitempty" doc:"Whether each component is planned, also those that have not changed"`
	Targets     []string              `json:"targets,omitempty" doc:"The components that were asked for; absent: all"`
	RetryOf     string                `json:"retry_of,omitempty"`
	Message     string                `json:"message,omitempty" doc:"What happened, if the components do not show it"`
	Next        []NextStep            `json:"next,omitempty" doc:"What a person can do next"`
	Situations  []Situation           `json:"situations,omitempty" doc:"What a person must know or decide; on single deployments only"`
	Ahead       *DeploymentAhead      `json:"ahead,omitempty" doc:"The deployment that a queued one waits for; on single deployments only"`
	Components  []DeploymentComponent `json:"components" nullable:"false" doc:"In an order that respects dependencies"`
	CreatedAt   time.Time             `json:"created_at"`
	CreatedBy   *Actor                `json:"created_by,omitempty" doc:"Absent if an earlier release of the control plane created it"`
	CanceledBy  *Actor                `json:"canceled_by,omitempty"`
	FinishedAt  *time.Time            `json:"finished_at,omitempty"`
}

// DeploymentAhead is the deployment that a queued deployment waits for.
type DeploymentAhead struct {
	ID      string    `json:"id" doc:"The deployment that runs on the install now"`
	State   string    `json:"state" enum:"queued,running,awaiting-approval,canceling,succeeded,failed,canceled"`
	Since   time.Time `json:"since" doc:"When it last changed; if it awaits approval, since when"`
	Between int       `json:"between" minimum:"0" doc:"Number of queued deployments that start before this one"`
}

// Done reports whether the deployment has reached a final state.
func (d Deployment) Done() bool {
	return d.State == "succeeded" || d.State == "failed" || d.State == "canceled"
}

// DeploymentComponent is the progress of one component in a deployment.
type DeploymentComponent struct {
	Name    string   `json:"name" doc:"The component, or actions.NAME for a run of an action"`
	Action  string   `json:"action,omitempty" doc:"The action, if this is a run of an action"`
	Trigger string   `json:"trigger,omitempty" enum:"manual,schedule,before,after" doc:"What starts the run of the action"`
	State   string   `json:"state" enum:"pending,planning,awaiting-approval,approved,applying,reconciling,applied,unchanged,planned,failed,canceled,skipped,lost"`
	Needs   []string `json:"needs" nullable:"false" doc:"Components that this one waits for in this deployment"`
	PlanJob string   `json:"plan_job,omitempty"`
	Job     string   `json:"job,omitempty" doc:"The job that applies or destroys"`
	Plan    string   `json:"plan,omitempty" doc:"Digest of the saved plan; approvals and the apply refer to it"`
	Changes *Changes `json:"changes,omitempty" doc:"What the plan would change"`

	PlanExpiresAt *time.Time `json:"plan_expires_at,omitempty" doc:"When the plan expires; absent if no plan waits for approval or for its apply to start"`

	Reason  string `json:"reason,omitempty" doc:"Typed reason of a failure"`
	Message string `json:"message,omitempty"`

	Next       []NextStep `json:"next,omitempty" doc:"What a person can do next"`
	ApprovedBy *Actor     `json:"approved_by,omitempty" doc:"Who approved the plan; absent if no approval was needed"`

	NeedsSignature string `json:"needs_signature,omitempty" doc:"Rule of the customer's policy that asks for an approval signed by the customer; absent: none"`
}

// Changes counts what a plan would do.
type Changes struct {
	Add     int  `json:"add" minimum:"0"`
	Change  int  `json:"change" minimum:"0"`
	Destroy int  `json:"destroy" minimum:"0"`
	Outputs bool `json:"outputs,omitempty" doc:"Whether outputs change"`
	Run     int  `json:"run,omitempty" minimum:"0" doc:"Programs that would run; a plan cannot predict what they change"`
}

// ApproveRequest approves plans that wait for approval. If Components and Plans
// are empty, it approves all plans that wait.
type ApproveRequest struct {
	Components []string          `json:"components,omitempty" maxItems:"1000"`
	Plans      map[string]string `json:"plans,omitempty" doc:"Digests of the plans that the caller has read, by component. The control plane refuses a plan that has changed since"`
	Signatures map[string][]byte `json:"signatures,omitempty" doc:"Approvals that a person of the customer signed, by component: DSSE envelopes, in base64, of at most 4,096 bytes each. The runner verifies them"`
}

// Job is one operation on one component, run by a runner.
type Job struct {
	Actors
	ID         string          `json:"id"`
	State      string          `json:"state" enum:"queued,claimed,running,canceling,succeeded,failed,canceled,lost"`
	Operation  string          `json:"operation" enum:"plan,apply,plan-destroy,destroy,plan-run,run,check,agent-log,build,migrate-state"`
	Runner     string          `json:"runner"`
	Install    string          `json:"install,omitempty"`
	Deployment string          `json:"deployment,omitempty"`
	Component  string          `json:"component,omitempty"`
	Epoch      int64           `json:"epoch" doc:"Number of the current attempt: how often the job was claimed"`
	Reason     string          `json:"reason,omitempty" doc:"Typed reason of a failure"`
	Message    string          `json:"message,omitempty"`
	Next       []NextStep      `json:"next,omitempty" doc:"What a person can do next"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Salvaged   *Salvaged       `json:"salvaged,omitempty" doc:"File in which the runner keeps a state that the tool could not save"`
	DiskFull   bool            `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
	Plan       *Plan           `json:"plan,omitempty"`
	Build      *JobBuild       `json:"build,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	ClaimedAt  *time.Time      `json:"claimed_at,omitempty"`
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	CanceledBy *Actor          `json:"canceled_by,omitempty"`
	Log        []LogStreamInfo `json:"log,omitempty" doc:"One stream for each attempt; on single jobs only"`
	Deaths     []JobDeath      `json:"deaths,omitempty" doc:"Attempts that ended without a report, the oldest first"`
	Situations []Situation     `json:"situations,omitempty" doc:"What a person must know or decide; on single jobs only"`
}

// JobDeath is an attempt that ended without a report.
type JobDeath struct {
	Epoch      int64      `json:"epoch"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message,omitempty"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	DiskFull   bool       `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	LastSeenAt *time.Time `json:"last_seen_at,omitempty" doc:"When the attempt was last seen; absent if that is not known"`
	At         time.Time  `json:"at" doc:"When the control plane noticed"`
}

// Plan describes a saved plan. It never holds the plan itself.
type Plan struct {
	Digest  string  `json:"digest" doc:"sha256:… of the saved plan; approvals and the apply refer to it"`
	Changes Changes `json:"changes"`
	NoOp    bool    `json:"no_op"`
	// NeedsSignature is the rule of the customer's policy that asks for a signed approval.
	NeedsSignature string         `json:"needs_signature,omitempty" maxLength:"300" doc:"Rule of the customer's policy that asks for an approval signed by the customer; absent: none"`
	Artifact       string         `json:"artifact,omitempty" maxLength:"100" doc:"sha256:… of the component's source from which the plan was made"`
	ChangeSet      *changeset.Set `json:"change_set,omitempty" doc:"What the plan would do, sensitive values masked; on single jobs only"`
	// Summary is the change set in the form of runners before version 2 of the schema.
	Summary json.RawMessage `json:"summary,omitempty" deprecated:"true" doc:"The changes as runners of earlier versions report them; never in an answer"`
}

// ByLogBudget is the value of truncated_by if the control plane cut a log.
const ByLogBudget = "log-budget"

// LogStreamInfo describes one attempt's log.
type LogStreamInfo struct {
	Epoch       int64  `json:"epoch"`
	Size        int64  `json:"size"`
	Ended       bool   `json:"ended"`
	Truncated   bool   `json:"truncated"`
	TruncatedBy string `json:"truncated_by,omitempty" enum:"log-budget" doc:"log-budget: the control plane cut the log, because the runner had used up its budget of log bytes; absent: the log is complete, or its end was lost"`
}

// LogChunk is a piece of a job's log. The reader repeats the request with Epoch
// and Next until Done is true.
type LogChunk struct {
	Epoch       int64  `json:"epoch"`
	Offset      int64  `json:"offset"`
	Data        []byte `json:"data" doc:"Base64"`
	Next        int64  `json:"next"`
	Truncated   bool   `json:"truncated,omitempty"`
	TruncatedBy string `json:"truncated_by,omitempty" enum:"log-budget" doc:"log-budget: the control plane cut the log, because the runner had used up its budget of log bytes; the job may go on"`
	Done        bool   `json:"done" doc:"The job has finished and this is the end of its log"`
}

// CreateRunnerRequest creates a runner. Its configuration is Config or Text, with
// the fields of Set on top. Without any of them, the runner is of kind local.
type CreateRunnerRequest struct {
	Name        string `json:"name,omitempty" maxLength:"63" form:"name" doc:"Required unless the configuration has an id"`
	Description string `json:"description,omitempty" maxLength:"1000" doc:"For a runner without a configuration"`
	Storage     string `json:"storage,omitempty" enum:"local,http" doc:"Where it keeps the states of its installs; for a runner without a configuration; \"local\" when absent"`
	RunnerConfigurationInput
	Shared    bool   `json:"shared,omitempty" doc:"The runner serves the installs of every org; only the operator of the control plane may set it"`
	AWSRole   string `json:"aws_role,omitempty" maxLength:"700" doc:"ARN, with path, of its agents' AWS role"`
	AWSRoleID string `json:"aws_role_id,omitempty" maxLength:"128" doc:"Unique ID of the role, which starts with AROA. If absent, the runner accepts and keeps the first role of that ARN that opens a session within seven days"`
}

// Runner runs the jobs of its installs.
type Runner struct {
	Actors
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	Description     string          `json:"description,omitempty"`
	Kind            string          `json:"kind" enum:"aws-ecs,aws-eks,azure-aks,gcp-gke,kubernetes,docker,local"`
	Storage         string          `json:"storage" enum:"s3,gcs,azurerm,kubernetes,http,local" doc:"Where it keeps the states of its installs"`
	Group           string          `json:"group,omitempty" doc:"Path of the group that it serves, including the groups below; / is the whole org. Absent for a shared runner and for the own runner of an install"`
	Shared          bool            `json:"shared,omitempty" doc:"The runner serves the installs of every org"`
	State           string          `json:"state" enum:"never-seen,online,lost" doc:"never-seen: the control plane knows no agent of it; it forgets an agent one day after it last saw it"`
	Mode            string          `json:"mode" enum:"enabled,paused,draining,disabled" doc:"The mode that the vendor set: whether the runner takes new jobs"`
	Customer        *CustomerMode   `json:"customer,omitempty" doc:"The mode that the customer set: the mildest among the agents that are online; absent if one of them takes jobs"`
	Wanted          *WantedVersion  `json:"wanted,omitempty" doc:"The version that its agents must run; absent if any version is accepted"`
	Sessions        []RunnerSession `json:"sessions" nullable:"false"`
	Situations      []Situation     `json:"situations,omitempty" doc:"What a person must know or decide; on single runners only"`
	AWS             *RunnerAWSRole  `json:"aws,omitempty" doc:"The AWS role of its agents; absent if it has none"`
	ServiceAccounts []string        `json:"service_accounts,omitempty" doc:"Names of the service accounts as which its agents can open sessions"`
	Trusts          []string        `json:"trusts,omitempty" doc:"Names of its own rules for OIDC tokens: of a runner in the sandbox, and those that an earlier release made for a shared runner"`
	Config          json.RawMessage `json:"config,omitempty" doc:"Its configuration, with \"(masked)\" in place of each secret; on single runners only"`
	Warnings        []string        `json:"warnings,omitempty" doc:"Settings of the given configuration that are accepted but not advised"`
	CreatedAt       time.Time       `json:"created_at"`
}

// RunnerAWSRole is the AWS role that proves the identity of a runner's agents.
type RunnerAWSRole struct {
	RoleARN    string     `json:"role_arn"`
	RoleID     string     `json:"role_id,omitempty" doc:"Unique ID of the role; absent until an agent has proved the role for the first time"`
	WaitsUntil *time.Time `json:"waits_until,omitempty" doc:"Until when the runner accepts the first proof"`
}

// RunnerSession is the session of one agent process.
type RunnerSession struct {
	ID             string    `json:"id"`
	Instance       string    `json:"instance" doc:"Name that the agent gives itself"`
	ServiceAccount string    `json:"service_account,omitempty" doc:"As which the agent opened the session with an OIDC token; absent if it did not"`
	Trust          string    `json:"trust,omitempty" doc:"The runner's own rule that accepted the OIDC token; absent if none did"`
	Subject        string    `json:"subject,omitempty" doc:"Subject of that token"`
	Version        string    `json:"version"`
	Protocol       string    `json:"protocol,omitempty" doc:"Version of the agent's runner protocol; absent if the agent did not report it"`
	Capacity       int       `json:"capacity" doc:"Number of its slots: jobs that it runs at once"`
	Running        []string  `json:"running" nullable:"false"`
	Draining       bool      `json:"draining"`
	Unhealthy      string    `json:"unhealthy,omitempty" doc:"Why the agent cannot start jobs; absent if it can"`
	State          string    `json:"state" enum:"online,lost,ended"`
	LastSeen       time.Time `json:"last_seen"`

	WarmSteps int           `json:"warm_steps,omitempty" doc:"Number of its steps that were started ahead and wait for a job"`
	Isolation string        `json:"isolation,omitempty" enum:"landlock,container,none" doc:"What isolates a job's programs from the files and processes of the runner and of other jobs; absent if the agent did not report it"`
	Customer  *CustomerMode `json:"customer,omitempty" doc:"The mode that the customer set for this agent; absent if it takes jobs"`
}

// SetRunnerChannelRequest sets the version of an update channel.
type SetRunnerChannelRequest struct {
	Version string `json:"version" minLength:"1" maxLength:"63" form:"version" example:"v1.2.3"`
	Image   string `json:"image,omitempty" maxLength:"500" form:"image" doc:"The runner's image of that version, by digest"`
}

// RunnerChannel is an update channel: runners that follow it must run its version.
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
