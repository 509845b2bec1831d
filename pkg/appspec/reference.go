package appspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The namespaces of references.
const (
	Inputs     = "inputs"     // ${inputs.NAME}
	Install    = "install"    // ${install.NAME}
	Components = "components" // ${components.NAME.outputs.OUTPUT}
	Params     = "params"     // ${params.NAME}, in the variables of an action
	Sandboxes  = "sandbox"    // ${sandbox.outputs.OUTPUT}; only in app.yaml, see lowerSandbox
)

// InstallNames returns the names of the namespace install.
func InstallNames() []string {
	return []string{"app", "boundary", "control_plane", "id", "name", "role_path", "runner_id", "trusted_keys", "version"}
}

// Reference names a value that is known when an install is deployed.
type Reference struct {
	Namespace string   // Inputs, Install, Components, Params or Sandboxes
	Name      string   // name of the input, of the fact about the install, of the component, or of the param; "" in Sandboxes
	Output    string   // name of the output of the component or sandbox; "" in other namespaces
	Path      []string // steps into a map (keys) or a list (numbers from 0)
}

// String returns the reference as it is written in app.yaml, in its one
// canonical spelling.
func (r Reference) String() string {
	var b strings.Builder
	b.WriteString("${" + r.Namespace)
	if r.Name != "" {
		b.WriteString("." + r.Name)
	}
	if r.Output != "" {
		b.WriteString(".outputs." + r.Output)
	}
	for _, step := range r.Path {
		switch {
		case identifier.MatchString(step):
			b.WriteString("." + step)
		case index.MatchString(step):
			b.WriteString("[" + step + "]")
		default:
			b.WriteString("[" + jsonString(step) + "]")
		}
	}
	b.WriteString("}")
	return b.String()
}

// show returns the reference for use in a message.
func (r Reference) show() string { return yamlnode.Printable(r.String()) }

func jsonString(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(data)
}

var (
	// identifier matches the Terraform name of a variable, an output or an attribute.
	identifier = pattern.New(`^` + namePattern + `$`)
	index      = pattern.New(`^(?:0|[1-9][0-9]{0,5})$`)
	// reference captures the longest prefix that has the form of a reference: names joined by dots, steps of which the
	// first is in brackets, a trailing dot without a name, the closing brace.
	reference = pattern.New(`^\$\{[ \t]*(` + namePattern + `(?:\.` + namePattern + `)*)?((?:` + bracketPattern + `(?:\.` + namePattern + `)*)*)(\.?)[ \t]*(\}?)`)
	step      = pattern.New(bracketPattern + `|` + namePattern)
)

const (
	namePattern    = `[A-Za-z_][A-Za-z0-9_-]*`
	bracketPattern = `\[(?:[0-9]{1,6}|"(?:[^"\\]|\\.)*")\]` // an index, or a key as a JSON string
)

// maxReferences is the maximum number of references in one text.
const maxReferences = 1000

// textError is one problem of a text. occurrence is the index of its "${", from 0.
type textError struct {
	occurrence          int
	code, message, hint string
}

// parseText reads a string of app.yaml. It returns a template, or a string if the text holds no reference; "$${" stands
// for "${". It calls found for each reference with the index of its "${".
func parseText(s string, found func(Reference, int)) (any, []textError) {
	var parts template
	var errs []textError
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, literal.String())
			literal.Reset()
		}
	}
	occurrence := 0
	for rest := s; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "$${"):
			literal.WriteString("${")
			rest = rest[3:]
			occurrence++
		case strings.HasPrefix(rest, "${"):
			if occurrence >= maxReferences {
				return nil, append(errs, textError{occurrence, "invalid-reference", fmt.Sprintf("a text cannot hold more than %d references", maxReferences), ""})
			}
			ref, length, err := parseReference(rest)
			if err != nil {
				err.occurrence = occurrence
				errs = append(errs, *err)
			} else {
				flush()
				parts = append(parts, ref)
				found(ref, occurrence)
			}
			// A nested "${" is part of the problem of the outer reference. It still counts as an occurrence when places are looked up.
			occurrence += strings.Count(rest[:length], "${")
			rest = rest[length:]
		default:
			n := strings.IndexByte(rest[1:], '$') + 1
			if n == 0 {
				n = len(rest)
			}
			literal.WriteString(rest[:n])
			rest = rest[n:]
		}
	}
	switch {
	case len(errs) > 0:
		return nil, errs
	case parts == nil:
		return literal.String(), nil
	}
	flush()
	return parts, nil
}

