package wire

import (
	"slices"
	"strings"
	"time"
)

// The routes of a customer's runner stack.
var (
	PutStack = Route{"put-stack", "PUT", "/v1/installs/{install}/stack"}
	GetStack = Route{"get-stack", "GET", "/v1/installs/{install}/stack"}

	ListStacks = Route{"list-stacks", "GET", "/v1/stacks"}
	CheckStack = Route{"check-stack", "POST", "/v1/stacks/checks"}
)

// The parameters of the runner stack's template that the control plane sets. A
// customer does not change them. None is a secret.
const (
	StackControlPlaneURL = "ControlPlaneUrl"
	StackInstallID       = "InstallId"
	StackRunnerID        = "RunnerId"
	StackExternalID      = "ExternalId"
	StackTrustedKeys     = "TrustedKeys"
	StackRunnerImage     = "RunnerImage"
)

// Parameters that the control plane sets only if an earlier stack of the install left
// its states in the account.
const (
	StackExistingBucket = "ExistingStateBucket"
	StackExistingKey    = "ExistingStateKey"
)

// StackJobSecrets is the parameter with the customer's secrets for jobs. The link has their
// names if the app declares some, and the customer adds the ARNs.
const StackJobSecrets = "JobSecrets"

// MaxStackSecrets is the number of secrets that StackJobSecrets can hold.
const MaxStackSecrets = 8

// StackScriptImages is the parameter with the images in which scripts of the app run. The control plane sets it if it knows
// at most MaxScriptImages of them, which is how many the parameter can hold.
const (
	StackScriptImages = "ScriptImages"
	MaxScriptImages   = 4
)

// StackAppActions is the parameter with the IAM actions that the app may use. The control
// plane sets it only if the app declares them. The customer may change it.
const StackAppActions = "AppActions"

// StackAppUses is the parameter that describes StackAppActions in sentences, for the person who
// creates the stack. It grants nothing. MaxStackParameter is how many bytes a parameter holds.
const (
	StackAppUses      = "AppUses"
	MaxStackParameter = 4096
)

// StackOperationActions returns the name of the parameter with those of AppActions that an
// operation has, such as ProvisionActions.
func StackOperationActions(operation string) string {
	return strings.ToUpper(operation[:1]) + operation[1:] + "Actions"
}

// PutStackRequest prepares an install for a runner stack in a customer's account.
type PutStackRequest struct {
	Account string `json:"account" minLength:"12" maxLength:"12" form:"aws-account" doc:"The customer's AWS account"`
	Region  string `json:"region,omitempty" maxLength:"40" doc:"AWS region that the link opens; if absent, the customer's console chooses one"`
	Replace bool   `json:"replace,omitempty" doc:"The old stack was deleted or will be replaced: from now on the control plane refuses its runner"`
}

// CheckStackRequest asks whether a stack could be prepared, before its runner and install exist.
type CheckStackRequest struct {
	Account string `json:"account" minLength:"12" maxLength:"12" form:"aws-account" doc:"The customer's AWS account"`
	Region  string `json:"region,omitempty" maxLength:"40" doc:"AWS region of the stack; if absent, the customer's console chooses one"`
}

// Stack is a customer's runner stack: what the customer needs to install it, and
// the last report of its runner.
type Stack struct {
	Actors
	Install    string     `json:"install"`
	InstallID  string     `json:"install_id"`
	Runner     string     `json:"runner"`
	Account    string     `json:"account"`
	Region     string     `json:"region,omitempty"`
	State      string     `json:"state" enum:"waiting,expired,online,stopped,lost"`
	Since      *time.Time `json:"since,omitempty" doc:"Last contact; absent while it is online"`
	WaitsUntil *time.Time `json:"waits_until,omitempty" doc:"Until when the control plane accepts the first runner of the stack"`
	ExternalID string     `json:"external_id" doc:"External ID with which the runner assumes the roles of the stack; not a secret"`

	StackName      string           `json:"stack_name" doc:"Proposed name of the stack"`
	TemplateURL    string           `json:"template_url"`
	QuickCreateURL string           `json:"quick_create_url" doc:"Opens the customer's console with the template and the parameters of a new stack. It takes over the states that the last stack left"`
	Parameters     []StackParameter `json:"parameters" nullable:"false"`

	AppUses []string `json:"app_uses,omitempty" doc:"For the customer, one sentence each: what the app may use in the account with the parameter AppActions; absent if the app declares nothing"`

	CustomerSecrets []CustomerSecret `json:"customer_secrets,omitempty" doc:"Secrets that the app needs from the customer, in the parameter JobSecrets of the stack; on single stacks only"`

	ScriptImages []ScriptImage `json:"script_images,omitempty" doc:"Images in which scripts of the app's newest version run, without those that a component copies. The parameter ScriptImages has them, if there are few enough; on single stacks only"`

	Report     *StackReport  `json:"report,omitempty" doc:"Absent until the first report of its runner"`
	ReportedAt *time.Time    `json:"reported_at,omitempty" doc:"When the report last changed"`
	Changes    []StackChange `json:"changes,omitempty" doc:"Changes of the report, newest first"`

	Running []string `json:"running_jobs,omitempty" doc:"Jobs of the stack's runner at its last heartbeat: the customer waits for them before it deletes the stack"`

	Update *StackUpdate    `json:"update,omitempty" doc:"Absent if the stack has the current template and image, grants what the app declares and uses the states of the install, and before the first report"`
	Left   []StackResource `json:"left,omitempty" doc:"What stays in the customer's account when the stack is deleted, and what replaced stacks left there"`
}

