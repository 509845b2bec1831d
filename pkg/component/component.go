// Package component is the table of component types. The control plane, the reader of
// app.yaml, the diagnosis and the agent read it. The runner's plugin of the same name
// implements a type.
//
// Every type has the operations plan, apply, plan-destroy and destroy, and has outputs. The
// table has no column for a property that all types share. A type with the operation run is
// also a type of actions.
package component

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/job"
)

// Terraform is the type of Terraform and OpenTofu root modules. It is also the type of old
// records that contain no type, because Terraform was the only type when they were written.
const Terraform = "terraform"

// The types of the program runner/kubernetes.
const (
	Manifest = "manifest"
	Helm     = "helm"
)

// Image is the type of the program runner/images.
const Image = "image"

// DockerBuild is the type whose image a build makes from a Dockerfile. The program runner/images copies it.
const DockerBuild = "docker-build"

// Bundle is the type of the component that a closed app gets by itself, and its name: it copies all images of the app's lock.
const Bundle = "bundle"

// The options in which a closed app gives its images to the types whose files name images.
const (
	OptionImages   = "images"
	OptionRegistry = "registry"
)

// Type is one row of the table.
type Type struct {
	Name string // in app.yaml; the runner's plugin has the same name
	Doc  string // one sentence about the type, which editors show

	// Module reports whether the source is an OpenTofu or Terraform module. If so, its
	// variables and outputs are compared with app.yaml, and the local modules that it calls
	// are packed with it.
	Module bool

	// Executable is the file at the top of the source that the runner starts; "": none.
	Executable string

	// File is a file that the source must have at its top; "": none besides Executable.
	File string

	// Charts reports whether the source can be a chart in a repository of Helm charts.
	Charts bool

	// Dockerfile reports whether the source is the build context of a Dockerfile. A build
	// makes an image of it, wherever the source is, and the image is the artifact.
	Dockerfile bool

	// Protocol reports whether the plugin is a program that speaks pkg/pluginprotocol: the
	// file Executable of the source, or the program Program of the runner. Its plans are
	// saved in the storage of states.
	Protocol bool

	// Program is the name of the program beside the runner's that is the type's plugin. Many
	// types can have the same program. "": the program is in the source, or there is none.
	Program string

	// NeedsRegistry reports whether the objects of a component are in the registry of its install. The runner must have one.
	NeedsRegistry bool

	// OwnImage reports whether app.yaml can name an image in which the jobs of a component or an action run.
	OwnImage bool

	// Options are the settings that app.yaml can have for a component of the type.
	Options []Option

	// AnyOptions reports whether app.yaml can have further options. The plugin checks them.
	AnyOptions bool

	// Generated reports whether the reader of app.yaml adds the components of the type, and app.yaml cannot have one.
	Generated bool

	Operations []Operation

	// StateFile is the name of a component's state file in local storage; "": the type has
	// no state.
	StateFile string

	// UnsavedState is a file in the tool's working directory. If the tool cannot save its
	// state, it writes the state to this file, and the runner keeps the file. "": the tool
	// writes no such file.
	UnsavedState string

	// SecretPrefix is the prefix of the environment variables in which a tool gets the component's variables that are
	// secrets of the customer; "": it gets them with its other variables. The variables of a blind plan are compared with
	// those of the last apply, which the control plane keeps, and it does not know these secrets.
	SecretPrefix string

	// Blind reports whether a plan cannot see what exists. Such a plan compares the current
	// source and variables with those of the last apply, which the job spec contains. After
	// a lost apply a person decides, because no plan shows what the apply changed. For the
	// other types, a plan without changes after a loss means that the apply was complete.
	Blind bool

	// Reserved are the environment variables that the plugin sets or requires to be unset:
	// names, or prefixes that end in *.
	Reserved []string

	LostLog     string // the last sentence about the log of a lost job: what it shows of created resources
	MissingTool string // advice if the plugin finds no tool; "": the plugin needs no tool
}

// Option is a setting of a component of the type.
type Option struct {
	Name string
	Kind Kind
	Doc  string // one sentence, which editors show
}

// Kind is the kind of an option's value.
type Kind string

// The kinds of values.
const (
	Text     Kind = "text"
	Flag     Kind = "flag"     // true or false
	Duration Kind = "duration" // such as 10m
	Count    Kind = "count"    // a whole number from 0 to MaxCount
	Texts    Kind = "texts"    // a map of texts
)

// MaxCount is the largest value of the kind Count.
const MaxCount = 100

// Check returns "" if the value is of the kind, otherwise what is wanted.
func (k Kind) Check(value any) (wants string) {
	text, isText := value.(string)
	switch k {
	case Text:
		if !isText || text == "" {
			return "a text"
		}
	case Texts:
		values, ok := value.(map[string]any)
		for _, v := range values {
			_, isText := v.(string)
			ok = ok && isText
		}
		if !ok {
			return "a map of texts"
		}
	case Flag:
		if _, ok := value.(bool); !ok {
			return "true or false"
		}
	case Count:
		if n, err := strconv.Atoi(fmt.Sprint(value)); isText || err != nil || n < 0 || n > MaxCount {
			return fmt.Sprintf("a whole number from 0 to %d", MaxCount)
		}
	case Duration:
		if d, err := time.ParseDuration(text); !isText || err != nil || d <= 0 {
			return "a duration such as 10m"
		}
	}
	return ""
}

