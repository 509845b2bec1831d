// Package appspec reads an app's configuration: a folder with an app.yaml that
// declares the inputs of an install and the components to deploy. It reports all
// problems of a configuration, each with file, line and column. It turns a valid
// configuration into an App, which is sorted and JSON-serialisable and has a
// canonical form: equal configurations have equal bytes.
//
// The package is pure, except that Load reads files through its fs.FS.
// docs/reference/app-file.md is its reference for users.
package appspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/graph"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The limits of one app. They bound the cost of a hostile configuration. An app that reaches a limit should be split.
const (
	MaxFileSize    = 1 << 20               // bytes of app.yaml, and of its canonical form
	MaxComponents  = 40                    // components of one app
	MaxInputs      = 200                   // inputs of one app
	maxSecrets     = runnerspec.MaxSecrets // secrets of one component
	MaxVars        = 200                   // vars of one component
	MaxDepth       = yamlnode.MaxDepth     // nesting of lists and maps
	MaxProblems    = yamlnode.MaxProblems  // problems that are reported at once
	maxDescription = 2000                  // bytes of a description
)

// FileName is the name of the configuration inside the app's folder.
const FileName = "app.yaml"

// FormatVersion is the value of the field "fairlead". It selects the meaning of the other fields.
const FormatVersion = "v1"

// App is one version of an app's configuration. Inputs, components and actions
// are sorted by name.
type App struct {
	Name        string       `json:"name" must:"there" check:"name" doc:"The app's name: lower-case letters, digits and hyphens."`
	Description string       `json:"description,omitempty" check:"description" doc:"Description of the app for the people who install it."`
	Inputs      []Input      `json:"inputs" check:"inputs" alias:"variables vars parameters params" doc:"The values that each install gives, by name."`
	InputGroups []InputGroup `json:"input_groups,omitempty" check:"inputgroups" doc:"Groups of inputs that belong together, by name."`
	AWS         *AWS         `json:"aws,omitempty" check:"aws" doc:"What the app uses in the customer's AWS account. The customer's stack grants it."`
	Runner      *Runner      `json:"runner,omitempty" check:"runner" doc:"Which runners can run the app's jobs. Without it, every runner can."`
	Sandbox     *Sandbox     `json:"sandbox,omitempty" check:"sandbox" alias:"infrastructure cluster" doc:"What each install stands on: a component creates it, or it exists already. All other components come after it."`
	Bundle      *Bundle      `json:"bundle,omitempty" check:"closed" alias:"closed images" doc:"Makes the app closed: an install pulls only images of the app's lock, from its own registry. Write bundle: {} if the app has no further images."`
	Components  []Component  `json:"components" must:"there" check:"components" alias:"modules resources services" doc:"The parts of the app, by name. Each is deployed after the components that it needs."`
	Actions     []Action     `json:"actions,omitempty" check:"actions" alias:"tasks scripts hooks" doc:"What can be run on an install, by name: by hand, on a schedule, or around an operation of a component."`
}

// Input is a value that each install gives to the app. Required means that an install must give the value; a required
// input has no default. The value of a sensitive input is never shown, logged or stored in the clear. Default is a JSON
// value with numbers as json.Number. Default is nil if HasDefault is false.
type Input struct {
	Name        string `json:"name" key:"input"`
	Type        Type   `json:"type" check:"type" doc:"string (the default), number, bool, list, map, any, or a list or map of one type, such as list(string)."`
	Required    bool   `json:"required,omitempty" alias:"optional" doc:"Whether an install must give a value. True if not set and there is no default. If false without a default, the value is null."`
	Sensitive   bool   `json:"sensitive,omitempty" alias:"secret" doc:"Whether the value is secret: never shown, never logged, and stored encrypted."`
	Default     any    `json:"default,omitempty" check:"literal" doc:"The value if an install gives none."`
	HasDefault  bool   `json:"has_default,omitempty"`
	Description string `json:"description,omitempty" check:"description" doc:"Description of the value for the people who set it."`
	Group       string `json:"group,omitempty" doc:"The input group to which the input belongs."`
	// Generate is the length of the text that the control plane generates for an install that has no value; 0: none.
	Generate int    `json:"generate,omitempty" check:"generate" alias:"random" doc:"The length of a random text that an install gets if it gives no value. The input must be sensitive."`
	From     string `json:"from,omitempty" check:"from" doc:"Who gives the value: vendor (the default) or customer. An install can be created before the customer has given a required value."`
}

