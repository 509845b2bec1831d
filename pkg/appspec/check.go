package appspec

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/graph"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// reporter takes one problem. where is a path such as "components.web.vars.size". For a reference inside a value, where
// is the path, "|" and the reference.
type reporter func(where, code, message, hint string)

// check reports all problems of an app whose fields have the right types. Resolve and Graph work only for an app
// without such problems.
func check(a *App, report reporter) {
	checkName(report, "name", "app", a.Name)
	checkDescription(report, "description", a.Description)
	if len(a.Inputs) > MaxInputs {
		report("inputs", "too-many-inputs", fmt.Sprintf("the app has %d inputs, %d are allowed", len(a.Inputs), MaxInputs), "")
	}
	inputs := map[string]Input{}
	for _, in := range a.Inputs {
		where := "inputs." + in.Name
		if _, twice := inputs[in.Name]; twice {
			report(where, "duplicate-name", fmt.Sprintf("the input %s is declared twice", yamlnode.Quote(in.Name)), "")
		}
		inputs[in.Name] = in
		checkInput(report, where, "input", in)
	}

	checkGroups(report, a)
	checkAWS(report, a)
	checkRunner(report, a)
	switch n := len(a.Components); {
	case n == 0:
		report("components", "empty-app", "the app has no component", "Declare at least one under components.")
	case n > MaxComponents:
		report("components", "too-many-components", fmt.Sprintf("the app has %d components, %d are allowed", n, MaxComponents), "Split the app.")
	}
	components, types := map[string]bool{}, map[string]string{}
	for _, c := range a.Components {
		if components[c.Name] {
			report("components."+c.Name, "duplicate-name", fmt.Sprintf("the component %s is declared twice", yamlnode.Quote(c.Name)), "")
		}
		components[c.Name], types[c.Name] = true, c.Type
	}
	// edges maps each component to the components that it needs, and to the path where each need is declared.
	edges := map[string]map[string]string{}
	for _, c := range a.Components {
		edges[c.Name] = checkComponent(report, c, scopeNames{inputs: inputs, components: components, types: types})
	}
	checkBundle(report, a)
	checkSwitches(report, a)
	checkSandbox(report, a, inputs, edges)
	checkRunnersFit(report, a)
	checkActions(report, a, scopeNames{inputs: inputs, components: components, types: types, action: true}, edges)
	checkImagesFit(report, a)
	checkCycles(report, edges)
}

// checkAWS reports each declared service and action that the customer's stack would refuse.
func checkAWS(report reporter, a *App) {
	if a.AWS == nil {
		return
	}
	checkAWSUse(report, "aws", &a.AWS.AWSUse)
	for operation, use := range a.AWS.Operations.by() {
		checkAWSUse(report, "aws.operations."+operation, use)
	}
	actions := a.AWSActions()
	if len(actions.All) > 0 {
		for operation := range actions.Of {
			if len(actions.Of[operation]) == 0 {
				report("aws.operations", "no-actions", fmt.Sprintf("the operation %s may use nothing", operation),
					"Declare what each operation uses under aws.services or aws.actions, and under aws.operations only what one operation uses beyond it.")
			}
		}
	}
	size := 0
	for _, action := range actions.All {
		size += awsaction.Size(action)
	}
	if size > awsaction.MaxSize {
		report("aws", "too-many-actions", fmt.Sprintf("the actions take %d characters of a policy, %d are allowed", size, awsaction.MaxSize),
			"Declare a service, or use patterns such as rds:Describe*, in place of single actions.")
	}
}

// checkAWSUse reports the services and actions of a declaration that the customer's stack would refuse.
func checkAWSUse(report reporter, where string, use *AWSUse) {
	if use == nil {
		return
	}
	for i, name := range use.Services {
		if problem, hint := awsaction.CheckService(name); problem != "" {
			report(fmt.Sprintf("%s.services.%d", where, i+1), "invalid-aws-service", fmt.Sprintf("%s: %s", yamlnode.Quote(name), problem), hint)
		}
	}
	for i, action := range use.Actions {
		if problem, hint := awsaction.Check(action); problem != "" {
			report(fmt.Sprintf("%s.actions.%d", where, i+1), "invalid-aws-action", fmt.Sprintf("%s: %s", yamlnode.Quote(action), problem), hint)
		}
	}
}

