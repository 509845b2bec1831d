package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// The routes of the runner API. The bearer token is the session token on session
// routes, the warm token on AwaitJob, the launch token on StartJob, and the lease token
// on other job routes.
var (
	EnrolRunner      = Route{"enrol-runner", "POST", "/runner/v1/enrol"}
	CreateChallenge  = Route{"create-challenge", "POST", "/runner/v1/challenges"}
	CreateSession    = Route{"create-session", "POST", "/runner/v1/sessions"}
	ReportKeys       = Route{"report-install-keys", "POST", "/runner/v1/session/install-keys"}
	HeartbeatSession = Route{"heartbeat-session", "POST", "/runner/v1/session/heartbeat"}
	ClaimJob         = Route{"claim-job", "POST", "/runner/v1/claims"}
	StartAhead       = Route{"start-ahead", "POST", "/runner/v1/warm-steps"}
	AdoptSteps       = Route{"adopt-steps", "POST", "/runner/v1/steps/adopt"}
	GetWarmMarker    = Route{"get-warm-marker", "POST", "/runner/v1/warm-steps/{warm}/marker"}
	EndWarmStep      = Route{"end-warm-step", "POST", "/runner/v1/warm-steps/{warm}/end"}
	AwaitJob         = Route{"await-job", "POST", "/runner/v1/warm-steps/{warm}/job"}
	ReleaseJob       = Route{"release-job", "POST", "/runner/v1/jobs/{job}/release"}
	RescueJobLog     = Route{"rescue-job-log", "PUT", "/runner/v1/jobs/{job}/rescued-log"}
	ReportDied       = Route{"report-died", "POST", "/runner/v1/jobs/{job}/died"}
	StartJob         = Route{"start-job", "POST", "/runner/v1/jobs/{job}/start"}
	HeartbeatJob     = Route{"heartbeat-job", "POST", "/runner/v1/jobs/{job}/heartbeat"}
	AppendJobLog     = Route{"append-job-log", "PUT", "/runner/v1/jobs/{job}/log"}
	RenewLogAccess   = Route{"renew-log-access", "POST", "/runner/v1/jobs/{job}/log-access"}
	GetPullLogin     = Route{"create-pull-login", "POST", "/runner/v1/jobs/{job}/pull-login"}
	GetImageBuild    = Route{"create-image-build-access", "POST", "/runner/v1/jobs/{job}/image-build-access"}
	SignProvenance   = Route{"sign-provenance", "POST", "/runner/v1/jobs/{job}/provenance"}
	GetValues        = Route{"get-values", "GET", "/runner/v1/jobs/{job}/values/{name}"}
	FinishJob        = Route{"finish-job", "POST", "/runner/v1/jobs/{job}/finish"}
	StagePart        = Route{"stage-part", "PUT", "/runner/v1/jobs/{job}/parts/{digest}/{part}"}
	GetPart          = Route{"get-part", "GET", "/runner/v1/jobs/{job}/parts/{digest}/{part}"}
	PutPlan          = Route{"put-plan", "PUT", "/runner/v1/jobs/{job}/plan"}
	GetPlan          = Route{"get-plan", "GET", "/runner/v1/jobs/{job}/plan"}
	GetState         = Route{"get-state", "GET", "/runner/v1/state/{install}/{component}"}
	PutState         = Route{"put-state", "POST", "/runner/v1/state/{install}/{component}"}
	DeleteState      = Route{"delete-state", "DELETE", "/runner/v1/state/{install}/{component}"}
	LockState        = Route{"lock-state", "PUT", "/runner/v1/state/{install}/{component}/lock"}
	UnlockStateJob   = Route{"release-state", "DELETE", "/runner/v1/state/{install}/{component}/lock"}
)

// VerificationKey is a public key that verifies the signatures of job specs. An
// agent pins the keys of its enrolment and accepts no other.
type VerificationKey struct {
	ID        string `json:"id"`
	PublicKey []byte `json:"public_key" doc:"Ed25519, 32 bytes, base64"`
}

