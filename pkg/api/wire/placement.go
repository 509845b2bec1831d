package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about which runner serves an install, and what
// is decided by.
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

// RunnerConfigurationInput is a configuration of a runner, or a part of one:
// either as JSON or as the text of a file, with single fields on top.
type RunnerConfigurationInput struct {
	Config json.RawMessage `json:"config,omitempty" doc:"The configuration as an object"`
	Text   string          `json:"text,omitempty" maxLength:"262144" doc:"Instead of config: the text of a file, YAML or JSON, so that what is wrong is told by line and column"`
	File   string          `json:"file,omitempty" maxLength:"200" doc:"What to call the file in what is told of it"`
	Set    []string        `json:"set,omitempty" maxItems:"100" doc:"Single fields on top: path=value, the value being YAML on one line"`
}

// UpdateRunnerRequest changes a runner's configuration: maps are merged at every
// depth, lists and scalars replaced, and null removes a field. A secret that
// reads "(masked)" stays as it is.
type UpdateRunnerRequest struct{ RunnerConfigurationInput }

// RunnerMode is whether a runner takes new jobs.
type RunnerMode struct {
	Mode string `json:"mode" enum:"enabled,paused,draining,disabled"`
}

// Placement says which runner serves an install by the rules of now, and how
// each other candidate lost.
type Placement struct {
	Install string   `json:"install"`
	Runner  string   `json:"runner,omitempty" doc:"Name of the runner that decides; absent if there is none"`
	Level   string   `json:"level" enum:"none,own,rule,group,ancestor,shared" doc:"By what it was decided"`
	Rule    string   `json:"rule,omitempty" doc:"The rule that decided"`
	Refused *Refusal `json:"refused,omitempty" doc:"Why a deployment would be refused all the same"`
	Bound   string   `json:"bound,omitempty" doc:"Name of the runner that the install is bound to"`
	Mode    string   `json:"mode,omitempty" enum:"enabled,paused,draining,disabled" doc:"Whether the runner that has the install's jobs, the bound one or else the one that decides, takes new jobs, as the vendor has set it"`

	Customer *CustomerMode `json:"customer,omitempty" doc:"And as the customer has set it; absent if it takes jobs"`

	Candidates []Candidate `json:"candidates" nullable:"false" doc:"In the order of precedence"`
}

// Refusal is why nothing was chosen.
type Refusal struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`
	Actions []Action `json:"actions,omitempty" doc:"Those that the hint names"`
}

// Candidate is a rule or a runner that was considered.
type Candidate struct {
	Level  string `json:"level" enum:"own,rule,group,ancestor,shared"`
	Rule   string `json:"rule,omitempty"`
	Match  string `json:"match,omitempty" doc:"What the rule asks, in words"`
	Runner string `json:"runner,omitempty" doc:"Name; absent of a rule whose runner is gone or must not serve the install"`
	Won    bool   `json:"won"`
	Why    string `json:"why"`
}

// RefreshRunnerRequest decides anew which runner serves an install.
type RefreshRunnerRequest struct {
	DryRun          bool `json:"dry_run,omitempty" doc:"Answer or refuse as without, and change nothing"`
	MigrateState    bool `json:"migrate_state,omitempty" doc:"Where the state would be in another place: move it there first"`
	AcceptStateLoss bool `json:"accept_state_loss,omitempty" doc:"Where the state would be in another place: leave it where it is, and begin with none"`
}

// RefreshedRunner is what a refresh came to, or would come to.
type RefreshedRunner struct {
	Runner         string `json:"runner" doc:"Name of the runner that serves the install"`
	Changed        bool   `json:"changed" doc:"Whether it is another than the install was bound to"`
	StorageChanged bool   `json:"storage_changed" doc:"Whether it keeps states elsewhere"`
	Bound          bool   `json:"bound" doc:"Whether the install was bound to a runner; if not, its first deployment binds it"`
	Job            string `json:"job,omitempty" doc:"The job that moves the state there; the install has the runner once it has succeeded"`
}

// CreateRunnerRuleRequest makes a rule: installs that match on all that is given
// run on the runner.
type CreateRunnerRuleRequest struct {
	Group  string            `json:"group,omitempty" maxLength:"910" form:"matched-group" doc:"Path of a group, whose installs match; with /** behind it also those of the groups below"`
	App    string            `json:"app,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of an app"`
	Labels map[string]string `json:"labels,omitempty" maxProperties:"16" keys:"label-key" form:"asked-value" doc:"Labels of the install; in a value, * stands for any run of characters"`
	Runner string            `json:"runner" minLength:"1" maxLength:"63" form:"name"`
}

// RunnerRule is a rule.
type RunnerRule struct {
	ID        string            `json:"id"`
	Match     string            `json:"match" doc:"What it matches on, in words"`
	Group     string            `json:"group,omitempty"`
	App       string            `json:"app,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Runner    string            `json:"runner"`
	CreatedAt time.Time         `json:"created_at"`
}

// CreateGroupRequest makes a group.
type CreateGroupRequest struct {
	Path        string `json:"path" minLength:"1" maxLength:"900" form:"group-below" doc:"Names with single slashes between them; the group that holds it has to be there"`
	Description string `json:"description,omitempty" maxLength:"1000"`
}

// UpdateGroupRequest changes what is said of a group.
type UpdateGroupRequest struct {
	Description string `json:"description" maxLength:"1000"`
}

// Group is a group of installs and runners.
type Group struct {
	Path        string     `json:"path"`
	Description string     `json:"description,omitempty"`
	CreatedAt   *time.Time `json:"created_at,omitempty" doc:"Absent of the root group, which is always there"`
}

// Variable is an environment variable of jobs.
type Variable struct {
	Value     string `json:"value,omitempty" maxLength:"16384" doc:"Left out where a sensitive one is read back"`
	Sensitive bool   `json:"sensitive,omitempty" doc:"Kept encrypted, never shown, and masked in logs"`
}

// Variables are the environment variables that are set on one thing.
type Variables struct {
	Values map[string]Variable `json:"values" keys:"variable"`
}

// SetVariablesRequest changes variables: those that are named; null removes one.
type SetVariablesRequest struct {
	Values map[string]*Variable `json:"values" keys:"variable"`
}