// Option returns the option of the type with the name. ok is false if there is none, although
// the type may allow any options.
func (t Type) Option(name string) (o Option, ok bool) {
	for _, o := range t.Options {
		if o.Name == name {
			return o, true
		}
	}
	return Option{}, false
}

// Operation is an operation of a plugin with its role.
type Operation struct {
	Name job.Operation
	Role Role // the role that a step of the operation assumes, if the customer has a runner stack
}

// Role is one of the roles of a customer's runner stack.
type Role string

// The roles, from the least to the most permissions.
const (
	ReadOnly    Role = "read-only"   // reads
	Deploy      Role = "deploy"      // changes resources, but cannot delete resources that hold data
	Provision   Role = "provision"   // creates infrastructure
	Deprovision Role = "deprovision" // deletes infrastructure
)

var types = []Type{
	{
		Name: Terraform, Doc: "terraform is a Terraform or OpenTofu module.",
		Module: true,
		Operations: []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Provision}, {job.OpDestroy, Deprovision},
			{job.OpMigrateState, Deploy}}, // it writes states only
		StateFile:    "terraform.tfstate",
		UnsavedState: "errored.tfstate",
		Reserved: []string{"TF_INPUT", "TF_IN_AUTOMATION", "TF_WORKSPACE", "TF_REATTACH_PROVIDERS", "TF_APPEND_USER_AGENT", "TF_DISABLE_PLUGIN_TLS",
			"TF_SKIP_PROVIDER_VERIFY", "TF_DATA_DIR", "TF_PLUGIN_CACHE_DIR", "TF_LOG", "TF_LOG_CORE", "TF_LOG_PATH", "TF_LOG_PROVIDER",
			"TF_CLI_ARGS", "TF_CLI_ARGS_*", "TF_VAR_*", "TMPDIR"},
		LostLog:     "A line such as `aws_instance.web: Creation complete after 3s [id=i-0abc]` shows the ID of a created resource.",
		MissingTool: "Install OpenTofu or Terraform on the runner, or set $FAIRLEAD_TOFU to its path. Then restart the agent.",
	},
	{
		Name: "script", Doc: "script is a folder with the executable file run, which is started as `run apply` and `run destroy`, and for an action as `run run`.",
		Executable: "run",
		OwnImage:   true,
		Operations: []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision},
			{job.OpPlanRun, ReadOnly}, {job.OpRun, Deploy}},
		Blind:        true,
		SecretPrefix: "FAIRLEAD_VAR_",
		LostLog:      "It does not show what the executable did without output.",
		MissingTool:  "Install on the runner, or in the image that the app names, what the executable needs: the interpreter in its first line, and a build for the runner's processor.",
	},
	{
		Name: "plugin", Doc: "plugin is a folder with the executable file plugin, which speaks the protocol of plugins.",
		Executable:  "plugin",
		Protocol:    true,
		AnyOptions:  true,
		Operations:  []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		LostLog:     "It does not show what the plugin did without output.",
		MissingTool: "Install on the runner what the plugin needs: the interpreter in its first line, and a build for the runner's processor.",
	},
	{
		Name: Manifest, Doc: "manifest is a folder of Kubernetes objects in YAML.",
		Protocol:    true,
		Program:     "kubernetes",
		Options:     slices.Concat([]Option{namespaceOption, timeoutOption}, imageOptions(), clusterOptions()),
		Operations:  []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		LostLog:     "It has a line for each object that was changed.",
		MissingTool: missingPlugins,
	},
	{
		Name: Helm, Doc: "helm is the folder of a Helm chart.",
		File:     "Chart.yaml",
		Charts:   true,
		Protocol: true,
		Program:  "kubernetes",
		Options: slices.Concat([]Option{namespaceOption, {"release", Text, "The name of the release. Default: the component's name."}, timeoutOption,
			{"rollback", Flag, "Whether a failed apply is undone: by a rollback, or by the removal of a new release. Default: false."}}, imageOptions(), clusterOptions()),
		Operations:  []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		LostLog:     "It has a line for each object that was changed.",
		MissingTool: missingPlugins,
	},
	{
		Name: Image, Doc: "image is a folder with the file image.yaml, which names an image that is copied to the install's registry.",
		File:          "image.yaml",
		Protocol:      true,
		Program:       "images",
		NeedsRegistry: true,
		Options:       imageOptions(),
		Operations:    []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		LostLog:       "It has a line for each layer that was copied.",
		MissingTool:   missingPlugins,
	},
	{
		Name: Bundle, Doc: "bundle copies all images of the lock of a closed app to the install's registry.",
		File:          "images.lock",
		Protocol:      true,
		Program:       "images",
		NeedsRegistry: true,
		Generated:     true,
		Operations:    []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		LostLog:       "It has a line for each layer that was copied.",
		MissingTool:   missingPlugins,
	},
	{
		Name: DockerBuild, Doc: "docker-build is the build context of a Dockerfile, of which a build makes an image; the image is copied to the install's registry.",
		Dockerfile:    true,
		Protocol:      true,
		Program:       "images",
		NeedsRegistry: true,
		Options:       []Option{{"keep", Count, "The number of earlier images that stay in the install's registry. Default: 1, because what uses the component still runs the earlier image until it is deployed too."}},
		Operations:    []Operation{{job.OpPlan, ReadOnly}, {job.OpPlanDestroy, ReadOnly}, {job.OpApply, Deploy}, {job.OpDestroy, Deprovision}},
		LostLog:       "It has a line for each layer that was copied.",
		MissingTool:   missingPlugins,
	},
}