// UnmarshalJSON keeps every digit of a default that is a number.
func (in *Input) UnmarshalJSON(data []byte) error {
	type plain Input
	var p plain
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return err
	}
	*in = Input(p)
	return nil
}

// Component is one part of an app. It has its own jobs and state.
type Component struct {
	Name string `json:"name" key:"component"`
	Type string `json:"type" must:"there" check:"componenttype" alias:"kind" doc:"What the component is."` // a name in component.Types
	// Source is the folder of the component's module: a cleaned, slash-separated
	// path, relative to the app's folder or to the top of Git, Module or OCI. "." is the top.
	Source string `json:"source" must:"unless chart module oci" check:"source" alias:"path dir directory folder" doc:"The folder of the component, inside the app's folder, the git repository, the module or the OCI artifact."`
	// Git is the repository that has the source; nil: the app's folder has it.
	Git *Git `json:"git,omitempty" alias:"repository" doc:"The git repository that has the source. If absent: the app's folder has it."`
	// Chart is the chart in a repository of charts; nil: the app's folder or Git has the source.
	Chart *Chart `json:"chart,omitempty" doc:"The Helm chart in a repository of charts, for a component of type helm. It replaces source."`
	// Module is the module in a module registry; nil: the source is in another place.
	Module *RegistryModule `json:"module,omitempty" doc:"The module in a module registry, for a component of type terraform. Its source is then a folder of the module, which is its top if absent."`
	// OCI is the artifact in an OCI registry; nil: the source is in another place.
	OCI *OCI `json:"oci,omitempty" alias:"artifact package" doc:"The artifact in an OCI registry, by its digest, such as a plugin of another vendor. Its source is then a folder of the artifact, which is its top if absent."`
	// Build is how the image of a component of type docker-build is built; nil: the component is of another type.
	Build *ImageBuild `json:"build,omitempty" check:"build" alias:"docker" doc:"How the image is built, for a component of type docker-build."`
	// Logins holds the names of secrets of the build runner, by host. They do not change what a build makes.
	Logins map[string]string `json:"logins,omitempty" check:"buildlogins" alias:"registries" doc:"The names of secrets of the build runner, each with the login for a host besides that of the source: the registry of a private base image, or the host of a private module that the module calls. By the host, such as ghcr.io. A secret is USER:PASSWORD or a token."`
	// DependsOn holds the names of the components that must be deployed before this
	// component: the components listed under depends_on, and the components whose
	// outputs Vars refers to. The names are sorted, without repetition.
	DependsOn []string `json:"depends_on,omitempty" check:"dependson" alias:"needs requires dependencies after" doc:"Components that must be deployed before this one. Components whose outputs appear in vars are added automatically."`
	// Enabled is a reference to the input that switches the component on and off, such as "${inputs.monitoring}". "": the
	// component is always on.
	Enabled string `json:"enabled,omitempty" check:"enabled" alias:"when if condition count toggle" doc:"The input that switches the component on and off: a reference to an input of type bool, such as ${inputs.monitoring}. If it is false, a deployment destroys the component if it exists."`
	// Job is the size of the component's jobs. The zero Job is the size that the runner is configured for.
	Job Job `json:"job,omitzero" alias:"size resources" doc:"The size of the component's jobs. If absent: the size that the runner is configured for."`
	// Role is the role of the component's applies; "": that of the type's applies.
	Role string `json:"role,omitempty" check:"actionrole" alias:"permissions" doc:"The role of the customer's stack that an apply uses: read-only, deploy or provision. If absent: that of the type, which is provision for terraform and deploy for the others."`
	// Image is the image in which the component's jobs run: a text, or one reference to an output of a component of type
	// image. The zero Value: the jobs run where the runner's other jobs run.
	Image Value `json:"image,omitzero" check:"ownimage" alias:"container container_image" doc:"The image in which the jobs run, by digest: HOST/NAME@sha256:DIGEST, or an output of a component of type image such as ${components.NAME.outputs.reference}. If absent: the jobs run as the runner's other jobs do."`
	// Secrets holds the names of secrets that the customer gives to the component's jobs on its own runner. The names are
	// sorted, without repetition.
	Secrets []string `json:"secrets,omitempty" check:"secrets" doc:"Secrets that the customer gives to its runner, not to the control plane: var.NAME for a variable of the component, or the name of an environment variable. A job without one of them does not start."`
	// Options holds the values of the type's options, by name.
	Options map[string]Value `json:"options,omitempty" check:"options" alias:"settings config" doc:"Settings of the component's type, such as the namespace of a chart. A value can have references to inputs that are not sensitive, to the install and to outputs."`
	// Env holds the values of environment variables of the component's tool, by name. Each resolves to a text, a number or
	// a bool.
	Env map[string]Value `json:"env,omitempty" check:"env" alias:"environment" doc:"Environment variables of the component's tool: a text, a number or a bool, with references as in vars."`
	// Vars holds the values of the module's variables, by name.
	Vars map[string]Value `json:"vars,omitempty" check:"vars" alias:"variables inputs values with parameters" doc:"The module's variables: any value, with references such as ${inputs.NAME}, ${install.name} and ${components.NAME.outputs.OUTPUT}."`
}

