// Package policy reads and evaluates a customer's policy: what a vendor's jobs may do in the customer's account. The customer
// writes the policy on its own side, and the step and the agent enforce it there. The control plane neither sees nor sets it.
//
// A field that the policy does not have restricts nothing. A field that it has decides by listing: what is not listed is
// denied. A file that cannot be read as a whole, or that has a field that this version does not know, is no policy, and its
// callers start nothing: an older runner must not enforce a half of a newer policy.
//
// The package is pure. A Policy is not changed after Parse, and is safe for concurrent use.
package policy

//go:generate env UPDATE_GOLDEN=1 go test -run TestCommittedSchemaIsCurrent|TestReferencePageIsCurrent .

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/job"
)

// Version is the version of the schema.
const Version = 1

// Policy is a customer's policy. Parse makes it.
type Policy struct {
	Version      int               `json:"version" must:"true" check:"version" doc:"Version of the schema: 1. A runner that does not know the version starts nothing."`
	Operations   []string          `json:"operations,omitempty" check:"operation" doc:"The operations of jobs: plan, apply, plan-destroy, destroy, plan-run, run, migrate-state."`
	Types        []string          `json:"types,omitempty" check:"type" doc:"The types of components and actions."`
	Sources      []string          `json:"sources,omitempty" check:"source" doc:"Where the code of a component and the modules that it calls come from, as patterns: git::https://HOST/PATH, HOST/NAMESPACE/NAME/SYSTEM of a module registry, https://HOST/PATH of an archive, chart::URL, oci://HOST/PATH, and app for the app's own folder. * stands for any characters except /, ** for any characters."`
	Storages     []string          `json:"storages,omitempty" check:"nonempty" doc:"Where states and saved plans may be stored, as patterns as in sources: local, http (the control plane), s3:BUCKET/PREFIX, gcs:BUCKET/PREFIX, azurerm:ACCOUNT/CONTAINER/PREFIX, kubernetes:NAMESPACE."`
	Signers      []string          `json:"signers,omitempty" check:"signer" doc:"The public keys, Ed25519 in base64, of which one must have signed the provenance of a component's artifact. A component that no build made is denied."`
	Providers    map[string]string `json:"providers,omitempty" check:"constraint" doc:"The providers of modules: by source address, such as registry.opentofu.org/hashicorp/aws, with patterns as in sources, the versions as a constraint, such as \">= 5.0, < 7.0\". * permits every version."`
	Plugins      []string          `json:"plugins,omitempty" check:"digest" doc:"The digests of artifacts whose code the runner starts: components and actions of the types script and plugin."`
	Provisioners []string          `json:"provisioners,omitempty" check:"provisioner" doc:"What runs other programs beside the providers of a module: local-exec, remote-exec, file, external (data sources and key providers)."`
	Images       []string          `json:"images,omitempty" check:"image" doc:"The images of containers that a plan sets, as patterns as in sources: registry.example.com/acme/**, or registry.example.com/acme/**@sha256:* for images by digest only. It reads the objects of charts and manifests, and of modules the resources kubernetes_* and aws_ecs_task_definition. An image without a registry is one of docker.io. An image that is hidden or known only after the apply is denied."`
	Environment  []string          `json:"environment,omitempty" check:"variable" doc:"The environment variables that the vendor may set for tools, by name or by a beginning and *. If a policy lacks the field, the vendor may set none."`
	Windows      []Window          `json:"windows,omitempty" doc:"When changes may begin, by name: one of the windows must be open. Plans are made at any time."`
	Ceilings     *Ceilings         `json:"ceilings,omitempty" doc:"How many changes a plan may have."`
	Deny         []Rule            `json:"deny,omitempty" doc:"Changes that are denied, by the name of the rule."`
	Approvals    []Approval        `json:"approvals,omitempty" doc:"Changes that need the customer's approval, by the name of the rule."`
	Approvers    map[string]string `json:"approvers,omitempty" check:"approver" doc:"The public keys that sign approvals, by the name of their holder: Ed25519, or ECDSA with P-256, in PEM. Without a key, a change that needs an approval is never applied."`
	WholeRoles   []string          `json:"whole_role,omitempty" check:"nonempty" doc:"For what an apply of a module may have the whole role of its operation in AWS, because no session policy can be made: types of resources whose services the runner does not know, as patterns; local-exec, for objects that run a program; too-many-services. * stands for any characters. What it does not list is denied before the first change. If absent: each."`
	Telemetry    []string          `json:"telemetry,omitempty" check:"telemetry" doc:"What may go to the control plane besides the state of a job: logs, plans (their change sets), outputs, states (states and saved plans in http storage)."`

	lines map[string]int // by path
	given map[string]bool
	zones map[string]*time.Location // by window
}