// The options that several types have.
var (
	namespaceOption = Option{"namespace", Text, "The namespace of objects that name none. Default: the install's name."}
	timeoutOption   = Option{"timeout", Duration, "How long an apply waits for objects to be ready, and how long for them to be gone. Default: 10m."}
)

// imageOptions are the options that replace the images that a component's files name. A closed app sets them.
func imageOptions() []Option {
	return []Option{
		{OptionImages, Texts, "By what the images that the component's files name are replaced: a map of references to references. With it, a plan fails if an image is not in the map. A closed app sets it."},
		{OptionRegistry, Text, "The begin of references by digest that the option images need not have, such as registry.example.com/acme/. A closed app sets it."},
	}
}

// clusterOptions are the options that name the cluster, for a job that runs outside of it.
func clusterOptions() []Option {
	return []Option{
		{"cluster_endpoint", Text, "The https URL of the cluster's API server, for a job that runs outside of the cluster. Default: the cluster of the job's pod or kubeconfig."},
		{"cluster_ca", Text, "The certificate authority of the API server: PEM, or PEM in base64. Default: the authorities of the system."},
		{"eks_cluster", Text, "The name of the EKS cluster, to which the job proves its AWS role. Without it, the environment variable KUBE_TOKEN has a token."},
		{"eks_region", Text, "The region of the EKS cluster. Default: the region of the job."},
	}
}

const missingPlugins = "Install the runner's plugins beside it, or set $FAIRLEAD_PLUGINS to the folder that has them. Then restart the agent."

// Types returns the table. Callers must not change it.
func Types() []Type { return types }

// Names returns the names of the types.
func Names() []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	return names
}

// Written returns the names of the types that app.yaml can name.
func Written() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		t, _ := Of(name)
		return t.Generated
	})
}

// UsesImages reports whether the files of a component name images, which a lock replaces.
func (t Type) UsesImages() bool {
	_, ok := t.Option(OptionImages)
	return ok
}

// Of returns the type with the name; "" means Terraform. For an unknown name, ok is false,
// and the type has no operation, no state and a blind plan.
func Of(name string) (t Type, ok bool) {
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == cmp.Or(name, Terraform) })
	if i < 0 {
		return Type{Name: name, Blind: true}, false
	}
	return types[i], true
}

// ThatDoes returns the first type with the operation, or the zero Type.
func ThatDoes(o job.Operation) Type {
	for _, t := range types {
		if _, ok := t.Role(o); ok {
			return t
		}
	}
	return Type{}
}

// WithOwnProgram returns the type whose plugin is a program in the source of each component.
func WithOwnProgram() Type {
	i := slices.IndexFunc(types, func(t Type) bool { return t.Protocol && t.Executable != "" })
	return types[i]
}

// WithOwnImage returns the names of the types whose jobs can run in an image of their own.
func WithOwnImage() (names []string) {
	for _, t := range types {
		if t.OwnImage {
			names = append(names, t.Name)
		}
	}
	return names
}

// ActionTypes returns the names of the types that an action can have.
func ActionTypes() (names []string) {
	for _, t := range types {
		if _, ok := t.Role(job.OpRun); ok {
			names = append(names, t.Name)
		}
	}
	return names
}

// DeclaredRoles returns the roles that an action can declare for its runs, and a component for its applies. None of them may
// delete infrastructure.
func DeclaredRoles() []Role { return []Role{ReadOnly, Deploy, Provision} }

// RoleOf returns the role of a job: that of its operation, or the declared role if the operation
// is a run or an apply and the role is one of DeclaredRoles. ok is false if the type does not have the
// operation, or if the declared role is another.
func (t Type) RoleOf(o job.Operation, declared string) (r Role, ok bool) {
	if r, ok = t.Role(o); !ok || declared == "" || o != job.OpRun && o != job.OpApply {
		return r, ok
	}
	return Role(declared), slices.Contains(DeclaredRoles(), Role(declared))
}

// Role returns the role of the operation; ok is false if the type does not have the
// operation.
func (t Type) Role(o job.Operation) (r Role, ok bool) {
	for _, op := range t.Operations {
		if op.Name == o {
			return op.Role, true
		}
	}
	return "", false
}

// SavesPlans reports whether a plan is saved for its apply in the storage of states.
func (t Type) SavesPlans() bool { return t.StateFile != "" || t.Protocol }

// StatePath returns the path of a component's state in local storage, below the runner's data
// folder.
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