// EnrolRequest exchanges a single-use token for an identity. From then on the agent
// proves that it holds the private key of PublicKey.
type EnrolRequest struct {
	Token     string `json:"token" maxLength:"200"`
	PublicKey []byte `json:"public_key" doc:"Ed25519 key that the agent generated; base64"`
}

// Enrolled is the answer to an enrolment.
type Enrolled struct {
	Runner   string            `json:"runner" doc:"Name of the runner"`
	RunnerID string            `json:"runner_id"`
	Keys     []VerificationKey `json:"keys" nullable:"false"`
	Registry string            `json:"registry"`
}

// What isolates the programs of an agent's jobs from the files and processes of the
// runner and of other jobs.
const (
	IsolationContainer = "container" // each job has its own container
	IsolationLandlock  = "landlock"  // Landlock rules of the Linux kernel
	IsolationNone      = "none"      // no isolation
)

// Challenge is a nonce that a session request signs. It is valid once, for one minute.
type Challenge struct {
	Nonce  string `json:"nonce"`
	Report bool   `json:"report,omitempty" doc:"The request for a session may carry a heartbeat. An older control plane refuses it"`
}

// SessionRequest proves the agent's identity in one of three ways:
//   - PublicKey, with a Signature over SessionStatement(Nonce, RunnerID, Instance);
//   - AWSIAM, whose signature covers the digest of the same statement;
//   - OIDC, with PublicKey and a Signature over OIDCSigned.
type SessionRequest struct {
	RunnerID  string `json:"runner_id" minLength:"1" maxLength:"64"`
	Nonce     string `json:"nonce" maxLength:"200" doc:"Of a challenge, or the renewal nonce of the session to renew"`
	Instance  string `json:"instance" maxLength:"200" doc:"Name that the agent gives itself"`
	Version   string `json:"version" maxLength:"100"`
	Capacity  int    `json:"capacity" minimum:"0" maximum:"10000" doc:"Number of its slots: jobs that it runs at once"`
	PublicKey []byte `json:"public_key,omitempty" doc:"The agent's Ed25519 key; base64"`
	Signature []byte `json:"signature,omitempty" doc:"Ed25519, over the statement; base64"`

	AWSIAM *AWSIAMProof  `json:"aws_iam,omitempty" doc:"Proof of an AWS role, instead of a key"`
	OIDC   *OIDCProof    `json:"oidc,omitempty" doc:"Token that a service account of the runner accepts. The request also needs a key, which need not be enrolled"`
	Stack  *SessionStack `json:"stack,omitempty" doc:"For a runner in a customer's stack: what the stack has created"`

	Report *SessionHeartbeat `json:"report,omitempty" doc:"The agent's first heartbeat in this session; absent: the agent sends it later"`
}

// AWSIAMProof holds the unknown parts of a GetCallerIdentity request that the agent
// signed with its role's credentials. The control plane builds the rest itself, with
// the nonce, its own host and the statement's digest as signed headers, and sends
// the request to STS.
type AWSIAMProof struct {
	Host         string `json:"host" maxLength:"100" doc:"A regional host of STS"`
	AccessKeyID  string `json:"access_key_id" maxLength:"128"`
	SessionToken string `json:"session_token" maxLength:"8192"`
	Date         string `json:"date" maxLength:"16" doc:"X-Amz-Date of the request"`
	Signature    string `json:"signature" maxLength:"64" doc:"Signature Version 4, in lower-case hexadecimal"`
}

// SessionStatement is the text that an agent signs for a session.
func SessionStatement(nonce, runnerID, instance string) []byte {
	return []byte("fairlead-session-v1\n" + nonce + "\n" + runnerID + "\n" + instance + "\n")
}

// OIDCProof is a token that the agent got from its platform.
type OIDCProof struct {
	Token string `json:"token" maxLength:"12288" doc:"A signed JWT in compact form"`
}