// The prefixes of a component's values that are no variables. No variable has such a name.
const (
	OptionPrefix = "options."
	EnvPrefix    = "env."
)

// ImageValue is the name of a component's image among its values. No variable has such a name.
const ImageValue = "job.image"

// fieldOf returns the path of a value below its component: of an option or an environment variable with its prefix, of the
// image, or of a variable.
func fieldOf(value string) string {
	for _, prefix := range []string{OptionPrefix, EnvPrefix} {
		if strings.HasPrefix(value, prefix) {
			return "." + value
		}
	}
	if value == ImageValue {
		return ".image"
	}
	return ".vars." + value
}

// Values returns the component's variables, its options under their names with OptionPrefix, its environment variables
// under their names with EnvPrefix, and its image as ImageValue.
func (c Component) Values() map[string]Value {
	if len(c.Options)+len(c.Env) == 0 && !c.HasImage() {
		return c.Vars
	}
	out := make(map[string]Value, len(c.Vars)+len(c.Options)+len(c.Env)+1)
	if c.HasImage() {
		out[ImageValue] = c.Image
	}
	for name, v := range c.Env {
		out[EnvPrefix+name] = v
	}
	maps.Copy(out, c.Vars)
	for name, v := range c.Options {
		out[OptionPrefix+name] = v
	}
	return out
}

// Job is the size of a component's jobs. Both fields are set, or neither. A runner on Fargate gives each job a task of
// its own, so the size is one that Fargate supports.
type Job struct {
	CPU    runnerspec.CPU  `json:"cpu" must:"there" doc:"CPUs: 0.25, 0.5, 1, 2, 4, 8 or 16."`
	Memory runnerspec.Size `json:"memory" must:"there" doc:"Memory. Fargate supports only certain amounts with each number of CPUs."`
}

// AWS declares what an app uses in the customer's AWS account: each operation and the app's own roles.
type AWS struct {
	AWSUse
	Operations *AWSOperations `json:"operations,omitempty" doc:"What the jobs of one operation use beyond this. The app's own roles may use it too."`
}

// AWSOperations declares what the jobs of one operation use.
type AWSOperations struct {
	Provision   *AWSUse `json:"provision,omitempty" doc:"Applies of Terraform modules."`
	Deploy      *AWSUse `json:"deploy,omitempty" doc:"Other applies, such as a script."`
	Deprovision *AWSUse `json:"deprovision,omitempty" doc:"Destroys."`
}

// by returns the declaration of each operation, by its name; nil if it declares nothing.
func (o *AWSOperations) by() map[string]*AWSUse {
	if o == nil {
		return nil
	}
	return map[string]*AWSUse{awsaction.Provision: o.Provision, awsaction.Deploy: o.Deploy, awsaction.Deprovision: o.Deprovision}
}