// ScriptImage is an image, by digest, in which the jobs of a component or an action run.
type ScriptImage struct {
	Component string `json:"component" doc:"A component, or actions.NAME"`
	Image     string `json:"image"`
}

// DistinctImages returns the images, each once, in their order.
func DistinctImages(all []ScriptImage) (images []string) {
	for _, i := range all {
		if !slices.Contains(images, i.Image) {
			images = append(images, i.Image)
		}
	}
	return images
}

// CustomerSecret is a secret that the app's newest version needs from the customer. The
// customer gives it to the runner, and the control plane does not know it. A job without it
// does not start.
type CustomerSecret struct {
	Component string `json:"component"`
	Name      string `json:"name" doc:"How the component gets it: var.NAME is a variable of the component, anything else is an environment variable"`
	Entry     string `json:"entry" doc:"Name of its entry in the parameter JobSecrets of the runner's stack, and under secrets of the agent's file and of the values of the runner's chart"`
	New       bool   `json:"new" doc:"Whether no deployed version of the component needs it: the customer may not have given it yet"`

	RunnerKind string `json:"runner_kind,omitempty" doc:"Kind of the runner of the component's jobs, which decides how the customer gives the secret; absent while no runner serves the install"`
}

// StackUpdate is how a customer's stack gets the current template and image.
type StackUpdate struct {
	Version  string         `json:"version" doc:"Current version of the template"`
	Image    string         `json:"image" doc:"Current image: the new value of the parameter RunnerImage"`
	Versions []StackVersion `json:"versions" nullable:"false" doc:"Versions of the template after the one of the stack, oldest first; empty if only the image is older"`
	// StateBucket is set if an earlier stack has the states of the install.
	StateBucket string   `json:"state_bucket,omitempty" doc:"Bucket with the states of the install, which the stack does not use: set the parameters ExistingStateBucket and ExistingStateKey; if the stack has no such parameters, the bucket is in another account or region"`
	Missing     []string `json:"missing_actions,omitempty" doc:"IAM actions that the app declares and the stack does not grant, such as rds:Describe*, or rds:Describe* for deploy if only this operation lacks it: set the parameter AppActions, or that of the operation"`
	URL         string   `json:"url" doc:"Opens the customer's console to update the stack with the current template"`
}

// StackVersion is a version of the template.
type StackVersion struct {
	Version string   `json:"version"`
	Changes []string `json:"changes" nullable:"false" doc:"For people, one sentence each"`
}

// StackResource is a resource that outlives its stack.
type StackResource struct {
	Stack    string `json:"stack" doc:"ARN of the CloudFormation stack"`
	Type     string `json:"type" enum:"s3-bucket,kms-key,iam-policy,iam-roles"`
	ID       string `json:"id" doc:"Name of a bucket, path of roles, otherwise an ARN"`
	Own      bool   `json:"own" doc:"Whether a stack of the install made it. Do not remove a bucket or a key that none made: it may be the customer's own, for other data too"`
	Replaced bool   `json:"replaced" doc:"Whether its stack was replaced, and the current stack does not use the resource"`
}

// StackParameter is a parameter of the template with its value.
type StackParameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// StackChange is a difference between two reports.
type StackChange struct {
	At   time.Time `json:"at"`
	What []string  `json:"what" nullable:"false"`
}

// StackReport lists what a stack has created. The stack's runner reports it.
type StackReport struct {
	StackID     string            `json:"stack_id" maxLength:"2048" doc:"ARN of the CloudFormation stack"`
	Version     string            `json:"version" maxLength:"40" doc:"Version of the template"`
	Region      string            `json:"region" maxLength:"40"`
	Image       string            `json:"image,omitempty" maxLength:"2048" doc:"Image that the runner runs"`
	StateBucket string            `json:"state_bucket" maxLength:"2048"`
	StateKey    string            `json:"state_key" maxLength:"2048"`
	Made        []string          `json:"made,omitempty" maxItems:"2" doc:"Which of the state bucket and its key the stack made: bucket, key. The others existed before"`
	Images      string            `json:"images" maxLength:"2048"`
	Artifacts   string            `json:"artifacts" maxLength:"2048"`
	Boundary    string            `json:"boundary" maxLength:"2048"`
	AppActions  []string          `json:"app_actions,omitempty" maxItems:"400" doc:"IAM actions that the stack grants to the app; absent if the template is older and does not report them"`
	Roles       map[string]string `json:"roles" doc:"ARNs by operation"`

	OperationActions map[string][]string `json:"operation_actions,omitempty" doc:"IAM actions by operation, of those in app_actions; an operation without an entry has all of them"`
}

// SessionStack is the report of a runner about its own stack. The runner sends it
// with each session; the first one tells the control plane that the stack exists.
type SessionStack struct {
	InstallID  string `json:"install_id" maxLength:"64"`
	ExternalID string `json:"external_id" maxLength:"256"`
	StackReport
}
