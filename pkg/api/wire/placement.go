package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about placement: which runner serves an install,
// the rules and groups, and the variables that are set on them.
var (
	ExplainPlacement = Route{"explain-placement", "GET", "/v1/installs/{install}/placement"}
	RefreshRunner    = Route{"refresh-runner", "POST", "/v1/installs/{install}/refresh-runner"}
	MigrateState     = Route{"migrate-state", "POST", "/v1/installs/{install}/migrate-state"}
	CreateRunnerRule = Route{"create-runner-rule", "POST", "/v1/runner-rules"}
	ListRunnerRules  = Route{"list-runner-rules", "GET", "/v1/runner-rules"}
	DeleteRunnerRule = Route{"delete-runner-rule", "DELETE", "/v1/runner-rules/{rule}"}
	CreateGroup      = Route{"create-group", "POST", "/v1/groups"}
	ListGroups       = Route{"list-groups", "GET", "/v1/groups"}
	GetGroup         = Route{"get-group", "GET", "/v1/group"}
	UpdateGroup      = Route{"update-group", "PATCH", "/v1/group"}
	DeleteGroup      = Route{"delete-group", "DELETE", "/v1/group"}
	GetVariables     = Route{"get-variables", "GET", "/v1/variables"}
	SetVariables     = Route{"set-variables", "PATCH", "/v1/variables"}
)

// RunnerConfigurationInput is the configuration of a runner or a part of it: as
// JSON or as the text of a file, with single fields on top.
type RunnerConfigurationInput struct {
	Config json.RawMessage `json:"config,omitempty" doc:"The configuration as an object"`
	Text   string          `json:"text,omitempty" maxLength:"262144" doc:"Instead of config: the text of a YAML or JSON file; error messages then give line and column"`
	File   string          `json:"file,omitempty" maxLength:"200" doc:"Name of the file, for messages"`
	Set    []string        `json:"set,omitempty" maxItems:"100" doc:"Single fields on top: path=value, with the value as YAML on one line"`
}

// UpdateRunnerRequest changes a runner's configuration. Maps are merged at every
// depth, lists and scalars are replaced, and null removes a field. If the request has
// "(masked)" for a secret, the secret keeps its stored value.
type UpdateRunnerRequest struct{ RunnerConfigurationInput }

// RunnerMode is the mode of a runner: whether it takes new jobs.
type RunnerMode struct {
	Mode string `json:"mode" enum:"enabled,paused,draining,disabled"`
}

// Placement is the runner that the current rules choose for an install, with all
// candidates and why each was not chosen.
type Placement struct {
	Install string   `json:"install"`
	Runner  string   `json:"runner,omitempty" doc:"Name of the runner that the rules choose; absent if they choose none"`
	Level   string   `json:"level" enum:"none,own,rule,group,ancestor,shared" doc:"Level that decided"`
	Rule    string   `json:"rule,omitempty" doc:"ID of the rule that decided"`
	Refused *Refusal `json:"refused,omitempty" doc:"Why the control plane would still refuse a deployment"`
	Bound   string   `json:"bound,omitempty" doc:"Name of the runner that the install is bound to"`
	Mode    string   `json:"mode,omitempty" enum:"enabled,paused,draining,disabled" doc:"The mode that the vendor set for the runner of the install's jobs: the bound runner, otherwise the chosen one"`

	Customer *CustomerMode `json:"customer,omitempty" doc:"The mode that the customer set for that runner; absent if it takes jobs"`

	Candidates []Candidate `json:"candidates" nullable:"false" doc:"In order of precedence"`
}