// AWSUse lists services and actions. Both lists are sorted, without repetition.
type AWSUse struct {
	Services []string `json:"services,omitempty" check:"awsservice" alias:"service" doc:"Services with all their actions, each by the prefix of its IAM actions, such as lambda."`
	Actions  []string `json:"actions,omitempty" check:"awsaction" alias:"action permissions" doc:"Single IAM actions, or patterns with *, of services that the app does not use as a whole. Such as rds:Describe*."`
}

// canonical returns a sorted copy, or nil if nothing is declared.
func (w *AWS) canonical() *AWS {
	if w == nil {
		return nil
	}
	out := &AWS{}
	if use := w.AWSUse.canonical(); use != nil {
		out.AWSUse = *use
	}
	if o := w.Operations; o != nil {
		own := AWSOperations{Provision: o.Provision.canonical(), Deploy: o.Deploy.canonical(), Deprovision: o.Deprovision.canonical()}
		if own != (AWSOperations{}) {
			out.Operations = &own
		}
	}
	if out.Operations == nil && len(out.Services)+len(out.Actions) == 0 {
		return nil
	}
	return out
}

// canonical returns a sorted copy, or nil if nothing is declared.
func (u *AWSUse) canonical() *AWSUse {
	if u == nil || len(u.Services)+len(u.Actions) == 0 {
		return nil
	}
	out := &AWSUse{Services: slices.Clone(u.Services), Actions: slices.Clone(u.Actions)}
	slices.Sort(out.Services)
	slices.Sort(out.Actions)
	out.Services, out.Actions = slices.Compact(out.Services), slices.Compact(out.Actions)
	return out
}

// patterns returns the IAM action patterns, sorted.
func (u *AWSUse) patterns() []string {
	if u == nil {
		return nil
	}
	return awsaction.Of(u.Services, u.Actions)
}

// AWSActions returns the IAM action patterns that the app declares. If it declares some for one operation, each
// operation has a list of its own.
func (a *App) AWSActions() awsaction.Grants {
	if a.AWS == nil {
		return awsaction.Grants{}
	}
	common := a.AWS.patterns()
	out := awsaction.Grants{All: common}
	for operation, use := range a.AWS.Operations.by() {
		if out.Of == nil {
			out.Of = map[string][]string{}
		}
		out.Of[operation] = awsaction.Union(common, use.patterns())
		out.All = awsaction.Union(out.All, use.patterns())
	}
	return out
}

// Input returns the input of that name.
func (a *App) Input(name string) (Input, bool) {
	for _, in := range a.Inputs {
		if in.Name == name {
			return in, true
		}
	}
	return Input{}, false
}

// Component returns the component of that name.
func (a *App) Component(name string) (Component, bool) {
	for _, c := range a.Components {
		if c.Name == name {
			return c, true
		}
	}
	return Component{}, false
}

