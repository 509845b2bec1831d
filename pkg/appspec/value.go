package appspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Value is the value of a component's variable: a literal, a reference that keeps the type of its target, a text with
// references in it, or a list or map of values. The zero Value is null. Values are immutable.
//
// Its JSON is the notation of app.yaml: a reference is the string "${inputs.size}", and a literal "${" is "$${".
type Value struct {
	// tree is a normalized JSON value in which each text with references is a template. Plain strings in it are never
	// read as references.
	tree any
}

// template holds the parts of a text with references, each a string or a Reference. A template that is one single
// reference keeps the type of its target.
type template []any

// References returns the references of the value in the order of the text, with repetitions. The order in a map is the
// order of its keys.
func (v Value) References() []Reference {
	var refs []Reference
	v.each(func(t template) {
		for _, part := range t {
			if ref, ok := part.(Reference); ok {
				refs = append(refs, ref)
			}
		}
	})
	return refs
}

// each calls f for each template in v, keys in order.
func (v Value) each(f func(template)) {
	// Transform fails only on excessive depth, and no Value is too deep.
	_, _ = yamlnode.Transform(v.tree, func(leaf any) (any, error) {
		if t, ok := leaf.(template); ok {
			f(t)
		}
		return leaf, nil
	})
}

// Scope holds the values that references resolve to.
type Scope struct {
	// Inputs holds a value for every declared input, as CheckInputs returns it.
	Inputs map[string]Resolved
	// Params holds a value for every declared param of an action, as CheckParams returns it. It is nil for a component.
	Params map[string]Resolved
	// Install holds the facts about the install, keyed by InstallNames.
	Install map[string]string
	// Outputs returns an output of a component that is already deployed.
	Outputs func(component, output string) (Resolved, bool)
}

// Resolved is a JSON value and whether it must be kept secret.
type Resolved struct {
	Value     any // or a Withheld
	Sensitive bool
}

// UnresolvedError reports a reference whose target has no value (yet).
type UnresolvedError struct {
	Reference Reference
	Reason    string // such as "component \"database\" has no output \"url\""
}

// Error names the reference and why it has no value.
func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("%s cannot be resolved: %s", e.Reference.show(), e.Reason)
}

// Resolve returns the JSON value of v in scope: a copy that the caller owns, with numbers as json.Number. The result is
// sensitive if any value in it is. The error is an *UnresolvedError if scope lacks a value, or a *fairlead.Error of
// KindInvalid with the code "not-a-scalar" if a list, map or null would become text. Errors hold names, never values.
// The scope must not withhold what v refers to.
func (v Value) Resolve(s Scope) (value any, sensitive bool, err error) {
	value, sensitive, err = v.resolve(s)
	if err == nil && isWithheld(value) {
		return nil, false, errWithheld
	}
	return value, sensitive, err
}

// resolve is Resolve for any scope. In place of what the scope withholds, the tree has leaves of the types withheld and
// withheldText.
func (v Value) resolve(s Scope) (value any, sensitive bool, err error) {
	value, err = yamlnode.Transform(v.tree, func(leaf any) (any, error) {
		t, ok := leaf.(template)
		if !ok {
			return leaf, nil
		}
		value, secret, err := t.resolve(s)
		sensitive = sensitive || secret
		return value, err
	})
	if err != nil {
		return nil, false, err
	}
	return value, sensitive, nil
}

// Withhold returns v with each reference resolved in scope, except those whose targets are sensitive, or are a whole list or map. What remains is
// resolved later, in another scope that has the sensitive values. Its errors are those of Resolve, except that a reference
// in a text to a sensitive list, map or null is left for the later one.
func (v Value) Withhold(s Scope) (Value, error) {
	tree, err := yamlnode.Transform(v.tree, func(leaf any) (any, error) {
		if t, ok := leaf.(template); ok {
			return t.withhold(s)
		}
		return leaf, nil
	})
	return Value{tree: tree}, err
}

// Shown is a value as a person may see it.
type Shown struct {
	Value     any      // JSON value; nil if Problem is set
	Sensitive bool     // a part of Value is masked
	After     []string // sorted: the components whose outputs Value waits for
	Problem   string   // why a deployment would refuse the value; "" if it would not
}