// OIDCStatement is the request of an agent with an OIDC token, as text to sign. host
// is the control plane's host in the agent's configuration, with the port unless it
// is the scheme's default. A server that poses as the control plane has another host,
// so it cannot forward the request.
func OIDCStatement(nonce, runnerID, host string, publicKey []byte, instance string) []byte {
	return []byte("fairlead-oidc-session-v1\n" + nonce + "\n" + runnerID + "\n" + host + "\n" +
		base64.StdEncoding.EncodeToString(publicKey) + "\n" + instance + "\n")
}

// OIDCBinding is the digest of a statement, in base64url.
func OIDCBinding(statement []byte) string {
	sum := sha256.Sum256(statement)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// OIDCAudience is the audience of a token that is valid for one request only. The
// issuer's signature then covers the agent, the control plane and the request.
func OIDCAudience(audience, binding string) string { return audience + "#" + binding }

// OIDCSigned is the text that the agent signs with its key: the statement and the
// token's digest.
func OIDCSigned(statement []byte, token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return append(slices.Clone(statement), hex.EncodeToString(sum[:])+"\n"...)
}

// Session is an agent's login: it permits claims of one runner's jobs until it expires.
type Session struct {
	ID        string    `json:"id"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at" doc:"Request a new session before this time"`
	Registry  string    `json:"registry"`

	RenewalNonce string `json:"renewal_nonce,omitempty" doc:"Nonce to sign for the renewal of this session; absent: the next session needs a challenge"`

	Queue *QueueAccess `json:"queue,omitempty" doc:"Access to the runner's queue without the API; absent if the control plane offers none"`

	Status *SessionStatus `json:"status,omitempty" doc:"The answer to the heartbeat of the request; absent if the request had none"`

	Configuration *AgentConfiguration `json:"configuration,omitempty" doc:"How to start the runner's jobs; absent for a runner that was created without a configuration and not updated since"`
}

// AgentConfiguration is the part of a runner's configuration that its agents get. It
// holds no values of secrets: secrets are masked, or are references to secrets.
type AgentConfiguration struct {
	Revision string          `json:"revision" doc:"Changes whenever the configuration changes"`
	Runner   json.RawMessage `json:"runner_configuration" doc:"As in docs/reference/runner-file.md"`
}

// CloudAccess holds short-lived credentials of the control plane's AWS account for
// one purpose.
type CloudAccess struct {
	Region          string    `json:"region"`
	AccessKeyID     string    `json:"access_key_id"`
	SecretAccessKey string    `json:"secret_access_key"`
	SessionToken    string    `json:"session_token"`
	ExpiresAt       time.Time `json:"expires_at"`
}

// QueueAccess gives access to a runner's SQS queue. A message is a wake-up: it names
// a job, which the agent then claims by its ID.
type QueueAccess struct {
	CloudAccess
	Prefix string `json:"prefix" doc:"Prefix of the queue's name in SQS"`
	Name   string `json:"name" doc:"Name of the queue after the prefix"`
}

// LogAccess gives access to the log of one attempt of a job in CloudWatch Logs.
type LogAccess struct {
	CloudAccess
	Group string `json:"group" doc:"The log group"`
}

// ImageBuildAccess gives a build access to AWS CodeBuild, which builds its image without
// a right to push. The credentials also permit reading and writing the objects below
// Prefix, and reading the log streams below LogStream.
type ImageBuildAccess struct {
	CloudAccess
	Project   string `json:"project" doc:"The project of CodeBuild"`
	Bucket    string `json:"bucket" doc:"The S3 bucket of contexts and images"`
	Prefix    string `json:"prefix" doc:"Prefix of the keys of this attempt, with a slash at its end"`
	LogGroup  string `json:"log_group" doc:"The log group of the project"`
	LogStream string `json:"log_stream" doc:"Prefix of the names of this attempt's log streams, without the slash that follows"`
}

// SessionHeartbeat reports the condition of the agent.
type SessionHeartbeat struct {
	Capacity int      `json:"capacity" minimum:"0" maximum:"10000"`
	Running  []string `json:"running" maxItems:"1000" nullable:"false" doc:"IDs of the jobs whose steps run, at most 64 bytes each"`
	Draining bool     `json:"draining"`
	Ending   bool     `json:"ending" doc:"The agent is about to exit"`

	Customer *CustomerMode `json:"customer,omitempty" doc:"The mode that the customer set at the agent; absent if the agent may take jobs"`

	Configuration string `json:"configuration,omitempty" maxLength:"64" doc:"Revision of the configuration that the agent received last"`
	Unhealthy     string `json:"unhealthy,omitempty" maxLength:"4000" doc:"Why the agent cannot start jobs; absent if it can"`
	WarmSteps     int    `json:"warm_steps,omitempty" minimum:"0" maximum:"1000" doc:"Number of its steps that were started ahead and wait for a job"`
	InstallKeys   bool   `json:"install_keys,omitempty" doc:"The agent has a seed of install keys, and reports the keys of the installs that the answer names"`
	// Seeds are reported by the first heartbeat after the agent's start, and after a change.
	Seeds     []string `json:"seeds,omitempty" maxItems:"10" doc:"Identifiers of the agent's seeds of install keys, 16 hexadecimal digits each, the current seed first; absent if the control plane has them"`
	Isolation string   `json:"isolation,omitempty" enum:"landlock,container,none" doc:"What isolates a job's programs from the files and processes of the runner and of other jobs; absent if the agent cannot start jobs"`
}

// CustomerMode is the mode that the customer set at the agent.
type CustomerMode struct {
	Mode   string     `json:"mode" enum:"paused,draining,disabled" doc:"paused, draining: the agent starts no jobs. disabled: it has also interrupted the running jobs"`
	Since  *time.Time `json:"since,omitempty" doc:"Absent if unknown, for example if the agent's environment sets the mode"`
	Reason string     `json:"reason,omitempty" maxLength:"800" doc:"As the customer wrote it"`
}

// SessionStatus is the answer to a session heartbeat.
type SessionStatus struct {
	HeartbeatSeconds     int `json:"heartbeat_seconds" doc:"Interval until the next heartbeat"`
	IdleHeartbeatSeconds int `json:"idle_heartbeat_seconds,omitempty" doc:"The interval if the agent has no jobs and the last heartbeat named none; absent: the same"`

	Configuration *AgentConfiguration `json:"configuration,omitempty" doc:"Use it for all further jobs; absent if the agent already has it"`
	Wanted        *WantedVersion      `json:"wanted,omitempty" doc:"The version that the agent must run; absent if any version is accepted"`
	KeysWanted    []string            `json:"keys_wanted,omitempty" doc:"IDs of installs whose public keys the agent reports"`
	Situations    []Situation         `json:"situations,omitempty" doc:"What the agent's operator must know. Only in the answer to the first heartbeat of a session and to one that reports a changed isolation"`
}

// KeysReport has the public keys of installs.
type KeysReport struct {
	Keys map[string]string `json:"keys" maxProperties:"100" nullable:"false" doc:"Public keys by the ID of the install"`
}

// WantedVersion is the version that a runner's agents must run.
type WantedVersion struct {
	Version string `json:"version"`
	Image   string `json:"image,omitempty" doc:"The runner's image of that version, by digest"`
	Channel string `json:"channel,omitempty" doc:"The update channel that sets the version; absent if the runner's configuration sets it"`
}

// ClaimRequest claims a job, and waits for one if none is queued.
type ClaimRequest struct {
	WaitSeconds int    `json:"wait_seconds" minimum:"0" maximum:"20"`
	Job         string `json:"job,omitempty" maxLength:"64" doc:"Claim only this job, which a wake-up named, and do not wait for it"`

	WarmSteps bool `json:"warm_steps,omitempty" doc:"The agent has warm steps: if one of them fits, the job is assigned to it"`
}

// Claim is a job that is now leased to the session. If there is no job, the answer
// is 204 without a body.
type Claim struct {
	Job       string `json:"job"`
	Epoch     int64  `json:"epoch"`
	Operation string `json:"operation"`
	Plugin    string `json:"plugin"`
	Install   string `json:"install,omitempty"`
	InstallID string `json:"install_id,omitempty" doc:"Together with component it names the step's working folder"`
	Component string `json:"component,omitempty" doc:"The component, or actions.NAME for an action"`
	Role      string `json:"role,omitempty" enum:"read-only,deploy,provision" doc:"The role of the customer's stack that a run of an action or an apply of a component asks for; absent: that of the operation"`
	PlanJob   string `json:"plan_job,omitempty" doc:"The job whose saved plan this job applies"`

	Configuration string    `json:"configuration,omitempty" doc:"Revision of the runner's configuration; an agent with another one sends a heartbeat before it starts the job"`
	LaunchToken   string    `json:"launch_token" doc:"Valid once, for this epoch. Empty for the agent if a warm step runs the job: only the warm step gets it"`
	Bindable      bool      `json:"bindable,omitempty" doc:"The agent may bind the launch token to the AWS role of the step, which then proves the role when it starts; absent from an older control plane"`
	APIOnly       bool      `json:"api_only,omitempty" doc:"The step writes its log through the API, and its state is in no bucket: it needs no client of a cloud for them. Absent if it may need one, and from an older control plane"`
	WarmStep      string    `json:"warm_step,omitempty" doc:"The warm step that runs the job; absent if the agent must start a step"`
	StartBefore   time.Time `json:"start_before" doc:"A step that has not started by then loses its lease"`
	GraceSeconds  int       `json:"grace_seconds" doc:"How long an interrupted tool may take to save its state"`
	Size          *JobSize  `json:"size,omitempty" doc:"CPU and memory that the component asks for; absent: the size that the runner is configured for"`
	Image         string    `json:"image,omitempty" doc:"The image in which the step runs, by digest; absent: that of the runner"`
}

// JobSize is the CPU and memory of the place in which a job runs.
type JobSize struct {
	CPU    int64 `json:"cpu" minimum:"1" doc:"Thousandths of one CPU" example:"2000"`
	Memory int64 `json:"memory" minimum:"1" doc:"Bytes" example:"4294967296"`
}

// AheadRequest asks for steps to start before their jobs are known.
type AheadRequest struct {
	Job   string   `json:"job,omitempty" maxLength:"64" doc:"A job that the agent has claimed: the next jobs of its deployment get warm steps"`
	Epoch int64    `json:"epoch,omitempty" minimum:"0" doc:"Of that claim"`
	First int      `json:"first,omitempty" minimum:"0" maximum:"50" doc:"How many warm steps to have for the first jobs of deployments"`
	Most  int      `json:"most" minimum:"0" maximum:"50" doc:"The largest number of warm steps to start now"`
	Have  []string `json:"have,omitempty" maxItems:"50" doc:"IDs of the agent's warm steps. Others of this agent are ended: their answer was lost"`
}

// StartedAhead lists the warm steps that the agent must start.
type StartedAhead struct {
	WarmSteps []WarmStep `json:"warm_steps" nullable:"false"`
}

// WarmStep is a step that is started before its job is known. It waits for one job of
// its role.
type WarmStep struct {
	ID         string    `json:"id"`
	Token      string    `json:"token" doc:"The step waits for its job with it. It gives no access to a job"`
	Bindable   bool      `json:"bindable,omitempty" doc:"The agent may bind the token, and so the job's launch token, to the AWS role of the step"`
	Role       string    `json:"role" doc:"The role of the job's operation: read-only, deploy, provision or deprovision"`
	InstallID  string    `json:"install_id,omitempty" doc:"Whose jobs it can run; absent: of every install of the runner"`
	Deployment string    `json:"deployment,omitempty" doc:"Whose jobs it can run; absent: of every deployment"`
	ExpiresAt  time.Time `json:"expires_at" doc:"It gets no job after this time"`
	Size       *JobSize  `json:"size,omitempty" doc:"CPU and memory that its jobs ask for; absent: the size that the runner is configured for"`
}

// AdoptRequest names steps that the agent found where they run, and did not start.
type AdoptRequest struct {
	Attempts  []Attempt `json:"attempts,omitempty" maxItems:"1000"`
	WarmSteps []string  `json:"warm_steps,omitempty" maxItems:"1000" doc:"IDs"`
}

// Attempt is one attempt of a job.
type Attempt struct {
	Job   string `json:"job" maxLength:"64"`
	Epoch int64  `json:"epoch" minimum:"1"`
}

// AdoptedSteps are those of the steps whose agent is gone.
type AdoptedSteps struct {
	Claims []Claim  `json:"claims" nullable:"false" doc:"Of the steps that have a job: the agent watches them. Without launch tokens"`
	Ended  []string `json:"ended" nullable:"false" doc:"IDs of the warm steps that get no job: the agent stops them"`
}

// AwaitRequest waits for the job of a warm step. A repeated request with the same StepID
// gets the same answer; another StepID is refused.
type AwaitRequest struct {
	StepID      string       `json:"step_id" minLength:"8" maxLength:"64"`
	WaitSeconds int          `json:"wait_seconds" minimum:"0" maximum:"20"`
	AWSIAM      *AWSIAMProof `json:"aws_iam,omitempty" doc:"Proof of the AWS role that the warm token is bound to, as for a start. Only the first request of a step needs it"`
}

// ReleaseRequest returns a claimed job to the queue. The agent must not have started a
// step for the job.
type ReleaseRequest struct {
	Epoch int64 `json:"epoch" minimum:"0"`
}

// DiedRequest reports a step that ended without a report of its own.
type DiedRequest struct {
	Epoch    int64     `json:"epoch" minimum:"0"`
	ExitCode *int      `json:"exit_code,omitempty" doc:"Absent if the agent could not see it"`
	Signal   string    `json:"signal,omitempty" maxLength:"64" example:"killed"`
	Reason   string    `json:"reason" form:"cause"`
	Message  string    `json:"message,omitempty" doc:"The end of the step's output, without secrets"`
	Salvaged *Salvaged `json:"salvaged,omitempty" doc:"File in which the runner keeps a state that the tool could not save"`
	DiskFull bool      `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
	Log      *WholeLog `json:"log,omitempty" doc:"Present if the log is complete; without it the control plane marks the log as truncated"`
}

// Salvaged is the file in which a runner keeps a state that the job's tool could not
// save.
type Salvaged struct {
	Path  string `json:"path" maxLength:"200" pattern:"^salvage/[A-Za-z0-9_-]+/errored\\.tfstate$" doc:"Path of the file below the runner's data folder"`
	Whole bool   `json:"whole" doc:"Whether the file is one JSON value. If not, a part of the state is missing, and the file must not replace the stored state"`
}

// WholeLog describes a complete log.
type WholeLog struct {
	Size  int64  `json:"size" minimum:"0"`
	CRC32 uint32 `json:"crc32" doc:"IEEE, over all bytes"`
}

// StartRequest exchanges the launch token for the job's spec. A repeated request
// with the same StepID gets the same answer; another StepID is refused.
type StartRequest struct {
	StepID string       `json:"step_id" minLength:"8" maxLength:"64"`
	AWSIAM *AWSIAMProof `json:"aws_iam,omitempty" doc:"Proof of the AWS role that the launch token is bound to. It signs the statement of a start, and the token's digest as nonce"`
	// Fields are the optional fields of a job spec that the step knows. The client
	// sends them in HeaderSpecFields. A control plane of an older release ignores this
	// header.
	Fields []string `json:"-"`
}

// AwaitStatement is the text that a step signs when it proves the role of its warm token.
func AwaitStatement(warmStep, stepID string) []byte {
	return []byte("fairlead-await-v1\n" + warmStep + "\n" + stepID + "\n")
}

// StartStatement is the text that a step signs when it proves the role of its launch token.
func StartStatement(job, stepID string) []byte {
	return []byte("fairlead-start-v1\n" + job + "\n" + stepID + "\n")
}

// LogBulk is the size in bytes from which a piece of a log is large: it waits for LogBulkMS of Started and Lease.
const LogBulk = 8 << 10

// Started holds the signed spec and the lease.
type Started struct {
	Envelope     json.RawMessage   `json:"envelope" doc:"DSSE envelope around the job spec"`
	KeySets      []json.RawMessage `json:"key_sets,omitempty" doc:"DSSE envelopes around the changes of the keys that verify the job spec; absent: the keys never changed, or the step does not follow changes"`
	LeaseToken   string            `json:"lease_token"`
	StateToken   string            `json:"state_token,omitempty" doc:"The password with which the tool reads, locks and writes its state. It is valid for nothing else; absent from an older control plane, which accepts only the lease token"`
	RenewSeconds int               `json:"renew_seconds" doc:"How often to renew the lease"`
	LogEveryMS   int               `json:"log_every_ms,omitempty" minimum:"0" doc:"How long the step may keep bytes of its log before it sends them; absent: the step's default"`
	LogBulkMS    int               `json:"log_bulk_ms,omitempty" minimum:"0" doc:"How long the step may keep more than 8 KiB of its log before it sends them; absent: as log_every_ms"`
	MaxBody      int64             `json:"max_body,omitempty" minimum:"0" doc:"The largest body of a request, in bytes, that the control plane's front end accepts. The step sends a larger body in parts; absent: it accepts every body"`
	LogTailBytes int               `json:"log_tail_bytes,omitempty" minimum:"0" doc:"How many of the last bytes of the log the report of the job may bring; absent: none, the step sends the whole log first"`
	Log          *LogAccess        `json:"log,omitempty" doc:"Access to the log without the API; absent if the control plane offers none"`
	Cancel       *CancelMarker     `json:"cancel,omitempty" doc:"Where the step looks for a cancelation between two renewals; absent if the answer to a renewal waits for one"`
}

// CancelMarker is the place of an item in DynamoDB that exists when the attempt may be canceled.
// A step that finds it renews its lease at once. The credentials of LogAccess may read this item.
type CancelMarker struct {
	URL   string `json:"url" doc:"Endpoint of DynamoDB"`
	Table string `json:"table"`
	Key   string `json:"key" doc:"Value of the attribute attempt, the partition key"`
}

// WarmMarker is the place of the marker of a warm step, with credentials that read only this marker.
// A step that finds it asks for its job at once.
type WarmMarker struct {
	CloudAccess
	Marker CancelMarker `json:"marker"`
}

// JobHeartbeat renews the lease. The answer comes after WaitSeconds, or as soon as
// the job is canceled. With WaitSeconds 0 the answer comes at once.
type JobHeartbeat struct {
	WaitSeconds     int `json:"wait_seconds" minimum:"0" maximum:"20"`
	NoOutputSeconds int `json:"silent_seconds,omitempty" minimum:"0" doc:"For how long the job's tool has written no output; absent if no tool runs"`
}

// Lease is the state of a lease after a heartbeat.
type Lease struct {
	Cancel       bool      `json:"cancel" doc:"The step must interrupt the tool, save its state and log, and finish as canceled"`
	CancelReason string    `json:"cancel_reason,omitempty"`
	ExpiresAt    time.Time `json:"expires_at"`
	RenewSeconds int       `json:"renew_seconds"`
	LogEveryMS   int       `json:"log_every_ms,omitempty" minimum:"0" doc:"How long the step may keep bytes of its log before it sends them, from now on: shorter while a reader follows the log; absent: the step's default"`
	LogBulkMS    int       `json:"log_bulk_ms,omitempty" minimum:"0" doc:"How long the step may keep more than 8 KiB of its log before it sends them, from now on; absent: as log_every_ms"`
	LogCut       bool      `json:"log_cut,omitempty" doc:"The runner has used up its budget of log bytes: the step sends no more of its log, and the job goes on"`
}

// LogAppended is the answer to an append. An append at a wrong offset gets status
// 409 with the expected offset in the detail "want".
type LogAppended struct {
	Next int64 `json:"next"`
}

// LogEnd describes the whole log, as its writer counted it.
type LogEnd struct {
	Size      int64  `json:"size" minimum:"0"`
	CRC32     uint32 `json:"crc32" doc:"IEEE, over all bytes"`
	Truncated bool   `json:"truncated,omitempty"`
}

// MaxLogTail is the largest LogTail, in bytes. Most jobs print less, so their step needs no request for the log alone.
const MaxLogTail = 32 << 10

// LogTail is the last bytes of a log, from an offset to its end.
type LogTail struct {
	Offset int64  `json:"offset" minimum:"0"`
	Data   []byte `json:"data" maxLength:"43692" doc:"At most 32 KiB; base64"`
}

// FinishRequest reports how a job ended. The control plane accepts one report for each
// epoch. A repeated request changes nothing.
type FinishRequest struct {
	Outcome  string                `json:"outcome" enum:"succeeded,failed,canceled"`
	Reason   string                `json:"reason,omitempty" maxLength:"100" doc:"Typed reason if the job did not succeed"`
	Message  string                `json:"message,omitempty"`
	ExitCode *int                  `json:"exit_code,omitempty" doc:"Exit code of the tool"`
	Plan     *Plan                 `json:"plan,omitempty"`
	Built    *Built                `json:"built,omitempty" doc:"Of a build that succeeded"`
	Outputs  map[string]FullOutput `json:"outputs,omitempty" doc:"All outputs in the state after the job"`
	Key      string                `json:"install_key,omitempty" maxLength:"100" doc:"The public key with which the step encrypts secrets of the install; absent: the runner has no seed"`
	Moved    map[string]Moved      `json:"moved,omitempty" doc:"Secrets of the install that the control plane sealed and the step has encrypted, by place"`
	Log      LogEnd                `json:"log"`
	LogTail  *LogTail              `json:"log_tail,omitempty" doc:"The end of the log, if the step has not sent it before; log counts it too"`
	Mutated  bool                  `json:"mutated,omitempty" doc:"The tool has started to change resources"`
	Salvaged *Salvaged             `json:"salvaged,omitempty" doc:"File in which the runner keeps a state that the tool could not save"`
	DiskFull bool                  `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
}

// Built is the result of a build.
type Built struct {
	Artifact string `json:"artifact" form:"digest" doc:"Digest of the artifact that the build pushed"`
	Revision string `json:"revision" maxLength:"80" doc:"Commit that was built, or digest of the archive of the chart or module"`
	// Statement is bytes and not JSON, because a signature covers each byte.
	Statement []byte `json:"statement,omitempty" maxLength:"22000" doc:"The in-toto statement of the build, with the provenance of SLSA; base64"`
}

// SignedProvenance is the statement about a build with the control plane's signature.
type SignedProvenance struct {
	Envelope []byte `json:"envelope" doc:"The DSSE envelope of the statement, as JSON; base64"`
}

// Moved is a secret that replaces one that the control plane sealed.
type Moved struct {
	Encrypted
	Of string `json:"of" maxLength:"100" doc:"Which sealed value it replaces, as the values of the job name it"`
}

// FullOutput is an output with its value, sensitive or not.
type FullOutput struct {
	Value     json.RawMessage `json:"value,omitempty" doc:"Absent if the value is encrypted"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Encrypted *Encrypted      `json:"encrypted,omitempty" doc:"The value of a sensitive output, if the runner has a seed of install keys; absent: the control plane seals the value itself"`
}

// Encrypted is a value that was encrypted with the key of the install. The control plane stores it and cannot open it.
type Encrypted struct {
	Bytes       []byte `json:"bytes" doc:"The encrypted value, base64"`
	Type        string `json:"type" maxLength:"200" doc:"Type of the value, such as list(string)" example:"string"`
	Size        int    `json:"size" minimum:"0" doc:"Size of its JSON, in bytes"`
	Fingerprint string `json:"fingerprint,omitempty" maxLength:"200" doc:"Equal for equal values of one place, under a key that only the customer's side has; absent if a person encrypted the value"`
}