// Graph returns the components and their dependencies, in name order.
func (a *App) Graph() []graph.Node {
	nodes := make([]graph.Node, len(a.Components))
	for i, c := range a.Components {
		nodes[i] = graph.Node{Name: c.Name, Needs: slices.Clone(c.DependsOn)}
	}
	slices.SortFunc(nodes, func(a, b graph.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// document is the canonical form: the app and the version of its format.
type document struct {
	Fairlead any `json:"fairlead" must:"there" check:"version" alias:"version apiVersion" doc:"The version of this format. Begin the file with: fairlead: v1"`
	// Include is read by withIncludes. The canonical form has no trace of it.
	Include []string `json:"include,omitempty" check:"include" alias:"includes import imports" doc:"Files of the app's folder whose inputs, input groups and components are part of the app: paths, or patterns such as ./parts/*.yaml."`
	*App
}

// Canonical returns the bytes that are hashed, signed or stored for the app: JSON without insignificant white space,
// members in a fixed order, lists sorted, numbers and references in one spelling. Two configurations with the same
// meaning have the same bytes.
func (a *App) Canonical() ([]byte, error) {
	sorted := App{Name: a.Name, Description: a.Description, Components: slices.Clone(a.Components), InputGroups: slices.Clone(a.InputGroups),
		AWS: a.AWS.canonical(), Runner: a.Runner.canonical(), Sandbox: a.Sandbox, Bundle: a.Bundle.canonical()}
	var err error
	if sorted.Inputs, err = canonicalInputs("input", a.Inputs); err != nil {
		return nil, err
	}
	if sorted.Inputs == nil {
		sorted.Inputs = []Input{}
	}
	if sorted.Actions, err = canonicalActions(a.Actions); err != nil {
		return nil, err
	}
	slices.SortFunc(sorted.InputGroups, func(a, b InputGroup) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(sorted.Components, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
	for i := range sorted.Components {
		needs := slices.Clone(sorted.Components[i].DependsOn)
		slices.Sort(needs)
		sorted.Components[i].DependsOn = slices.Compact(needs)
		secrets := slices.Clone(sorted.Components[i].Secrets)
		slices.Sort(secrets)
		sorted.Components[i].Secrets = slices.Compact(secrets)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(document{Fairlead: FormatVersion, App: &sorted}); err != nil {
		return nil, fairlead.Invalid(fairlead.CodeInvalidApp, "write app %q: %v", a.Name, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// canonicalInputs returns a sorted copy with normalized defaults; nil if there are none.
func canonicalInputs(noun string, inputs []Input) ([]Input, error) {
	if len(inputs) == 0 {
		return nil, nil
	}
	out := slices.Clone(inputs)
	slices.SortFunc(out, func(a, b Input) int { return cmp.Compare(a.Name, b.Name) })
	for i := range out {
		if in := &out[i]; in.HasDefault {
			value, err := yamlnode.Normalize(in.Default)
			if err != nil {
				return nil, fairlead.Invalid(fairlead.CodeInvalidDefault, "the default of %s %q: %v", noun, in.Name, err)
			}
			in.Default = value
		}
	}
	return out, nil
}

// FromCanonical reads the output of Canonical. It refuses all bytes that Canonical would not write: bytes that are not
// an app, an app with problems, and an app in another spelling. The address of an app is computed from these bytes, and
// one app must not have two addresses. The escapes of encoding/json are accepted, because the address is computed
// without them. The error has fairlead.KindInvalid or fairlead.KindTooLarge.
func FromCanonical(data []byte) (*App, error) {
	if len(data) > MaxFileSize {
		return nil, &fairlead.Error{
			Kind: fairlead.KindTooLarge, Code: fairlead.CodeAppTooLarge,
			Message: "the app's configuration is larger than 1 MiB",
		}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	doc := document{App: &App{}}
	if err := dec.Decode(&doc); err != nil {
		return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidApp, Message: "this is not an app's configuration", Err: fairlead.JSONError(err)}
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fairlead.Invalid(fairlead.CodeInvalidApp, "there is data after the app's configuration")
	}
	if doc.Fairlead != FormatVersion {
		return nil, fairlead.Invalid(fairlead.CodeUnknownVersion, "the app's format is %s, this program reads %q", yamlnode.Quote(fmt.Sprint(doc.Fairlead)), FormatVersion)
	}
	if doc.App == nil { // check needs an app
		return nil, fairlead.Invalid(fairlead.CodeInvalidApp, "this is not an app's configuration")
	}
	var problems Problems
	check(doc.App, func(where, code, message, hint string) {
		problems = append(problems, Problem{
			File: FileName, Line: 1, Column: 1, Code: code, Message: yamlnode.NameOf(where) + ": " + message, Hint: hint,
		})
	})
	root, unreadable := yamlnode.ReadJSON(data)
	for _, p := range append(unreadable, yamlnode.ControlCharacters(root)...) {
		p.File, p.Line, p.Column = FileName, 1, 1 // the canonical form has one line, so a more exact place does not help a reader
		problems = append(problems, p)
	}
	if err := Problems(yamlnode.Finish(problems)).Err(); err != nil {
		return nil, err
	}
	addImplied(doc.App)
	again, err := doc.Canonical()
	if err != nil {
		return nil, err
	}
	// encoding/json escapes <, > and & when it embeds these bytes in other JSON.
	var escaped bytes.Buffer
	json.HTMLEscape(&escaped, again)
	if !bytes.Equal(again, data) && !bytes.Equal(escaped.Bytes(), data) {
		return nil, fairlead.Invalid(fairlead.CodeNotCanonical, "the app's configuration is not in canonical form")
	}
	return doc.App, nil
}