// Window is a range of hours that repeats.
type Window struct {
	Name     string   `json:"name" key:"window"`
	TimeZone string   `json:"time_zone" must:"true" check:"zone" doc:"Time zone, such as Europe/Berlin or UTC."`
	Days     []string `json:"days,omitempty" check:"day" doc:"The days on which it begins: mon, tue, wed, thu, fri, sat, sun. If absent: every day."`
	From     string   `json:"from" must:"true" check:"clock" doc:"Its beginning, such as 22:00."`
	To       string   `json:"to" must:"true" check:"clock" doc:"Its end, such as 04:00, which is then on the next day; 24:00 is midnight."`
}

// Ceilings limit the changes of plans.
type Ceilings struct {
	Component  *Limits `json:"component,omitempty" doc:"Of one plan."`
	Deployment *Limits `json:"deployment,omitempty" doc:"Of all applies of a deployment together. It needs the ledger of the runner."`
}

// Limits are the largest numbers of changes.
type Limits struct {
	Creates  *int `json:"creates,omitempty" check:"count" doc:"New objects; a replacement is one."`
	Updates  *int `json:"updates,omitempty" check:"count" doc:"Objects that are changed in place."`
	Destroys *int `json:"destroys,omitempty" check:"count" doc:"Deleted objects; a replacement is one, and so is an action that the runner does not know."`
	Imports  *int `json:"imports,omitempty" check:"count" doc:"Existing objects that a component takes over."`
	Forgets  *int `json:"forgets,omitempty" check:"count" doc:"Objects that a component gives up and that continue to exist."`
	Moves    *int `json:"moves,omitempty" check:"count" doc:"Objects that get another address."`
	Runs     *int `json:"runs,omitempty" check:"count" doc:"Programs that run, whose changes cannot be predicted."`
}

// Rule selects changes. All of its conditions must apply to a change.
type Rule struct {
	Name      string               `json:"name" key:"rule"`
	Types     []string             `json:"types,omitempty" check:"nonempty" doc:"Types of objects, as patterns: aws_iam_*, apps/v1 Deployment. * stands for any characters."`
	Addresses []string             `json:"addresses,omitempty" check:"nonempty" doc:"Addresses of objects, as patterns: module.database.*. * stands for any characters."`
	Actions   []string             `json:"actions,omitempty" check:"action" doc:"What happens to the object: create, update, replace, delete, import, move, read, forget, recover, run. An action that the runner does not know is each of them, and replace is also delete."`
	When      map[string]Condition `json:"when,omitempty" doc:"Conditions on attributes, by JSON pointer, such as /ingress/*/cidr_blocks/*; * stands for each element. They read what a change sets, and of a delete or forget what it removes. A value that is hidden, left out or known only after the apply meets each condition."`
}

// Condition is a condition on the value of an attribute. One of its fields is given.
type Condition struct {
	Is    []any `json:"is,omitempty" doc:"The value is one of these. * in a text stands for any characters."`
	IsNot []any `json:"is_not,omitempty" doc:"The value is none of these. A new object without the attribute meets the condition."`
}

// Approval selects plans that need the customer's approval. All of its conditions must apply to the same change.
type Approval struct {
	Name       string   `json:"name" key:"rule"`
	Operations []string `json:"operations,omitempty" check:"operation" doc:"The operations that change something: apply, destroy, run. If absent: each."`
	Types      []string `json:"types,omitempty" check:"nonempty" doc:"Types of objects, as in deny. If absent: each."`
	Actions    []string `json:"actions,omitempty" check:"action" doc:"What happens to the object, as in deny. If absent: each."`
}

