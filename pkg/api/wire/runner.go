package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// The routes of the runner API. Session routes take the session token as a
// bearer; job routes take the lease token, start takes the launch token.
var (
	EnrolRunner      = Route{"enrol-runner", "POST", "/runner/v1/enrol"}
	CreateChallenge  = Route{"create-challenge", "POST", "/runner/v1/challenges"}
	CreateSession    = Route{"create-session", "POST", "/runner/v1/sessions"}
	HeartbeatSession = Route{"heartbeat-session", "POST", "/runner/v1/session/heartbeat"}
	ClaimJob         = Route{"claim-job", "POST", "/runner/v1/claims"}
	ReleaseJob       = Route{"release-job", "POST", "/runner/v1/jobs/{job}/release"}
	RescueJobLog     = Route{"rescue-job-log", "PUT", "/runner/v1/jobs/{job}/rescued-log"}
	ReportDied       = Route{"report-died", "POST", "/runner/v1/jobs/{job}/died"}
	StartJob         = Route{"start-job", "POST", "/runner/v1/jobs/{job}/start"}
	HeartbeatJob     = Route{"heartbeat-job", "POST", "/runner/v1/jobs/{job}/heartbeat"}
	AppendJobLog     = Route{"append-job-log", "PUT", "/runner/v1/jobs/{job}/log"}
	RenewLogAccess   = Route{"renew-log-access", "POST", "/runner/v1/jobs/{job}/log-access"}
	GetPullLogin     = Route{"create-pull-login", "POST", "/runner/v1/jobs/{job}/pull-login"}
	FinishJob        = Route{"finish-job", "POST", "/runner/v1/jobs/{job}/finish"}
	PutPlan          = Route{"put-plan", "PUT", "/runner/v1/jobs/{job}/plan"}
	GetPlan          = Route{"get-plan", "GET", "/runner/v1/jobs/{job}/plan"}
	GetState         = Route{"get-state", "GET", "/runner/v1/state/{install}/{component}"}
	PutState         = Route{"put-state", "POST", "/runner/v1/state/{install}/{component}"}
	DeleteState      = Route{"delete-state", "DELETE", "/runner/v1/state/{install}/{component}"}
	LockState        = Route{"lock-state", "PUT", "/runner/v1/state/{install}/{component}/lock"}
	UnlockStateJob   = Route{"release-state", "DELETE", "/runner/v1/state/{install}/{component}/lock"}
)

// VerificationKey is a public key that job specs are signed with. An agent
// pins those of its enrolment and accepts no other.
type VerificationKey struct {
	ID        string `json:"id"`
	PublicKey []byte `json:"public_key" doc:"Ed25519, 32 bytes, base64"`
}

// EnrolRequest trades a single-use token for an identity: from then on the
// agent proves that it holds the private half of PublicKey.
type EnrolRequest struct {
	Token     string `json:"token" maxLength:"200"`
	PublicKey []byte `json:"public_key" doc:"The agent's Ed25519 key, made by the agent; base64"`
}

// Enrolled is the answer to an enrolment.
type Enrolled struct {
	Runner   string            `json:"runner" doc:"Name of the runner"`
	RunnerID string            `json:"runner_id"`
	Keys     []VerificationKey `json:"keys" nullable:"false"`
	Registry string            `json:"registry"`
}

// What keeps that which an agent's jobs start from the runner's files and
// processes, and from other jobs'.
const (
	IsolationContainer = "container" // each job has one of its own
	IsolationLandlock  = "landlock"  // the Linux kernel's rules for processes
	IsolationNone      = "none"      // nothing does
)

// Challenge is a nonce that a session request signs; it is good once, for a minute.
type Challenge struct {
	Nonce string `json:"nonce"`
}