// Show returns the value of v in scope, with changeset.Sensitive in place of each sensitive text, list or map. In place of a
// text that needs an output which does not exist yet, it has "(known after COMPONENT)". All else is resolved, also inside
// lists and maps.
func (v Value) Show(s Scope) (Shown, error) {
	var out Shown
	value, err := yamlnode.Transform(v.tree, func(leaf any) (any, error) {
		t, ok := leaf.(template)
		if !ok {
			return leaf, nil
		}
		value, secret, err := t.resolve(s)
		if err == nil && !secret && isWithheld(value) {
			return nil, errWithheld
		}
		if missing, ok := errors.AsType[*UnresolvedError](err); ok && missing.Reference.Namespace == Components {
			out.After = append(out.After, missing.Reference.Name)
			return KnownAfter(missing.Reference.Name), nil
		} else if ok && missing.Reference.Namespace == Install {
			return KnownAfter("the sandbox"), nil // a fact of the runner in the sandbox
		}
		if secret {
			out.Sensitive = true
			value = changeset.Sensitive
		}
		return value, err
	})
	slices.Sort(out.After)
	out.After = slices.Compact(out.After)
	_, missing := errors.AsType[*UnresolvedError](err)
	switch {
	case missing || fairlead.KindOf(err) == fairlead.KindInvalid:
		return Shown{Problem: err.Error()}, nil
	case err != nil:
		return Shown{}, err
	}
	out.Value = value
	return out, nil
}

// KnownAfter returns the text in place of a value that needs an output of the component.
func KnownAfter(component string) string { return "(known after " + component + ")" }

// SensitiveOption returns the error of an option whose value is sensitive, such as an output that app.yaml does not show to be so.
func SensitiveOption(component, option string) error {
	return fairlead.Invalid(fairlead.CodeSensitiveOption, "the option %s of component %s has a sensitive value, and options are shown; give the value in vars", option, component)
}

func (t template) resolve(s Scope) (_ any, sensitive bool, err error) {
	var text withheldText
	for _, part := range t {
		ref, ok := part.(Reference)
		if !ok {
			text = text.appendText(part.(string))
			continue
		}
		value, secret, err := ref.resolve(s)
		if err != nil || len(t) == 1 {
			return value, secret, err
		}
		sensitive = sensitive || secret
		switch value := value.(type) {
		case string:
			text = text.appendText(value)
		case json.Number:
			text = text.appendText(string(value))
		case bool:
			text = text.appendText(strconv.FormatBool(value))
		case withheld:
			if !value.Type.scalar() {
				return nil, false, notAScalar(ref, value.Type.describe())
			}
			text = append(text, value)
		default:
			return nil, false, notAScalar(ref, yamlnode.Describe(value))
		}
	}
	if whole, ok := text.whole(); ok {
		return whole, sensitive, nil
	}
	return text, sensitive, nil
}

func isContainer(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// withhold returns t with each part resolved that is not sensitive: a template, or a value without references.
func (t template) withhold(s Scope) (any, error) {
	var left template
	for _, part := range t {
		ref, ok := part.(Reference)
		if !ok {
			left = append(left, part)
			continue
		}
		value, secret, err := ref.resolve(s)
		switch {
		case err != nil:
			return nil, err
		case secret:
			left = append(left, ref)
		case len(t) == 1 && isContainer(value):
			left = append(left, ref) // its keys and texts could be read as references
		case len(t) == 1:
			return value, nil
		default:
			text, _, err := template{ref, ""}.resolve(s)
			if err != nil {
				return nil, err
			}
			left = append(left, text)
		}
	}
	if !slices.ContainsFunc(left, func(part any) bool { _, ok := part.(Reference); return ok }) {
		text, _, err := append(left, "").resolve(s)
		return text, err
	}
	return left, nil
}

// resolve looks up the reference and follows its path.
func (r Reference) resolve(s Scope) (any, bool, error) {
	found, ok := Resolved{}, false
	missing := ""
	switch r.Namespace {
	case Inputs:
		found, ok = s.Inputs[r.Name]
		missing = fmt.Sprintf("input %q has no value", r.Name)
	case Params:
		found, ok = s.Params[r.Name]
		missing = fmt.Sprintf("param %q has no value", r.Name)
	case Install:
		var text string
		text, ok = s.Install[r.Name]
		found.Value = text
		missing = fmt.Sprintf("the install's %s is not known", r.Name)
	case Components:
		if s.Outputs != nil {
			found, ok = s.Outputs(r.Name, r.Output)
		}
		missing = fmt.Sprintf("component %q has no output %q", r.Name, r.Output)
	default:
		missing = "it is empty"
	}
	if !ok {
		return nil, false, &UnresolvedError{Reference: r, Reason: missing}
	}
	if w, ok := found.Value.(Withheld); ok {
		return r.withhold(w, found.Sensitive)
	}
	value, err := yamlnode.Normalize(found.Value)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", r.show(), err)
	}
	for i, step := range r.Path {
		var next any
		ok := false
		switch container := value.(type) {
		case map[string]any:
			next, ok = container[step]
		case []any:
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(container) {
				next, ok = container[n], true
			}
		}
		if !ok {
			return nil, false, r.without(i, yamlnode.Describe(value))
		}
		value = next
	}
	return value, found.Sensitive, nil
}