// Request is what the policy decides about. It judges no part that is nil: the step asks as soon as it knows a part, and again before
// an apply with all of them.
type Request struct {
	Now       time.Time
	Operation job.Operation
	Component string
	Type      string // of the component
	Storage   string // where its state and saved plans are, in the notation of Policy.Storages; "": it has none
	Variables []string
	Source    *Source
	Module    *Module
	Plan      *Plan
}

// Source is where the code of a component comes from.
type Source struct {
	Artifact string // digest of the artifact
	Runs     bool   // whether the runner starts a program that the artifact brings
	Origin   string // in the notation of Policy.Sources; "": unknown
	SignedBy string // public key, in base64, that signed the provenance; "": there is none
}

// Module is what the files of an OpenTofu or Terraform module, and of all modules that it calls, contain.
type Module struct {
	Sources    []string   // of the modules of other places, in the notation of Policy.Sources
	Providers  []Provider // that will be started
	Programs   []Program
	Unreadable string // what of the module could not be judged; "": nothing
}

// Provider is a provider of a module.
type Provider struct {
	Address string // such as registry.opentofu.org/hashicorp/aws
	Version string // "": unknown
}

// Program is a construct of a module that runs a program.
type Program struct {
	Kind string // local-exec, remote-exec, file, external, or another provisioner
	At   string // file and line
}

// Plan is what a plan will do.
type Plan struct {
	Changes []changeset.Change // all of them
	Omitted int                // changes that are not known
	Others  Counts             // of the other applies of the same deployment
}

// Effect is the result of an evaluation.
type Effect string

// The effects.
const (
	Allow         Effect = "allow"
	Deny          Effect = "deny"
	NeedsApproval Effect = "needs-approval"
)

// Decision is the result of an evaluation with its rule.
type Decision struct {
	Effect Effect
	Rule   string // path of the field or rule, such as deny.no-iam-users; "" of Allow
	Line   int    // of the rule in the file
	Reason string // one sentence without a final stop, which may quote addresses and names, and no values
}

// Place returns the rule with its line, for a message. A rule that the file does not have has no line.
func (d Decision) Place() string {
	if d.Line == 0 {
		return d.Rule
	}
	return fmt.Sprintf("%s (line %d)", d.Rule, d.Line)
}

// Sends reports whether something of the class may go to the control plane.
func (p *Policy) Sends(class string) bool {
	return !p.given["telemetry"] || slices.Contains(p.Telemetry, class)
}

// The classes of Policy.Telemetry.
const (
	Logs    = "logs"
	Plans   = "plans"
	Outputs = "outputs"
	States  = "states"
)

// ApprovalKeys returns the keys that may sign approvals, and the names of their holders by the ID of the key.
func (p *Policy) ApprovalKeys() (keys []approval.Public, holders map[string]string) {
	holders = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Approvers)) {
		k, err := approval.ParsePublic([]byte(p.Approvers[name]))
		if err != nil {
			continue // Parse has checked it
		}
		keys = append(keys, k)
		holders[k.ID()] = name
	}
	return keys, holders
}

// NeedsLedger reports whether a decision about an apply depends on the other applies of its deployment.
func (p *Policy) NeedsLedger() bool { return p.Ceilings != nil && p.Ceilings.Deployment != nil }

// SourceOfApp is the notation of the app's own folder in Policy.Sources.
const SourceOfApp = "app"

// TooManyServices is what Policy.WholeRoles lists for changes that use more services than a session policy can name.
const TooManyServices = "too-many-services"

// Narrows reports whether the policy limits what may have a whole role.
func (p *Policy) Narrows() bool { return p.given["whole_role"] }

// The kinds of Policy.Provisioners.
const (
	LocalExec  = "local-exec"
	RemoteExec = "remote-exec"
	CopyFile   = "file"
	External   = "external"
)