// parseReference reads the reference at the start of s, which begins with "${". length is the number of bytes read.
// After an error, the caller continues to read after these bytes.
func parseReference(s string) (ref Reference, length int, failed *textError) {
	length = len(s)
	if end := strings.IndexByte(s, '}'); end >= 0 {
		length = end + 1
	}
	fail := func(hint, format string, args ...any) (Reference, int, *textError) {
		return Reference{}, length, &textError{code: "invalid-reference", message: fmt.Sprintf(format, args...), hint: hint}
	}
	const forms = "A reference is ${inputs.NAME}, ${install.NAME}, ${components.NAME.outputs.NAME} or ${sandbox.outputs.NAME}; write $${ for a literal ${."
	m := reference.FindStringSubmatch(s)
	switch rest := s[len(m[0]):]; {
	case m[1]+m[2] == "" && strings.HasPrefix(rest, "{"):
		return fail("Write one pair of braces: ${inputs.NAME}.", "a reference has one opening brace")
	case m[3] != "" && m[1]+m[2] != "":
		return fail(forms, "a name is missing after %s", yamlnode.Quote(strings.TrimRight(m[0], " \t}")))
	case m[4] == "" && rest == "":
		return fail("Close it with a brace: }.", "%s is not closed", yamlnode.Quote(s))
	case m[4] == "" && strings.HasPrefix(rest, "("):
		return fail("Functions are not supported here: call them in the module. "+forms, "%s is not a reference", yamlnode.Quote(s[:length]))
	case m[4] == "" || m[3] != "":
		return fail("A reference has no operators and no functions: compute in the module. "+forms, "%s is not a reference", yamlnode.Quote(s[:length]))
	}
	length = len(m[0])
	steps := step.FindAllString(m[1], -1)
	dotted := len(steps)
	for _, text := range step.FindAllString(m[2], -1) {
		inside := strings.Trim(text, "[]")
		if n, err := strconv.Atoi(inside); err == nil {
			text = strconv.Itoa(n)
		} else if text[0] == '[' {
			if err := json.Unmarshal([]byte(text[1:len(text)-1]), &text); err != nil {
				return fail(forms, "%s is not a key", yamlnode.Quote(inside))
			}
		}
		steps = append(steps, text)
	}
	ref, message, hint := referenceOf(steps, dotted)
	if message != "" {
		if hint == "" {
			hint = forms
		}
		return fail(hint, "%s %s", yamlnode.Quote(s[:length]), message)
	}
	return ref, length, nil
}

// shape is the form of the references of a namespace.
type shape struct {
	steps   int    // how many names come before the path
	outputs int    // which of them is the name "outputs"; 0: none
	what    string // what a reference without that name is not
	form    string // the whole form
}

// shapes returns the shape of the references of each namespace.
func shapes() map[string]shape {
	plain := shape{steps: 2}
	return map[string]shape{
		Inputs: plain, Install: plain, Params: plain,
		Components: {4, 2, "is not an output of a component", "${components.NAME.outputs.OUTPUT}"},
		Sandboxes:  {3, 1, "is not an output of the sandbox", "${sandbox.outputs.OUTPUT}"},
	}
}

// unknownNamespace returns the message and hint for a reference that begins with another name than a namespace.
func unknownNamespace(steps []string) (message, hint string) {
	if steps[0] == "var" {
		name := "NAME"
		if len(steps) > 1 {
			name = steps[1]
		}
		return "is Terraform's name for a module's variable", fmt.Sprintf("An input of the app is ${inputs.%s}.", name)
	}
	message = fmt.Sprintf("begins with the unknown name %s", yamlnode.Quote(steps[0]))
	if name := yamlnode.Nearest(steps[0], []string{Inputs, Install, Components, Params, Sandboxes}); name != "" {
		hint = fmt.Sprintf("Did you mean %q?", name)
	}
	return message, hint
}

// referenceOf builds a Reference from steps. The first dotted steps were names joined by dots.
func referenceOf(steps []string, dotted int) (ref Reference, message, hint string) {
	if len(steps) == 0 || dotted == 0 {
		return ref, "names nothing", ""
	}
	if len(steps) > MaxDepth {
		return ref, fmt.Sprintf("has more than %d steps", MaxDepth), ""
	}
	ref.Namespace = steps[0]
	form, ok := shapes()[ref.Namespace]
	if !ok {
		message, hint = unknownNamespace(steps)
		return ref, message, hint
	}
	short := dotted < min(form.steps, len(steps)) || len(steps) < form.steps
	if short && form.outputs == 0 {
		return ref, "is incomplete", ""
	}
	if form.outputs > 0 && (short || steps[form.outputs] != "outputs") {
		return ref, form.what, "Write " + form.meant(steps) + "."
	}
	if form.steps > 2 {
		ref.Output = steps[form.steps-1]
	}
	if ref.Namespace != Sandboxes {
		ref.Name = steps[1]
	}
	if ref.Namespace != Install && ref.Namespace != Sandboxes && fairlead.CheckName("", ref.Name) != nil {
		return ref, fmt.Sprintf("holds %s, which is not a valid name", yamlnode.Quote(ref.Name)), "Names are lower-case letters, digits and hyphens."
	}
	if path := steps[form.steps:]; len(path) > 0 {
		ref.Path = slices.Clone(path)
	}
	if ref.Namespace == Install && len(ref.Path) > 0 {
		return ref, "has a path into a string", "All values under install are strings."
	}
	return ref, "", ""
}

// meant returns the form with the names that the steps have already.
func (s shape) meant(steps []string) string {
	if s.outputs == 2 && len(steps) > 1 {
		text := strings.Replace(s.form, "NAME", steps[1], 1)
		if len(steps) == 3 && steps[2] != "outputs" {
			text = strings.Replace(text, "OUTPUT", steps[2], 1)
		}
		return text
	}
	return s.form
}