// SessionRequest proves the agent's identity: either PublicKey and Signature,
// over SessionStatement(Nonce, RunnerID, Instance), or AWSIAM, whose signature
// covers the digest of the same statement, or OIDC with PublicKey and Signature
// over OIDCSigned.
type SessionRequest struct {
	RunnerID  string `json:"runner_id" minLength:"1" maxLength:"64"`
	Nonce     string `json:"nonce" maxLength:"200"`
	Instance  string `json:"instance" maxLength:"200" doc:"The agent's own name for itself"`
	Version   string `json:"version" maxLength:"100"`
	Capacity  int    `json:"capacity" minimum:"0" maximum:"10000" doc:"Jobs it runs at once"`
	PublicKey []byte `json:"public_key,omitempty" doc:"The agent's Ed25519 key; base64"`
	Signature []byte `json:"signature,omitempty" doc:"Ed25519, over the statement; base64"`

	AWSIAM *AWSIAMProof  `json:"aws_iam,omitempty" doc:"Proof of an AWS role, instead of a key"`
	OIDC   *OIDCProof    `json:"oidc,omitempty" doc:"Token of an issuer that the runner trusts, beside a key that need not be enrolled"`
	Stack  *SessionStack `json:"stack,omitempty" doc:"Of a runner in a customer's stack: what the stack has made"`
}

// AWSIAMProof is what the control plane does not know of the GetCallerIdentity
// request that the agent has signed with its role's credentials: it writes the
// rest down itself, with the nonce, its own host and the statement's digest as
// signed headers, and sends it to STS.
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

// OIDCProof is a token that the agent's platform has given it.
type OIDCProof struct {
	Token string `json:"token" maxLength:"12288" doc:"A signed JWT in compact form"`
}

// OIDCStatement is what an agent with an OIDC token asks for. host is that of
// the control plane as the agent knows it (with the port, unless it is the
// scheme's own), so that nobody who poses as us can pass it on.
func OIDCStatement(nonce, runnerID, host string, publicKey []byte, instance string) []byte {
	return []byte("fairlead-oidc-session-v1\n" + nonce + "\n" + runnerID + "\n" + host + "\n" +
		base64.StdEncoding.EncodeToString(publicKey) + "\n" + instance + "\n")
}