func checkName(report reporter, where, noun, name string) {
	err := fairlead.CheckName(noun, name)
	if err == nil {
		return
	}
	hint := "Use 1 to 63 lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit."
	// Most invalid names are in the style of Terraform's variables.
	if better := strings.Trim(strings.NewReplacer("_", "-", " ", "-", ".", "-").Replace(strings.ToLower(name)), "-"); fairlead.CheckName(noun, better) == nil {
		hint = fmt.Sprintf("Write %q: lower-case letters, digits and hyphens.", better)
	}
	report(where, "invalid-name", fmt.Sprintf("%s is not a valid %s name", yamlnode.Quote(name), noun), hint)
}

func checkDescription(report reporter, where, text string) {
	if len(text) > maxDescription {
		report(where, "too-long", fmt.Sprintf("the description is longer than %d bytes", maxDescription), "")
	}
}

// checkInput checks an input of the app, or a param of an action. noun is what it is.
func checkInput(report reporter, where, noun string, in Input) {
	checkName(report, where, noun, in.Name)
	checkDescription(report, where+".description", in.Description)
	t, err := ParseType(string(in.Type))
	if err != nil || t != in.Type {
		report(where+".type", "unknown-type", fmt.Sprintf("%s is not a type of %s", yamlnode.Quote(string(in.Type)), noun), typeHint(string(in.Type)))
		in.Type = Any // the unknown type is the problem: do not check the default as well
	}
	switch {
	case in.HasDefault != (in.Default != nil):
		report(where+".default", "wrong-type", fmt.Sprintf("the default of %s %s is null", noun, yamlnode.Quote(in.Name)),
			fmt.Sprintf(`For an optional %s, write "required: false" and no default.`, noun))
		return
	case !in.HasDefault:
		return
	case in.Required:
		report(where+".required", "required-with-default", fmt.Sprintf("the %s %s is required and has a default, which is never used", noun, yamlnode.Quote(in.Name)),
			"Remove one of the two.")
	}
	if err := in.Type.Check(in.Default); err != nil {
		hint := ""
		if outer, _ := in.Type.outer(); outer == Bool && in.Default != "" {
			hint = "Write true or false, without quotes."
		} else if outer == Number {
			hint = "Write a number without quotes."
		} else if outer == String {
			hint = "Put quotes around it, or declare another type."
		}
		report(where+".default", "wrong-type", fmt.Sprintf("the default of %s %s %v", noun, yamlnode.Quote(in.Name), err), hint)
	}
}

// checkComponent returns the components that c needs, each with the path where the
// need is declared.
func checkComponent(report reporter, c Component, names scopeNames) map[string]string {
	where := "components." + c.Name
	checkName(report, where, "component", c.Name)
	if _, ok := component.Of(c.Type); !ok || c.Type == "" {
		report(where+".type", "unknown-type", fmt.Sprintf("%s is not a type of component", yamlnode.Quote(c.Type)), yamlnode.DidYouMean(c.Type, "types", component.Written()))
	}
	if !c.InFolder() {
		checkBuiltSource(report, where, c)
	} else {
		checkSource(report, where, c.Source)
	}
	checkImageBuild(report, where, c)
	checkLogins(report, where+".logins", c)
	checkJob(report, where, c.Job)
	if c.Role != "" && !slices.Contains(component.DeclaredRoles(), component.Role(c.Role)) {
		report(where+".role", "unknown-role", fmt.Sprintf("%s is not a role of applies", yamlnode.Quote(c.Role)), yamlnode.DidYouMean(c.Role, "roles", roleNames()))
	}
	needs := map[string]string{}
	for _, need := range c.DependsOn {
		place := where + ".depends_on|" + need
		switch {
		case need == c.Name:
			report(place, "self-reference", fmt.Sprintf("the component %s depends on itself", yamlnode.Quote(c.Name)), "")
		case !names.components[need]:
			report(place, "unknown-reference", fmt.Sprintf("there is no component %s", yamlnode.Quote(need)),
				yamlnode.DidYouMean(need, "components", slices.Collect(maps.Keys(names.components))))
		default:
			needs[need] = place
		}
	}
	checkSecrets(report, where, c)
	maps.Copy(needs, checkVars(report, where, c, names))
	return needs
}

