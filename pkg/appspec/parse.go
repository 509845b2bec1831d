package appspec

import (
	"cmp"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

//go:generate env UPDATE_GOLDEN=1 go test -run TestCommittedSchemaIsCurrent .

// Parse reads app.yaml without checking that its sources exist. Problems name the file filename. It returns either the
// app, or a nil app and all problems. It never panics. Its time and memory are proportional to len(src), which
// MaxFileSize limits.
func Parse(filename string, src []byte) (*App, Problems) {
	r := read(filename, src, nil)
	if len(r.Problems) > 0 {
		return nil, yamlnode.Finish(r.Problems)
	}
	return r.app, nil
}

// reader converts nodes to an App and records the place of each node. It uses the same paths as check.
type reader struct {
	*yamlnode.Reader
	app *App // the part that could be read
}

// read is Parse for a file that may have problems, and that may include files of fsys unless fsys is nil.
func read(filename string, src []byte, fsys fs.FS) *reader {
	r := &reader{app: &App{Inputs: []Input{}}}
	r.Reader = yamlnode.NewReader(filename, r.rules())
	root := r.Source(yamlnode.Read, src, MaxFileSize, "Keep files and data in the modules.")
	if yamlnode.HasCode(r.Problems, "malformed-yaml") || (len(r.Problems) > 0 && root.Shape == yamlnode.Scalar) {
		return r // nothing to read further
	}
	root = r.withIncludes(root, fsys, len(src))
	r.Struct(root, &document{App: r.app}, "")
	r.complete()
	r.lowerSandbox()
	r.lowerBundle()
	check(r.app, r.report)
	r.Controls(root)
	if len(r.Problems) == 0 {
		addImplied(r.app)
		r.app.AWS = r.app.AWS.canonical()
		r.app.Runner = r.app.Runner.canonical()
		slices.SortFunc(r.app.Inputs, func(a, b Input) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(r.app.InputGroups, func(a, b InputGroup) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(r.app.Components, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(r.app.Actions, func(a, b Action) int { return cmp.Compare(a.Name, b.Name) })
		for i := range r.app.Actions {
			a := &r.app.Actions[i]
			slices.SortFunc(a.Params, func(a, b Input) int { return cmp.Compare(a.Name, b.Name) })
			slices.Sort(a.Before)
			slices.Sort(a.After)
		}
	}
	return r
}

// report is the reporter for check. It drops problems of values that could not be read, because those are reported
// already.
func (r *reader) report(where, code, message, hint string) {
	if !r.Bad(where) {
		r.At(r.Node(where).Place, code, message, hint)
	}
}

// rules returns the rules of app.yaml that field tags do not express.
func (r *reader) rules() yamlnode.Rules {
	type schema = yamlnode.Schema
	name := schema{"type": "string", "pattern": fairlead.NamePattern}
	var types, actionTypes []any
	typeDocs, optionDocs, actionDocs := "", "", ""
	for _, t := range component.Types() {
		if t.Generated {
			continue
		}
		if slices.Contains(component.ActionTypes(), t.Name) {
			actionTypes, actionDocs = append(actionTypes, t.Name), actionDocs+" "+t.Doc
		}
		types, typeDocs = append(types, t.Name), typeDocs+" "+t.Doc
		for _, o := range t.Options {
			optionDocs += fmt.Sprintf(" %s of %s: %s", o.Name, t.Name, o.Doc)
		}
	}
	return yamlnode.Rules{Hint: indentHint, Checks: map[string]yamlnode.Check{
		"version":     {Func: r.version, Schema: schema{"const": FormatVersion}},
		"name":        {Schema: name},
		"include":     {Schema: schema{"maxItems": maxIncludes}},
		"description": {Schema: schema{"maxLength": maxDescription}},
		"inputs":      {Schema: schema{"maxProperties": MaxInputs, "propertyNames": name}},
		"inputgroups": {Schema: schema{"maxProperties": MaxInputGroups, "propertyNames": name}},
		"generate":    {Schema: schema{"minimum": minGenerate, "maximum": maxGenerate}},
		"title":       {Schema: schema{"maxLength": maxTitle}},
		"from":        {Schema: schema{"enum": []any{fromVendor, FromCustomer}}},
		"type": {Schema: schema{
			"pattern":  `^\s*(string|number|bool|list|map|any|(list|map)\s*\(.+\))\s*$`,
			"examples": []any{"string", "number", "bool", "list", "map", "any", "list(string)", "map(string)"},
		}},
		"closed":        {},
		"bundleimages":  {Schema: schema{"maxProperties": bundle.MaxImages, "propertyNames": schema{"pattern": identifier.String()}}},
		"literal":       {Func: func(f yamlnode.Field, _ string) { r.literal(f.Value) }},
		"aws":           {Schema: schema{"minProperties": 1}},
		"awsservice":    {Schema: schema{"items": schema{"pattern": awsaction.ServicePattern(), "not": schema{"enum": awsaction.Refused()}}}},
		"awsaction":     {Schema: schema{"items": schema{"pattern": awsaction.Pattern(), "not": schema{"pattern": `^(` + strings.Join(awsaction.Refused(), "|") + `):`}}}},
		"runner":        {},
		"sandbox":       {Schema: schema{"oneOf": []any{schema{"required": []any{"created_by"}}, schema{"required": []any{"given"}}}}},
		"sandboxkind":   {Schema: schema{"enum": sandboxKinds()}},
		"configuration": {Schema: schema{"required": []any{"runner_configuration", "state_storage_configuration"}}},
		"trust":         {Schema: schema{"required": []any{"issuer", "claims"}, "propertyNames": schema{"enum": []any{"issuer", "audience", "claims", "keys"}}}},
		"given":         {Schema: schema{"minProperties": 1, "maxProperties": maxGiven, "propertyNames": schema{"pattern": identifier.String()}}},
		"runnerkinds":   {Schema: schema{"minItems": 1, "items": schema{"enum": runnerKinds()}}},
		"components":    {Schema: schema{"minProperties": 1, "maxProperties": MaxComponents, "propertyNames": name}},
		"componenttype": {Doc: typeDocs, Schema: schema{"enum": types}},
		"actions":       {Schema: schema{"minProperties": 1, "maxProperties": MaxActions, "propertyNames": name}},
		"actiontype":    {Doc: actionDocs, Schema: schema{"enum": actionTypes}},
		"actionrole":    {Schema: schema{"enum": roleNames()}},
		"params":        {Schema: schema{"maxProperties": MaxParams, "propertyNames": name}},
		"hooks":         {Func: r.hook, Schema: schema{"uniqueItems": true, "maxItems": maxHooks, "items": schema{"type": "string", "pattern": `^` + fairlead.NameForm + `\.(` + strings.Join(hookOperations, "|") + `)$`}}},
		"source":        {Schema: schema{"minLength": 1}},
		"build":         {},
		"buildplatform": {Schema: schema{"uniqueItems": true, "maxItems": maxPlatforms, "items": schema{"pattern": platformPattern.String()}}},
		"buildargs":     {Schema: schema{"maxProperties": maxBuildArgs, "propertyNames": schema{"pattern": buildArgPattern.String()}}},
		"buildlogins":   {Schema: schema{"maxProperties": maxLogins, "propertyNames": schema{"pattern": loginHost.String()}, "additionalProperties": schema{"pattern": runnerspec.OwnSecretName}}},
		"enabled":       {Schema: schema{"pattern": switchPattern}},
		"ownimage":      {Schema: schema{"type": "string", "pattern": imagePattern + "|" + imageReference}},
		"dependson":     {Func: r.dependency, Schema: schema{"uniqueItems": true, "items": name}},
		"secrets":       {Schema: schema{"maxItems": maxSecrets, "items": schema{"pattern": runnerspec.OwnSecretName}}},
		"env":           {Schema: schema{"maxProperties": maxEnv, "propertyNames": schema{"pattern": envName.String()}}},
		"options":       {Schema: schema{"maxProperties": maxOptions, "propertyNames": schema{"pattern": identifier.String()}}, Doc: optionDocs},
		"vars":          {Schema: schema{"maxProperties": MaxVars, "propertyNames": schema{"pattern": identifier.String()}}},
	}}
}

func (r *reader) version(f yamlnode.Field, _ string) {
	if f.Value.Value != FormatVersion {
		got := f.Value.Describe()
		switch v := f.Value.Value.(type) {
		case string:
			got = yamlnode.Quote(v)
		case fmt.Stringer: // a number
			got = v.String()
		}
		r.At(f.Value.Place, "unknown-version", fmt.Sprintf("the format %s is unknown", got), fmt.Sprintf("This program reads %q.", FormatVersion))
	}
}

// literal reports references in a value that must not hold any.
func (r *reader) literal(n yamlnode.Node) {
	if text, ok := n.Value.(string); ok && strings.Contains(text, "${") {
		p := append(n.Dollars, n.Place)[0]
		r.At(p, "reference-in-default", "a default cannot hold a reference", "Put the reference into a component's vars.")
	}
	for _, item := range n.Items {
		r.literal(item)
	}
	for _, f := range n.Fields {
		r.literal(f.Value)
	}
}

// dependency checks one item of depends_on and records its place.
func (r *reader) dependency(f yamlnode.Field, where string) { r.listed("component", f, where) }

// hook checks one item of before or after and records its place.
func (r *reader) hook(f yamlnode.Field, where string) { r.listed("operation", f, where) }

// listed records the place of an item of a list. It reports an item that is in the list already.
func (r *reader) listed(noun string, f yamlnode.Field, where string) {
	text := f.Value.Value.(string)
	named := strings.TrimSuffix(where, "."+f.Key) + "|" + text
	if r.Given(named) {
		r.At(f.Place, "duplicate-name", fmt.Sprintf("the %s %s is listed twice", noun, yamlnode.Quote(text)), "")
		return
	}
	r.Put(named, f.Value)
}

// complete fills in omitted values and puts given values into canonical spelling.
func (r *reader) complete() {
	r.completeInputs("inputs.", r.app.Inputs)
	for i := range r.app.Actions {
		a := &r.app.Actions[i]
		r.completeInputs("actions."+a.Name+".params.", a.Params)
		if clean, wrong, _ := cleanSource(a.Source); wrong == "" {
			a.Source = clean
		}
	}
	for i := range r.app.Components {
		c := &r.app.Components[i]
		if (c.Chart != nil || c.Module != nil || c.OCI != nil) && !r.Given("components."+c.Name+".source") {
			c.Source = "."
		}
		c.completeBuild()
		c.Enabled = switchSpelling(c.Enabled)
		if clean, wrong, _ := cleanSource(c.Source); wrong == "" {
			c.Source = clean
		}
	}
}

// completeInputs is complete for inputs, or for the params of an action. prefix begins the path of each.
func (r *reader) completeInputs(prefix string, inputs []Input) {
	for i := range inputs {
		in := &inputs[i]
		where := prefix + in.Name
		in.HasDefault = r.Given(where + ".default")
		_, given := r.Node(where + ".required").Value.(bool)
		in.Required = in.Required || (!given && !in.HasDefault && in.Generate == 0)
		if in.From == fromVendor {
			in.From = ""
		}
		if t := r.Node(where + ".type"); !r.Given(where + ".type") {
			in.Type = String
		} else if t.IsNull() {
			r.WrongType(t, where+".type", "a string", "")
		}
		if t, err := ParseType(string(in.Type)); err == nil {
			in.Type = t
		}
	}
}

// indentHint suggests that an unknown field of the map at the path where belongs one level deeper. It returns "" if the
// file gives no evidence for this.
func indentHint(where string, f yamlnode.Field, in yamlnode.Node) string {
	in.Fields = in.Fields[:slices.IndexFunc(in.Fields, func(g yamlnode.Field) bool { return g.Place == f.Place })] // the fields above f
	_, components := in.Child("components")
	vars, hasVars := in.Child("vars")
	switch {
	case where == "" && components && slices.ContainsFunc(yamlnode.FieldsOf(reflect.TypeFor[Component]()), func(t yamlnode.FieldType) bool { return t.Name == f.Key }):
		return fmt.Sprintf("%s is a field of a component. Is line %d indented too little?", yamlnode.Quote(f.Key), f.Line)
	case where != "" && hasVars && vars.IsNull() && f.Line > vars.Line:
		return fmt.Sprintf("vars, in line %d, is empty. Is line %d indented too little?", vars.Line, f.Line)
	}
	return ""
}