// OIDCBinding is the digest of a statement, in base64url.
func OIDCBinding(statement []byte) string {
	sum := sha256.Sum256(statement)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// OIDCAudience is the audience of a token that is good for one request alone:
// the issuer itself has signed who asks, whom, and for what.
func OIDCAudience(audience, binding string) string { return audience + "#" + binding }

// OIDCSigned is what the agent signs with its key: the statement and the token.
func OIDCSigned(statement []byte, token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return append(slices.Clone(statement), hex.EncodeToString(sum[:])+"\n"...)
}

// Session is a short-lived right to claim the jobs of one runner.
type Session struct {
	ID        string    `json:"id"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at" doc:"Ask for a new session before it"`
	Registry  string    `json:"registry"`

	Queue *QueueAccess `json:"queue,omitempty" doc:"The runner's queue, to be polled without the API; absent where there is no such way"`

	Configuration *AgentConfiguration `json:"configuration,omitempty" doc:"How the runner's jobs are to be started; absent of a runner that was made without a configuration, and not updated since"`
}

// AgentConfiguration is what a runner's configuration says to its agents. It
// refers to secrets and holds none: what is secret in it is masked.
type AgentConfiguration struct {
	Revision string          `json:"revision" doc:"Another whenever the configuration is another"`
	Runner   json.RawMessage `json:"runner_configuration" doc:"As in docs/reference/runner-file.md"`
}

// CloudAccess is credentials of the control plane's AWS account, for one thing
// and for a short time.
type CloudAccess struct {
	Region          string    `json:"region"`
	AccessKeyID     string    `json:"access_key_id"`
	SecretAccessKey string    `json:"secret_access_key"`
	SessionToken    string    `json:"session_token"`
	ExpiresAt       time.Time `json:"expires_at"`
}

// QueueAccess is a way to a runner's SQS queue. A message is a wake-up: it names
// a job, which is then claimed by name.
type QueueAccess struct {
	CloudAccess
	Prefix string `json:"prefix" doc:"Beginning of the queue's name in SQS"`
	Name   string `json:"name" doc:"The queue's name after that"`
}

// LogAccess is a way to the log of one attempt of a job, in CloudWatch Logs.
type LogAccess struct {
	CloudAccess
	Group string `json:"group" doc:"The log group"`
}

// SessionHeartbeat says how the agent is.
type SessionHeartbeat struct {
	Capacity int      `json:"capacity" minimum:"0" maximum:"10000"`
	Running  []string `json:"running" maxItems:"1000" nullable:"false" doc:"Jobs whose steps are alive, each of at most 64 bytes"`
	Draining bool     `json:"draining"`
	Ending   bool     `json:"ending" doc:"The agent stops now"`

	Customer *CustomerMode `json:"customer,omitempty" doc:"What keeps the agent from working; absent if it may"`

	Configuration string `json:"configuration,omitempty" maxLength:"64" doc:"Revision of the configuration that the agent was told last"`
	Unhealthy     string `json:"unhealthy,omitempty" maxLength:"4000" doc:"What keeps the agent from starting jobs; absent if it knows of nothing"`
	Isolation     string `json:"isolation,omitempty" enum:"landlock,container,none" doc:"What keeps that which jobs start from the runner's files and processes, and from other jobs'; absent if no job can be started"`
}

// CustomerMode is the mode that the customer has set where the agent runs.
type CustomerMode struct {
	Mode   string     `json:"mode" enum:"paused,draining,disabled" doc:"paused and draining: it begins nothing; disabled: it has also interrupted what ran"`
	Since  *time.Time `json:"since,omitempty" doc:"Absent where nobody knows, as of the agent's environment"`
	Reason string     `json:"reason,omitempty" maxLength:"800" doc:"As the customer wrote it"`
}

// SessionStatus is the answer to a session heartbeat.
type SessionStatus struct {
	HeartbeatSeconds int `json:"heartbeat_seconds" doc:"When to send the next"`

	Configuration *AgentConfiguration `json:"configuration,omitempty" doc:"To be followed for the jobs to come; absent if the agent has it"`
	Wanted        *WantedVersion      `json:"wanted,omitempty" doc:"The version that the agent is to run; absent if any will do"`
	Situations    []Situation         `json:"situations,omitempty" doc:"What the agent's operator is to know; with the first heartbeat of a session only, and with one that says another isolation"`
}

// WantedVersion is the version that a runner's agents are to run.
type WantedVersion struct {
	Version string `json:"version"`
	Image   string `json:"image,omitempty" doc:"The runner's image of that version, by digest"`
	Channel string `json:"channel,omitempty" doc:"The update channel that says it; absent where the runner's configuration does"`
}

// ClaimRequest asks for a job and waits for one.
type ClaimRequest struct {
	WaitSeconds int    `json:"wait_seconds" minimum:"0" maximum:"20"`
	Job         string `json:"job,omitempty" maxLength:"64" doc:"This job alone, of which the agent has the wake-up; it is not waited for"`
}

// Claim is a job that is now leased to the session. 204 means there was none.
type Claim struct {
	Job          string    `json:"job"`
	Epoch        int64     `json:"epoch"`
	Operation    string    `json:"operation"`
	Plugin       string    `json:"plugin"`
	Install      string    `json:"install,omitempty"`
	InstallID    string    `json:"install_id,omitempty" doc:"With component it names the folder in which the step works"`
	Component    string    `json:"component,omitempty"`
	PlanJob      string    `json:"plan_job,omitempty" doc:"The job whose saved plan is carried out"`
	LaunchToken  string    `json:"launch_token" doc:"Good once, for this epoch"`
	StartBefore  time.Time `json:"start_before" doc:"A step that has not started by then has lost its lease"`
	GraceSeconds int       `json:"grace_seconds" doc:"How long an interrupted tool may take to save its state"`
}

// ReleaseRequest gives a claimed job back that was never launched.
type ReleaseRequest struct {
	Epoch int64 `json:"epoch" minimum:"0"`
}

// DiedRequest reports a step that is gone without having finished its job.
type DiedRequest struct {
	Epoch    int64     `json:"epoch" minimum:"0"`
	ExitCode *int      `json:"exit_code,omitempty" doc:"Absent when nobody could see it"`
	Signal   string    `json:"signal,omitempty" maxLength:"64" example:"killed"`
	Reason   string    `json:"reason" form:"cause"`
	Message  string    `json:"message,omitempty" doc:"The last of what the step said, without secrets"`
	Salvaged *Salvaged `json:"salvaged,omitempty" doc:"What the runner keeps of a state that the tool could not save"`
	DiskFull bool      `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
	Log      *WholeLog `json:"log,omitempty" doc:"Given when nothing is missing of the log; without it the log is marked as truncated"`
}

// Salvaged is what a runner keeps of a state that the job's tool could not save.
type Salvaged struct {
	Path  string `json:"path" maxLength:"200" pattern:"^salvage/[A-Za-z0-9_-]+/errored\\.tfstate$" doc:"Of the file, below the runner's data folder"`
	Whole bool   `json:"whole" doc:"The file is one JSON value; else a part of the state is missing, and it must not take the state's place"`
}

// WholeLog describes a log of which nothing is missing.
type WholeLog struct {
	Size  int64  `json:"size" minimum:"0"`
	CRC32 uint32 `json:"crc32" doc:"IEEE, over all bytes"`
}

// StartRequest trades the launch token for the job's spec. Repeating it with
// the same StepID repeats the answer; another StepID is refused.
type StartRequest struct {
	StepID string `json:"step_id" minLength:"8" maxLength:"64"`
	// Fields are the optional fields of a job spec that the step knows. They travel
	// in HeaderSpecFields, which a control plane that knows none ignores.
	Fields []string `json:"-"`
}

// Started holds the signed spec and the lease.
type Started struct {
	Envelope     json.RawMessage `json:"envelope" doc:"DSSE envelope around the job spec"`
	LeaseToken   string          `json:"lease_token"`
	RenewSeconds int             `json:"renew_seconds" doc:"How often to renew the lease"`
	Log          *LogAccess      `json:"log,omitempty" doc:"Where to write the log without the API; absent where there is no such way"`
}

// JobHeartbeat renews the lease. The answer comes at once, or as soon as the
// job is canceled, or after WaitSeconds.
type JobHeartbeat struct {
	WaitSeconds     int `json:"wait_seconds" minimum:"0" maximum:"20"`
	NoOutputSeconds int `json:"silent_seconds,omitempty" minimum:"0" doc:"How long the job's tool has written nothing; absent where none is at work"`
}

// Lease is the state of a lease after a heartbeat.
type Lease struct {
	Cancel       bool      `json:"cancel" doc:"Interrupt the tool, save what there is, and finish as canceled"`
	CancelReason string    `json:"cancel_reason,omitempty"`
	ExpiresAt    time.Time `json:"expires_at"`
	RenewSeconds int       `json:"renew_seconds"`
}

// LogAppended is the answer to an append. An append at a wrong offset is a 409
// whose details hold "want".
type LogAppended struct {
	Next int64 `json:"next"`
}

// LogEnd describes the whole log as its writer knows it.
type LogEnd struct {
	Size      int64  `json:"size" minimum:"0"`
	CRC32     uint32 `json:"crc32" doc:"IEEE, over all bytes"`
	Truncated bool   `json:"truncated,omitempty"`
}

// FinishRequest reports how a job ended. It is accepted once for an epoch;
// repeating it is harmless.
type FinishRequest struct {
	Outcome  string                `json:"outcome" enum:"succeeded,failed,canceled"`
	Reason   string                `json:"reason,omitempty" maxLength:"100" doc:"Typed reason when it did not succeed"`
	Message  string                `json:"message,omitempty"`
	ExitCode *int                  `json:"exit_code,omitempty" doc:"The tool's"`
	Plan     *Plan                 `json:"plan,omitempty"`
	Outputs  map[string]FullOutput `json:"outputs,omitempty" doc:"All outputs in the state after the job"`
	Log      LogEnd                `json:"log"`
	Mutated  bool                  `json:"mutated,omitempty" doc:"The tool began to change something"`
	Salvaged *Salvaged             `json:"salvaged,omitempty" doc:"What the runner keeps of a state that the tool could not save"`
	DiskFull bool                  `json:"disk_full,omitempty" doc:"A disk of the runner had no space left"`
}

// FullOutput is an output with its value, sensitive or not.
type FullOutput struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive,omitempty"`
}