// checkVars checks the variables and options of a component, or of an action's part. It returns the components whose
// outputs they refer to, each with the place of such a reference.
func checkVars(report reporter, where string, c Component, names scopeNames) map[string]string {
	needs := map[string]string{}
	noun := "component"
	if names.action {
		noun = "action"
	}
	shown := yamlnode.Quote(strings.TrimPrefix(c.Name, ActionPrefix))
	if len(c.Vars) > MaxVars {
		report(where+".vars", "too-many-vars", fmt.Sprintf("the %s %s sets %d vars, %d are allowed", noun, shown, len(c.Vars), MaxVars), "")
	}
	if len(c.Env) > maxEnv {
		report(where+".env", "too-many-env", fmt.Sprintf("the %s %s sets %d environment variables, %d are allowed", noun, shown, len(c.Env), maxEnv), "")
	}
	if len(c.Options) > maxOptions {
		report(where+".options", "too-many-options", fmt.Sprintf("the %s %s sets %d options, %d are allowed", noun, shown, len(c.Options), maxOptions), "")
	}
	values := c.Values()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		place := where + fieldOf(key)
		if name, ok := strings.CutPrefix(key, OptionPrefix); ok {
			checkOption(report, place, c, name, value, names.inputs)
		} else if name, ok := strings.CutPrefix(key, EnvPrefix); ok {
			checkEnv(report, place, c, name, value)
		} else if key == ImageValue {
			checkImage(report, place, c, names)
		} else if name := key; !identifier.MatchString(name) || len(name) > 2*fairlead.MaxName {
			report(place, "invalid-name", fmt.Sprintf("%s is not a valid name of a variable", yamlnode.Quote(name)),
				"Use letters, digits, underscores and hyphens; begin with a letter or an underscore.")
		}
		for _, ref := range value.References() {
			checkReference(report, place+"|"+ref.String(), c, ref, names)
			if ref.Namespace == Components && names.components[ref.Name] && ref.Name != c.Name {
				needs[ref.Name] = place + "|" + ref.String()
			}
		}
		value.each(func(t template) {
			if len(t) > 1 {
				checkText(report, place, t, names)
			}
		})
	}
	return needs
}

func checkSource(report reporter, where, source string) {
	if clean, message, hint := cleanSource(source); message != "" {
		report(where+".source", "invalid-source", fmt.Sprintf("the source %s %s", yamlnode.Quote(source), message), hint)
	} else if clean != source {
		report(where+".source", "invalid-source", fmt.Sprintf("the source %s must be written as %q", yamlnode.Quote(source), clean), "")
	}
}

func checkJob(report reporter, where string, j Job) {
	if j == (Job{}) {
		return
	}
	if field, message, hint := runnerspec.OnFargate(j.CPU, j.Memory); field != "" {
		report(where+".job."+field, "invalid-value", "the job's "+message, hint)
	}
}

// scopeNames are the names that references can have.
type scopeNames struct {
	inputs     map[string]Input
	params     map[string]Input // of an action
	components map[string]bool
	types      map[string]string // of the components
	action     bool              // the references are in the variables of an action
}

// maxOptions is the largest number of options of a component.
const maxOptions = 50

