package wire

import "time"

// The routes of a customer's runner stack.
var (
	PutStack = Route{"put-stack", "PUT", "/v1/installs/{install}/stack"}
	GetStack = Route{"get-stack", "GET", "/v1/installs/{install}/stack"}
)

// The parameters of the runner stack's template that the control plane gives.
// A customer takes them as they are; none is a secret.
const (
	StackControlPlaneURL = "ControlPlaneUrl"
	StackInstallID       = "InstallId"
	StackRunnerID        = "RunnerId"
	StackExternalID      = "ExternalId"
	StackTrustedKeys     = "TrustedKeys"
	StackRunnerImage     = "RunnerImage"
)

// PutStackRequest readies an install for a runner stack in a customer's account.
type PutStackRequest struct {
	Account string `json:"account" minLength:"12" maxLength:"12" form:"aws-account" doc:"The customer's AWS account"`
	Region  string `json:"region,omitempty" maxLength:"40" doc:"Region that the link opens; without it the customer's console chooses"`
	Replace bool   `json:"replace,omitempty" doc:"The stack that was installed is gone, or is to be replaced: its runner is refused from then on"`
}

// Stack is a customer's runner stack: what the customer needs to install it,
// and what its runner has reported.
type Stack struct {
	Install    string     `json:"install"`
	InstallID  string     `json:"install_id"`
	Runner     string     `json:"runner"`
	Account    string     `json:"account"`
	Region     string     `json:"region,omitempty"`
	State      string     `json:"state" enum:"waiting,expired,online,stopped,lost"`
	Since      *time.Time `json:"since,omitempty" doc:"The last that was heard, unless it is online"`
	WaitsUntil *time.Time `json:"waits_until,omitempty" doc:"Until when the first runner of the stack is taken"`
	ExternalID string     `json:"external_id" doc:"With which the runner takes the roles of the stack; no secret"`

	StackName      string           `json:"stack_name" doc:"Proposed"`
	TemplateURL    string           `json:"template_url"`
	QuickCreateURL string           `json:"quick_create_url" doc:"Opens the customer's console with the template and the parameters"`
	Parameters     []StackParameter `json:"parameters" nullable:"false"`

	Report     *StackReport  `json:"report,omitempty" doc:"Absent until its runner has phoned home"`
	ReportedAt *time.Time    `json:"reported_at,omitempty" doc:"When it last said something new"`
	Changes    []StackChange `json:"changes,omitempty" doc:"Of the report, newest first"`
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

// StackReport is what a stack has made, as its runner tells it.
type StackReport struct {
	StackID     string            `json:"stack_id" maxLength:"2048" doc:"ARN of the CloudFormation stack"`
	Version     string            `json:"version" maxLength:"40" doc:"Of the template"`
	Region      string            `json:"region" maxLength:"40"`
	Image       string            `json:"image,omitempty" maxLength:"2048" doc:"That the runner was started from"`
	StateBucket string            `json:"state_bucket" maxLength:"2048"`
	StateKey    string            `json:"state_key" maxLength:"2048"`
	Images      string            `json:"images" maxLength:"2048"`
	Artifacts   string            `json:"artifacts" maxLength:"2048"`
	Boundary    string            `json:"boundary" maxLength:"2048"`
	Roles       map[string]string `json:"roles" doc:"ARNs by operation"`
}

// SessionStack is what a runner says of the stack that it is in, with each
// session: the first is how the stack phones home.
type SessionStack struct {
	InstallID  string `json:"install_id" maxLength:"64"`
	ExternalID string `json:"external_id" maxLength:"256"`
	StackReport
}
