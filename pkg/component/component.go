// Package component is the table of the types of components: what the control
// plane, the reader of app.yaml, the diagnosis and the agent know of each. What a
// type does is in its plugin, which has the type's name and lives on the runner.
//
// Every type is planned, applied, planned for removal and destroyed, and has
// outputs: there is no column for what no type does otherwise.
package component

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/job"
)

// Terraform is the type of a component that is a Terraform or OpenTofu root module,
// and of all that was recorded before there was another type.
const Terraform = "terraform"

// Type is one row of the table.
type Type struct {
	Name string // in app.yaml, and of the runner's plugin
	Doc  string // of the value of the field "type", for editors: one sentence

	// Module is whether the source is a module of OpenTofu or Terraform. Its variables
	// and outputs are then held against app.yaml, and the modules that it calls are
	// shipped with it.
	Module bool

	// Executable is the file at the top of its source that the runner starts. "": there
	// need be none.
	Executable string

	Operations []Operation

	// StateFile names the state of a component in the folder that a runner's own disk
	// has for it. "": the type has no state, and jobs of it are given no place for one.
	StateFile string

	// UnsavedState names the file, where the tool runs, into which it writes a state that
	// it could not save. The runner keeps it. "": the tool writes none.
	UnsavedState string

	// Blind is whether its plan sees nothing of what is there. Such a plan compares what
	// the component is given with what it was applied with last, which the job spec
	// tells; a loss leaves a person to decide, as no plan shows how far an apply came.
	// The plan of any other type does: if it finds nothing to do after a loss, all is
	// done.
	Blind bool

	// Reserved are environment variables that the plugin sets itself, or whose absence
	// it relies on: a name, or the beginning of names with a * behind it.
	Reserved []string

	LostLog     string // ends what is said of the log of a lost job: how it names what was made
	MissingTool string // what to do if the plugin finds no tool; "": it needs none
}

// Operation is what a plugin does for a component, or for several of an install.
type Operation struct {
	Name job.Operation
	Role Role // with which it is done, where the customer has a runner stack
}

// Role is one of the roles of a customer's runner stack.
type Role string

// The roles, from the one that may do least.
const (
	ReadOnly    Role = "read-only"   // reads
	Deploy      Role = "deploy"      // changes, and cannot remove what holds data
	Provision   Role = "provision"   // makes infrastructure
	Deprovision Role = "deprovision" // removes infrastructure
)

var types = []Type{
	{
		Name: Terraform, Doc: "terraform is a Terraform or OpenTofu module.",
		Module: true,
		Operations: []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Provision}, {job.OpDestroy, Deprovision},
			{job.OpMigrateState, Deploy}}, // which writes states, and nothing else of the app
		StateFile:    "terraform.tfstate",
		UnsavedState: "errored.tfstate",
		Reserved: []string{"TF_INPUT", "TF_IN_AUTOMATION", "TF_WORKSPACE", "TF_REATTACH_PROVIDERS", "TF_APPEND_USER_AGENT", "TF_DISABLE_PLUGIN_TLS",
			"TF_SKIP_PROVIDER_VERIFY", "TF_DATA_DIR", "TF_PLUGIN_CACHE_DIR", "TF_LOG", "TF_LOG_CORE", "TF_LOG_PATH", "TF_LOG_PROVIDER",
			"TF_CLI_ARGS", "TF_CLI_ARGS_*", "TF_VAR_*", "TMPDIR"},
		LostLog:     "A line such as `aws_instance.web: Creation complete after 3s [id=i-0abc]` names what was made, with its identifier.",
		MissingTool: "Install OpenTofu or Terraform on the runner, or name it in $FAIRLEAD_TOFU, and start the agent again.",
	},
	{
		Name: "script", Doc: "script is a folder with the executable file run, which is started as `run apply` and `run destroy`.",
		Executable:  "run",
		Operations:  []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		Blind:       true,
		LostLog:     "What the executable did without a word is not in it.",
		MissingTool: "Have on the runner what the executable needs: the program that its first line names, and a build for the runner's processor.",
	},
}

// Types returns the table, in the order in which the types came. It is not to be
// changed.
func Types() []Type { return types }

// Names returns the names of the types.
func Names() []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	return names
}

// Of returns the type of that name; "" stands for Terraform. ok is false, and the
// type has no operation, no state and a blind plan, if there is none of the name.
func Of(name string) (t Type, ok bool) {
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == cmp.Or(name, Terraform) })
	if i < 0 {
		return Type{Name: name, Blind: true}, false
	}
	return types[i], true
}

// ThatDoes returns the first type with the operation.
func ThatDoes(o job.Operation) Type {
	for _, t := range types {
		if _, ok := t.Role(o); ok {
			return t
		}
	}
	return Type{}
}

// Role returns the role with which the operation is done; ok is false if the type
// does not do it.
func (t Type) Role(o job.Operation) (r Role, ok bool) {
	for _, op := range t.Operations {
		if op.Name == o {
			return op.Role, true
		}
	}
	return "", false
}

// StatePath returns where, below a runner's data folder, the state of a component
// is in local storage.
func (t Type) StatePath(install, component string) string {
	return "state/" + install + "/" + component + "/" + t.StateFile
}

// Reserved reports whether a plugin reserves the name of an environment variable.
func Reserved(variable string) bool {
	return slices.ContainsFunc(types, func(t Type) bool {
		return slices.ContainsFunc(t.Reserved, func(r string) bool {
			prefix, more := strings.CutSuffix(r, "*")
			return r == variable || more && strings.HasPrefix(variable, prefix)
		})
	})
}