// checkOption checks an option of the component: its name, and its value if it is the same for every install.
func checkOption(report reporter, place string, c Component, name string, value Value, inputs map[string]Input) {
	t, known := component.Of(c.Type)
	o, ok := t.Option(name)
	if known && !ok && !t.AnyOptions {
		names := make([]string, len(t.Options))
		for i, o := range t.Options {
			names[i] = o.Name
		}
		hint := yamlnode.DidYouMean(name, "options", names)
		if len(names) == 0 {
			hint = fmt.Sprintf("Components of type %s have no options.", c.Type)
		}
		report(place, "unknown-option", fmt.Sprintf("%s is not an option of the type %s", yamlnode.Quote(name), c.Type), hint)
		return
	}
	for _, ref := range value.References() {
		if ref.Namespace == Inputs && inputs[ref.Name].Sensitive {
			report(place+"|"+ref.String(), "sensitive-option", fmt.Sprintf("%s is sensitive, and an option is shown", ref.show()), "Give the value in vars.")
		}
	}
	if len(value.References()) > 0 || !ok {
		return
	}
	if wants := o.Kind.Check(value.tree); wants != "" {
		report(place, "wrong-type", fmt.Sprintf("the option %s must be %s", name, wants), "")
	}
}

var secretName = pattern.New(runnerspec.OwnSecretName)

// checkSecrets checks the names of secrets that the customer gives to the component.
func checkSecrets(report reporter, where string, c Component) {
	if len(c.Secrets) > maxSecrets {
		report(where+".secrets", "too-many-secrets", fmt.Sprintf("the component %s needs %d secrets of the customer, %d are allowed", yamlnode.Quote(c.Name), len(c.Secrets), maxSecrets), "")
	}
	for i, name := range c.Secrets {
		place := fmt.Sprintf("%s.secrets.%d", where, i+1)
		variable := runnerspec.SecretVariable(name)
		_, set := c.Vars[variable]
		switch {
		case !secretName.MatchString(name):
			report(place, "invalid-name", fmt.Sprintf("%s is not a valid name of a secret", yamlnode.Quote(name)),
				cmp.Or(runnerspec.SecretNameHint(name), "Use var.NAME for a variable of the component, or the name of an environment variable."))
		case variable == "" && (component.Reserved(name) || strings.HasPrefix(strings.ToUpper(name), "FAIRLEAD_")):
			report(place, "reserved-name", fmt.Sprintf("the environment variable %s is set by the runner itself", yamlnode.Quote(name)), "For a variable of the component, write var.NAME.")
		case variable != "" && set:
			report(place, "duplicate-name", fmt.Sprintf("the variable %s is in vars and in secrets", yamlnode.Quote(variable)), "Remove one of the two.")
		}
	}
}

func checkReference(report reporter, where string, c Component, ref Reference, names scopeNames) {
	declared := names.declared(ref.Namespace)
	switch ref.Namespace {
	case Params:
		if !names.action {
			report(where, "unknown-reference", fmt.Sprintf("%s refers to a param, and only an action has params", ref.show()), "A component's values come from inputs: ${inputs.NAME}.")
			return
		}
		checkDeclared(report, where, "param", ref, declared)
	case Inputs:
		checkDeclared(report, where, "input", ref, declared)
	case Install:
		if !slices.Contains(InstallNames(), ref.Name) {
			report(where, "unknown-reference", fmt.Sprintf("%s refers to an unknown fact of the install", ref.show()),
				yamlnode.DidYouMean(ref.Name, "names under install", InstallNames()))
		}
	case Components:
		switch {
		case ref.Name == c.Name:
			report(where, "self-reference", fmt.Sprintf("%s refers to an output of its own component", ref.show()), "")
		case !names.components[ref.Name]:
			report(where, "unknown-reference", fmt.Sprintf("%s refers to a component that is not declared", ref.show()),
				yamlnode.DidYouMean(ref.Name, "components", slices.Collect(maps.Keys(names.components))))
		}
	}
}

// declared returns the declarations to which references of the namespace refer; nil if it has none.
func (n scopeNames) declared(namespace string) map[string]Input {
	switch namespace {
	case Inputs:
		return n.inputs
	case Params:
		return n.params
	}
	return nil
}