// withhold returns a leaf in place of the part of a withheld value to which the path leads.
func (r Reference) withhold(w Withheld, sensitive bool) (any, bool, error) {
	for i, step := range r.Path {
		next, ok := w.below(step)
		if !ok {
			return nil, false, r.without(i, w.Type.describe())
		}
		w = next
	}
	return withheld{ref: r, Withheld: w}, sensitive, nil
}

// without returns the error of a path whose step i does not exist in a value.
func (r Reference) without(i int, what string) error {
	until := r
	until.Path = r.Path[:i]
	return &UnresolvedError{Reference: r, Reason: fmt.Sprintf("%s is %s without %s", until.show(), what, yamlnode.Quote(r.Path[i]))}
}

// String returns the value as compact JSON, as it is written in app.yaml.
func (v Value) String() string {
	data, err := v.MarshalJSON()
	if err != nil {
		return "null"
	}
	return string(data)
}

// MarshalJSON writes the value as it is written in app.yaml.
func (v Value) MarshalJSON() ([]byte, error) {
	source, err := yamlnode.Transform(v.tree, func(leaf any) (any, error) {
		switch leaf := leaf.(type) {
		case string:
			return template{leaf}.source(), nil
		case template:
			return leaf.source(), nil
		}
		return leaf, nil
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(source); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// source returns the text that parseText reads as t.
func (t template) source() string {
	var text strings.Builder
	for _, part := range t {
		if ref, ok := part.(Reference); ok {
			text.WriteString(ref.String())
		} else {
			text.WriteString(strings.ReplaceAll(part.(string), "${", "$${"))
		}
	}
	return text.String()
}

// UnmarshalJSON reads the output of MarshalJSON, and any JSON that is valid in app.yaml.
func (v *Value) UnmarshalJSON(data []byte) error {
	n, problems := yamlnode.ReadJSON(data)
	r := yamlnode.NewReader("", yamlnode.Rules{})
	r.Add(problems)
	tree, err := yamlnode.Transform(readValue(r, n, ""), func(leaf any) (any, error) { return leaf, nil }) // returns an error if the value is too deep
	if len(r.Problems) > 0 {
		return errors.New(r.Problems[0].Message)
	}
	v.tree = tree
	return err
}

// ReadNode reads the value of a variable, with references anywhere in it.
func (v *Value) ReadNode(r *yamlnode.Reader, n yamlnode.Node, where string) {
	v.tree = readValue(r, n, where)
}

// readValue returns the tree of a Value.
func readValue(r *yamlnode.Reader, n yamlnode.Node, where string) any {
	switch n.Shape {
	case yamlnode.List:
		items := make([]any, len(n.Items))
		for i, item := range n.Items {
			items[i] = readValue(r, item, where)
		}
		return items
	case yamlnode.Map:
		fields := make(map[string]any, len(n.Fields))
		for _, f := range r.Unique(n) {
			if strings.Contains(f.Key, "${") {
				r.At(f.Place, "invalid-reference", fmt.Sprintf("the key %s cannot hold a reference", yamlnode.Quote(f.Key)), "Build the map in the module.")
			}
			fields[f.Key] = readValue(r, f.Value, where)
		}
		return fields
	}
	text, ok := n.Value.(string)
	if !ok {
		return n.Value
	}
	dollar := func(i int) yamlnode.Place {
		if i < len(n.Dollars) {
			return n.Dollars[i]
		}
		return n.Place
	}
	leaf, errs := parseText(text, func(ref Reference, occurrence int) {
		if key := where + "|" + ref.String(); !r.Given(key) {
			r.Put(key, yamlnode.Node{Place: dollar(occurrence)})
		}
	})
	for _, err := range errs {
		r.At(dollar(err.occurrence), err.code, err.message, err.hint)
	}
	return leaf
}
