package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The structs below are the environments of the control plane's functions on AWS and
// of the runner in a customer's stack. The infrastructure code fills the same structs
// that the programs load. So every variable that is set is read, and every variable
// that is read is set. The structs hold no secrets: secrets stay in a key service, and
// a variable names the key.
//
// All names of AWS resources are in the functions' own account and region.

// ControlAPI is the environment of the function that serves the Control API.
type ControlAPI struct {
	URL              string `env:"FAIRLEAD_URL,notEmpty" doc:"public URL of the control plane, without a trailing slash"`
	Table            string `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	LogTable         string `env:"FAIRLEAD_LOG_TABLE,notEmpty" doc:"name of the DynamoDB table from which logs are read"`
	Blobs            string `env:"FAIRLEAD_BLOBS,notEmpty" doc:"name of the S3 bucket for sealed states and plans"`
	LogArchive       string `env:"FAIRLEAD_LOG_ARCHIVE,notEmpty" doc:"name of the S3 bucket for the logs of ended jobs"`
	QueuePrefix      string `env:"FAIRLEAD_QUEUE_PREFIX,notEmpty" doc:"prefix of the names of the runners' SQS queues; the queue's own name follows"`
	LogGroupPrefix   string `env:"FAIRLEAD_LOG_GROUP_PREFIX,notEmpty" doc:"prefix of the names of the installs' log groups; the install's ID follows"`
	LogRetention     int    `env:"FAIRLEAD_LOG_RETENTION_DAYS" envDefault:"30" doc:"days for which CloudWatch Logs keeps the log of a job; the archive keeps it longer"`
	LogSubscriber    string `env:"FAIRLEAD_LOG_SUBSCRIBER,notEmpty" doc:"ARN of the function that each install's log group is subscribed to"`
	ArtifactPrefix   string `env:"FAIRLEAD_ARTIFACT_PREFIX,notEmpty" doc:"prefix of the names of the apps' ECR repositories; the app's ID and the component's name follow"`
	PublisherRole    string `env:"FAIRLEAD_PUBLISHER_ROLE,notEmpty" doc:"ARN of the role that the function assumes for each publication of an app, with the app as session tag"`
	CancelTable      string `env:"FAIRLEAD_CANCEL_TABLE,notEmpty" doc:"name of the DynamoDB table of cancel markers"`
	SealKey          string `env:"FAIRLEAD_SEAL_KEY,notEmpty" doc:"ARN of the KMS key that seals sensitive values"`
	SigningKey       string `env:"FAIRLEAD_SIGNING_KEY,notEmpty" doc:"ARN of the KMS key that signs job specs; its public key goes into the customer's stack"`
	SpareKey         string `env:"FAIRLEAD_SPARE_SIGNING_KEY" doc:"ARN of the KMS key that signs job specs if the signing key is lost; its public key goes into the customer's stack too"`
	TokensKey        string `env:"FAIRLEAD_TOKENS_KEY,notEmpty" doc:"ARN of the KMS HMAC key from which the key of tokens is derived"`
	RunnerImage      string `env:"FAIRLEAD_RUNNER_IMAGE" doc:"runner image, by digest, for new customers' stacks"`
	StackTemplateURL string `env:"FAIRLEAD_STACK_TEMPLATE_URL" doc:"URL of the published template of the customer's runner stack"`
	DirectLaunch     Switch `env:"FAIRLEAD_DIRECT_LAUNCH" envDefault:"off" doc:"on: a service of direct launch runs beside the control plane; off: none does"`
	Quotas           string `env:"FAIRLEAD_QUOTAS" doc:"limits of each org, such as installs=100,runners=50; a missing quota has its default"`
	OrgRate          int    `env:"FAIRLEAD_ORG_REQUESTS_PER_SECOND" envDefault:"200" doc:"requests a second of the people and programs of an org, as a mean of ten seconds over all executions of the function"`
	Version          string `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel         string `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces           string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// SessionAPI is the environment of the function that serves enrolment, challenges and
// sessions of the Runner API.
type SessionAPI struct {
	URL         string   `env:"FAIRLEAD_URL,notEmpty" doc:"public URL of the control plane, without a trailing slash; also the audience of a runner's proof of identity"`
	OtherURLs   []string `env:"FAIRLEAD_OTHER_URLS" doc:"other URLs, separated by commas, under which runners reach the control plane that were installed before it had a host name of its own"`
	Table       string   `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	QueuePrefix string   `env:"FAIRLEAD_QUEUE_PREFIX,notEmpty" doc:"prefix of the names of the runners' SQS queues; the queue's own name follows"`
	SealKey     string   `env:"FAIRLEAD_SEAL_KEY,notEmpty" doc:"ARN of the KMS key that seals sensitive values"`
	SigningKey  string   `env:"FAIRLEAD_SIGNING_KEY,notEmpty" doc:"ARN of the KMS key that signs job specs; the function sends its public key"`
	SpareKey    string   `env:"FAIRLEAD_SPARE_SIGNING_KEY" doc:"ARN of the KMS key that signs job specs if the signing key is lost; runners pin both from the start"`
	TokensKey   string   `env:"FAIRLEAD_TOKENS_KEY,notEmpty" doc:"ARN of the KMS HMAC key from which the key of tokens is derived"`
	SessionRole string   `env:"FAIRLEAD_SESSION_ROLE,notEmpty" doc:"ARN of the role that the function assumes for each runner's session, with the runner, install and app as session tags"`
	Version     string   `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel    string   `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces      string   `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// RunnerAPI is the environment of the function that serves the rest of the Runner API.
type RunnerAPI struct {
	URL            string   `env:"FAIRLEAD_URL,notEmpty" doc:"public URL of the control plane, without a trailing slash"`
	OtherURLs      []string `env:"FAIRLEAD_OTHER_URLS" doc:"other URLs, separated by commas, under which runners reach the control plane that were installed before it had a host name of its own"`
	Table          string   `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	LogTable       string   `env:"FAIRLEAD_LOG_TABLE,notEmpty" doc:"name of the DynamoDB table from which logs are read"`
	Blobs          string   `env:"FAIRLEAD_BLOBS,notEmpty" doc:"name of the S3 bucket for sealed states and plans"`
	QueuePrefix    string   `env:"FAIRLEAD_QUEUE_PREFIX,notEmpty" doc:"prefix of the names of the runners' SQS queues; the queue's own name follows"`
	LogGroupPrefix string   `env:"FAIRLEAD_LOG_GROUP_PREFIX,notEmpty" doc:"prefix of the names of the installs' log groups; the install's ID follows"`
	ArtifactPrefix string   `env:"FAIRLEAD_ARTIFACT_PREFIX,notEmpty" doc:"prefix of the names of the apps' ECR repositories; the app's ID and the component's name follow"`
	SealKey        string   `env:"FAIRLEAD_SEAL_KEY,notEmpty" doc:"ARN of the KMS key that seals sensitive values"`
	SigningKey     string   `env:"FAIRLEAD_SIGNING_KEY,notEmpty" doc:"ARN of the KMS key that signs job specs"`
	TokensKey      string   `env:"FAIRLEAD_TOKENS_KEY,notEmpty" doc:"ARN of the KMS HMAC key from which the key of tokens is derived"`
	CancelTable    string   `env:"FAIRLEAD_CANCEL_TABLE,notEmpty" doc:"name of the DynamoDB table of cancel markers"`
	SessionRole    string   `env:"FAIRLEAD_SESSION_ROLE,notEmpty" doc:"ARN of the role that the function assumes for each attempt, with the runner, install and app as session tags"`
	BuilderRole    string   `env:"FAIRLEAD_BUILDER_ROLE,notEmpty" doc:"ARN of the role that the function assumes for each build of a component, with the app as session tag"`
	ImageProject   string   `env:"FAIRLEAD_IMAGE_PROJECT" doc:"name of the CodeBuild project that builds images; empty: runners build images"`
	ImageBucket    string   `env:"FAIRLEAD_IMAGE_BUCKET" doc:"name of the S3 bucket from which that project gets contexts, and to which it writes images"`
	ImageLogGroup  string   `env:"FAIRLEAD_IMAGE_LOG_GROUP" doc:"log group of that project"`
	LogBurst       int      `env:"FAIRLEAD_LOG_BURST_MIB" envDefault:"1024" doc:"MiB of log that the jobs of one runner may write at once after a pause"`
	LogPerHour     int      `env:"FAIRLEAD_LOG_MIB_PER_HOUR" envDefault:"256" doc:"MiB of log that the jobs of one runner may write in an hour, without end"`
	Version        string   `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel       string   `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces         string   `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// Direct is the environment of the function that gives the service of direct launch what
// its agents need.
type Direct struct {
	Table    string `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	SealKey  string `env:"FAIRLEAD_SEAL_KEY,notEmpty" doc:"ARN of the KMS key that seals sensitive values"`
	Version  string `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel string `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces   string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// Dispatch is the environment of the function that turns the table's stream
// into wake-ups and events.
type Dispatch struct {
	CancelTable string `env:"FAIRLEAD_CANCEL_TABLE,notEmpty" doc:"name of the DynamoDB table of cancel markers"`
	QueuePrefix string `env:"FAIRLEAD_QUEUE_PREFIX,notEmpty" doc:"prefix of the names of the runners' SQS queues; the queue's own name follows"`
	EventBus    string `env:"FAIRLEAD_EVENT_BUS,notEmpty" doc:"name of the EventBridge bus for domain events"`
	Version     string `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel    string `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces      string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// Audit is the environment of the function that appends entries to the audit and signs
// checkpoints.
type Audit struct {
	Table      string `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	SigningKey string `env:"FAIRLEAD_SIGNING_KEY,notEmpty" doc:"ARN of the KMS key that signs job specs"`
	Version    string `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel   string `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces     string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// Sweep is the environment of the function that repairs lost wake-ups and jobs every
// few seconds. A schedule starts the function each minute. Between these starts, the
// function starts itself.
type Sweep struct {
	Table       string          `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	LogTable    string          `env:"FAIRLEAD_LOG_TABLE,notEmpty" doc:"name of the DynamoDB table from which logs are read"`
	Blobs       string          `env:"FAIRLEAD_BLOBS,notEmpty" doc:"name of the S3 bucket for sealed states and plans"`
	QueuePrefix string          `env:"FAIRLEAD_QUEUE_PREFIX,notEmpty" doc:"prefix of the names of the runners' SQS queues; the queue's own name follows"`
	Queue       string          `env:"FAIRLEAD_SWEEP_QUEUE,notEmpty" doc:"URL of the SQS queue that starts the function again"`
	Delays      []time.Duration `env:"FAIRLEAD_SWEEP_DELAYS,notEmpty" doc:"delays after the scheduled start at which the function starts again, separated by commas; whole seconds, at most ten"`
	CancelTable string          `env:"FAIRLEAD_CANCEL_TABLE,notEmpty" doc:"name of the DynamoDB table of cancel markers"`
	SealKey     string          `env:"FAIRLEAD_SEAL_KEY,notEmpty" doc:"ARN of the KMS key that seals sensitive values"`
	Version     string          `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel    string          `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces      string          `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// LogIndex is the environment of the function that fills the index of the logs and
// archives them.
type LogIndex struct {
	Table          string `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	LogTable       string `env:"FAIRLEAD_LOG_TABLE,notEmpty" doc:"name of the DynamoDB table from which logs are read"`
	LogArchive     string `env:"FAIRLEAD_LOG_ARCHIVE,notEmpty" doc:"name of the S3 bucket for the logs of ended jobs"`
	LogGroupPrefix string `env:"FAIRLEAD_LOG_GROUP_PREFIX,notEmpty" doc:"prefix of the names of the installs' log groups; the install's ID follows"`
	LogBurst       int    `env:"FAIRLEAD_LOG_BURST_MIB" envDefault:"1024" doc:"MiB of log that the jobs of one runner may write at once after a pause"`
	LogPerHour     int    `env:"FAIRLEAD_LOG_MIB_PER_HOUR" envDefault:"256" doc:"MiB of log that the jobs of one runner may write in an hour, without end"`
	Version        string `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel       string `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces         string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// Webhook is the environment of the function that delivers events to the
// vendor's endpoints.
type Webhook struct {
	Table    string        `env:"FAIRLEAD_TABLE,notEmpty" doc:"name of the DynamoDB table"`
	Queue    string        `env:"FAIRLEAD_WEBHOOK_QUEUE,notEmpty" doc:"URL of the SQS queue of events for webhooks"`
	SealKey  string        `env:"FAIRLEAD_SEAL_KEY,notEmpty" doc:"ARN of the KMS key that seals the endpoints' secrets"`
	Timeout  time.Duration `env:"FAIRLEAD_WEBHOOK_TIMEOUT" envDefault:"5s" doc:"longest wait for an endpoint's answer"`
	Version  string        `env:"FAIRLEAD_VERSION" envDefault:"unknown" doc:"version of the release; the API reports it, and traces and deliveries of webhooks name it"`
	LogLevel string        `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Traces   string        `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
}

// StackVariable is the variable that is set only in a customer's stack. If a runner
// has it, the runner reads all of RunnerStack.
const StackVariable = "FAIRLEAD_STACK_ID"

// RunnerStack holds the variables that the customer's stack sets in addition to those
// of Runner: the runner's identity, the keys that it trusts, and the resources of the
// stack. The runner reports these resources with its first session, so the stack needs
// no function that reports them.
type RunnerStack struct {
	Install     string `env:"FAIRLEAD_INSTALL,notEmpty" doc:"ID of the install that this runner serves"`
	ExternalID  string `env:"FAIRLEAD_EXTERNAL_ID,notEmpty" doc:"external ID with which the runner assumes the roles of operations; unique to the install, not a secret"`
	TrustedKeys string `env:"FAIRLEAD_TRUSTED_KEYS,notEmpty" doc:"public keys, separated by commas, that verify the signatures of job specs"`

	Image        string `env:"FAIRLEAD_IMAGE" doc:"image of the runner, by digest"`
	StackID      string `env:"FAIRLEAD_STACK_ID,notEmpty" doc:"ARN of the CloudFormation stack"`
	StackVersion string `env:"FAIRLEAD_STACK_VERSION,notEmpty" doc:"version of the stack's template"`

	StateBucket string `env:"FAIRLEAD_STATE_BUCKET,notEmpty" doc:"name of the S3 bucket for Terraform states and saved plans"`
	StateKey    string `env:"FAIRLEAD_STATE_KEY,notEmpty" doc:"ARN of the KMS key that encrypts the state bucket"`
	StatesMade  string `env:"FAIRLEAD_STATES_MADE" doc:"which of them the stack made: bucket,key or bucket; empty: neither. What existed before may be the customer's own"`
	Images      string `env:"FAIRLEAD_IMAGES,notEmpty" doc:"ECR repository for the app's images"`
	Artifacts   string `env:"FAIRLEAD_ARTIFACTS,notEmpty" doc:"ECR repository for the app's other artifacts"`

	RoleProvision   string `env:"FAIRLEAD_ROLE_PROVISION,notEmpty" doc:"ARN of the role for provisioning"`
	RoleDeploy      string `env:"FAIRLEAD_ROLE_DEPLOY,notEmpty" doc:"ARN of the role for deployments"`
	RoleDeprovision string `env:"FAIRLEAD_ROLE_DEPROVISION,notEmpty" doc:"ARN of the role for teardowns"`
	RoleReadOnly    string `env:"FAIRLEAD_ROLE_READ_ONLY,notEmpty" doc:"ARN of the role for plans"`

	StepRoleProvision   string `env:"FAIRLEAD_STEP_ROLE_PROVISION" doc:"ARN of the task role of a step that provisions; the step roles are empty if steps are processes next to the agent"`
	StepRoleDeploy      string `env:"FAIRLEAD_STEP_ROLE_DEPLOY" doc:"ARN of the task role of a step that deploys"`
	StepRoleDeprovision string `env:"FAIRLEAD_STEP_ROLE_DEPROVISION" doc:"ARN of the task role of a step that tears down"`
	StepRoleReadOnly    string `env:"FAIRLEAD_STEP_ROLE_READ_ONLY" doc:"ARN of the task role of a step that plans"`

	AppActions string `env:"FAIRLEAD_APP_ACTIONS" doc:"IAM actions that the stack grants to the app, separated by commas; empty: the template is older and does not name them"`

	OperationActions string `env:"FAIRLEAD_OPERATION_ACTIONS" doc:"those of FAIRLEAD_APP_ACTIONS that one operation has, such as provision=rds:*,ec2:*;deploy=lambda:*; an operation without actions has all"`

	Boundary string `env:"FAIRLEAD_BOUNDARY,notEmpty" doc:"ARN of the permissions boundary for every role that the app creates"`
}

// ActionsByOperation reads OperationActions, such as provision=a:*,b:Get;deploy=. An operation
// without patterns has no entry.
func (s *RunnerStack) ActionsByOperation() map[string][]string {
	out := map[string][]string{}
	for part := range strings.SplitSeq(s.OperationActions, ";") {
		if operation, actions, ok := strings.Cut(part, "="); ok && actions != "" {
			out[operation] = strings.Split(actions, ",")
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Environ returns the environment from which Load would read the struct at cfg, by
// name. An empty variable with the option notEmpty is an error.
func Environ(cfg any) (map[string]string, error) {
	v := reflect.ValueOf(cfg).Elem()
	out := map[string]string{}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("env"), ",")
		if name == "" {
			continue
		}
		text, err := format(v.Field(i).Interface())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if text == "" && strings.Contains(options, "notEmpty") {
			return nil, fmt.Errorf("%s has no value", name)
		}
		out[name] = text
	}
	return out, nil
}

func format(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Duration:
		return v.String(), nil
	case []string:
		return strings.Join(v, ","), nil
	case []time.Duration:
		texts := make([]string, len(v))
		for i, d := range v {
			texts[i] = d.String()
		}
		return strings.Join(texts, ","), nil
	case encoding.TextMarshaler:
		b, err := v.MarshalText()
		return string(b), err
	}
	return "", fmt.Errorf("a value of type %T has no text form", v)
}