// checkDeclared checks a reference to an input or a param. noun is which of the two.
func checkDeclared(report reporter, where, noun string, ref Reference, declared map[string]Input) {
	in, ok := declared[ref.Name]
	if !ok {
		article := "a"
		if noun == "input" {
			article = "an"
		}
		report(where, "unknown-reference", fmt.Sprintf("%s refers to %s %s that is not declared", ref.show(), article, noun),
			yamlnode.DidYouMean(ref.Name, noun+"s", slices.Collect(maps.Keys(declared))))
		return
	}
	if outer, _ := in.Type.outer(); len(ref.Path) > 0 && (outer == String || outer == Number || outer == Bool) {
		report(where, "wrong-type", fmt.Sprintf("%s has a path into %s %q, which is a %s", ref.show(), noun, in.Name, in.Type), "")
	}
}

// checkText reports references to lists and maps inside a text, if the declared type of an input is a list or map.
// Outputs have no declared type; Resolve checks outputs.
func checkText(report reporter, where string, text template, names scopeNames) {
	for _, part := range text {
		ref, _ := part.(Reference)
		in, ok := names.declared(ref.Namespace)[ref.Name]
		if !ok {
			continue
		}
		t := in.Type
		for range ref.Path {
			_, t = t.outer()
		}
		if outer, _ := t.outer(); outer == List || outer == Map {
			report(where+"|"+ref.String(), "not-a-scalar", fmt.Sprintf("%s is a %s, which cannot be part of a text", ref.show(), t),
				"Write the reference as the whole value, and build the text in the module.")
		}
	}
}

// checkCycles reports cycles of dependencies. Two reported cycles never share a component.
func checkCycles(report reporter, edges map[string]map[string]string) {
	for {
		var nodes []graph.Node
		for name, needs := range edges {
			nodes = append(nodes, graph.Node{Name: name, Needs: slices.Collect(maps.Keys(needs))})
		}
		cycle := graph.Cycle(nodes)
		if cycle == nil {
			return
		}
		report(edges[cycle[0]][cycle[1]], "cycle", "these components depend on each other in a cycle: "+strings.Join(cycle, " -> "),
			"Each waits for the next. Remove one of the references or one entry of depends_on.")
		for _, name := range cycle {
			delete(edges, name)
		}
	}
}

// cleanSource returns the canonical path of a component's source, or a message and a hint if the source is invalid.
func cleanSource(source string) (clean, message, hint string) {
	const local = "Name a folder next to app.yaml, such as ./network."
	switch {
	case source == "":
		return "", "is empty", local
	case len(source) > 500:
		return "", "is longer than 500 bytes", ""
	case strings.Contains(source, "://") || strings.Contains(source, "::"):
		return "", "is not a local folder", "A source is a folder in the app's folder. To use a remote module, call it from a module there. " + local
	case strings.Contains(source, `\`) || (len(source) > 1 && source[1] == ':'):
		return "", "is not a path with forward slashes", local
	case strings.HasPrefix(source, "/") || strings.HasPrefix(source, "~"):
		return "", "is not inside the app's folder", local
	case strings.ContainsFunc(source, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", "holds a control character", local
	case strings.Contains(source, "${"):
		return "", "holds a reference", "A source is the same for every install. " + local
	}
	clean = path.Clean(source)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", "leaves the app's folder", "Only what is inside the app's folder is shipped. " + local
	}
	return clean, "", ""
}

// addImplied adds to each component's DependsOn the components whose outputs its vars
// refer to, the one that creates the sandbox, and the one that deploys the runner of its
// jobs. It sorts DependsOn.
func addImplied(a *App) {
	inSandbox := map[string]bool{}
	for _, c := range a.Components {
		inSandbox[c.Name] = a.InSandbox(c.Name)
	}
	for i := range a.Components {
		c := &a.Components[i]
		if ground := a.ground(); ground != "" && c.Name != ground {
			c.DependsOn = append(c.DependsOn, ground)
		}
		if inSandbox[c.Name] {
			c.DependsOn = append(c.DependsOn, a.Sandbox.Runner.DeployedBy)
		}
		for _, v := range c.Values() {
			for _, ref := range v.References() {
				if ref.Namespace == Components {
					c.DependsOn = append(c.DependsOn, ref.Name)
				}
			}
		}
		slices.Sort(c.DependsOn)
		c.DependsOn = slices.Compact(c.DependsOn)
	}
}