// Refusal is the reason why the control plane would refuse a deployment.
type Refusal struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`
	Actions []Action `json:"actions,omitempty" doc:"The actions that the hint names"`
}

// Candidate is a rule or a runner that was considered.
type Candidate struct {
	Level  string `json:"level" enum:"own,rule,group,ancestor,shared"`
	Rule   string `json:"rule,omitempty"`
	Match  string `json:"match,omitempty" doc:"The rule's conditions as text"`
	Runner string `json:"runner,omitempty" doc:"Name; absent for a rule whose runner was deleted or must not serve the install"`
	Won    bool   `json:"won"`
	Why    string `json:"why"`
}

// RefreshRunnerRequest applies the current rules to an install. The rules may choose
// another runner for the install.
type RefreshRunnerRequest struct {
	DryRun          bool `json:"dry_run,omitempty" doc:"Return the same result or error, but change nothing"`
	MigrateState    bool `json:"migrate_state,omitempty" doc:"If the new runner keeps states in another storage: first move the state there"`
	AcceptStateLoss bool `json:"accept_state_loss,omitempty" doc:"If the new runner keeps states in another storage: leave the state in the old one and start without a state"`
	AcceptKeyLoss   bool `json:"accept_key_loss,omitempty" doc:"If the new runner lacks a seed of the old one: give up all values that only the old runner can decrypt"`
}

// RefreshedRunner is the result of a refresh, or of its dry run.
type RefreshedRunner struct {
	Runner         string `json:"runner" doc:"Name of the runner that serves the install"`
	Changed        bool   `json:"changed" doc:"Whether the install was bound to another runner"`
	StorageChanged bool   `json:"storage_changed" doc:"Whether the runner keeps states in another storage"`
	Bound          bool   `json:"bound" doc:"Whether the install was already bound to a runner; if not, its first deployment binds it"`
	Job            string `json:"job,omitempty" doc:"The job that moves the state; the install changes to the runner when the job has succeeded"`
}

// CreateRunnerRuleRequest creates a rule: the runner serves installs that match all
// given conditions.
type CreateRunnerRuleRequest struct {
	Group  string            `json:"group,omitempty" maxLength:"910" form:"matched-group" doc:"Path of a group: its installs match. With /** at the end, the installs of the groups below match too"`
	App    string            `json:"app,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of an app"`
	Labels map[string]string `json:"labels,omitempty" maxProperties:"16" keys:"label-key" form:"asked-value" doc:"Labels of the install; in a value, * stands for any run of characters"`
	Runner string            `json:"runner" minLength:"1" maxLength:"63" form:"name"`
}

// RunnerRule is a rule of placement.
type RunnerRule struct {
	Actors
	ID        string            `json:"id"`
	Match     string            `json:"match" doc:"The rule's conditions as text"`
	Group     string            `json:"group,omitempty"`
	App       string            `json:"app,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Runner    string            `json:"runner"`
	CreatedAt time.Time         `json:"created_at"`
}

// CreateGroupRequest creates a group.
type CreateGroupRequest struct {
	Path        string `json:"path" minLength:"1" maxLength:"900" form:"group-below" doc:"Names with single slashes between them; the parent group must exist"`
	Description string `json:"description,omitempty" maxLength:"1000"`
}

// UpdateGroupRequest changes the description of a group.
type UpdateGroupRequest struct {
	Description string `json:"description" maxLength:"1000"`
}

// Group is a group of installs and runners.
type Group struct {
	Actors
	Path        string     `json:"path"`
	Description string     `json:"description,omitempty"`
	CreatedAt   *time.Time `json:"created_at,omitempty" doc:"Absent for the root group, which always exists"`
}

// Variable is an environment variable of jobs.
type Variable struct {
	Value     string `json:"value,omitempty" maxLength:"16384" doc:"Absent in responses if the variable is sensitive"`
	Sensitive bool   `json:"sensitive,omitempty" doc:"The value is stored encrypted, never shown, and masked in logs"`
	// Encrypted is absent in responses.
	Encrypted *Encrypted `json:"encrypted,omitempty" doc:"In place of value, for a sensitive variable of an install: the text as JSON, encrypted with the key of the install for the place variable/NAME. If the install has a key, other values of sensitive variables are refused. Absent in responses"`
}

// Variables are the environment variables that are set on one runner, group, app or
// install.
type Variables struct {
	Values map[string]Variable `json:"values" keys:"variable"`
}

// SetVariablesRequest changes the variables that it names. A null removes the variable.
type SetVariablesRequest struct {
	Values map[string]*Variable `json:"values" keys:"variable"`
}
