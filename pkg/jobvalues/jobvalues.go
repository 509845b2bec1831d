// Package jobvalues joins a job's spec and the sensitive values that it refers to. The control plane writes a spec that
// names values, and packs the values for the step; the step checks and unpacks them, and resolves the references. It is
// pure.
package jobvalues

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
)

// Values holds JSON values by the name under which a step fetches them, such as events.ValuesInputs, and then by input,
// param, output or variable.
type Values map[string]map[string]any

// Add stores a value.
func (v Values) Add(name, of string, value any) {
	if v[name] == nil {
		v[name] = map[string]any{}
	}
	v[name][of] = value
}

// Pack returns the bytes that a step fetches under a name. Equal values have equal bytes. ok is false if there are no
// values of this name.
func (v Values) Pack(name string) (packed []byte, ok bool, err error) {
	values, ok := v[name]
	if !ok {
		return nil, false, nil
	}
	packed, err = encode(values)
	return packed, true, err
}

// Unpack stores what Pack returned.
func (v Values) Unpack(name string, packed []byte) error {
	dec := json.NewDecoder(bytes.NewReader(packed))
	dec.UseNumber() // a float64 would lose digits
	var values map[string]any
	if err := dec.Decode(&values); err != nil {
		return fmt.Errorf("the values of %s are not JSON", name) // the decoder's error can quote a secret
	}
	v[name] = values
	return nil
}

// NameOf returns the name of the values that have the target of a reference.
func NameOf(r appspec.Reference) (name, of string) {
	if r.Namespace == appspec.Components {
		return events.ValuesOutputs + r.Name, r.Output
	}
	return r.Namespace, r.Name
}

// ReferenceError reports that the values were fetched, and a variable cannot be made from them: its reference leads to a part
// that the value does not have, or to a value of the wrong type. Only the step sees this, because the control plane does not
// open the values.
type ReferenceError struct {
	Variable string
	Err      error
}

// Error names the variable. It holds no value.
func (e *ReferenceError) Error() string { return fmt.Sprintf("variable %s: %v", e.Variable, e.Err) }

func (e *ReferenceError) Unwrap() error { return e.Err }

// Resolve sets the values of the spec's sensitive variables. The bytes of each value are those that the control plane
// computes for the same value. If a value is missing or has the wrong type, Resolve returns an error that names it and
// changes nothing.
func (v Values) Resolve(spec *events.JobSpec) error {
	inputs := spec.Inputs()
	for name, given := range inputs {
		var value any
		switch {
		case given.Last:
			last, ok := v[events.ValuesLast][name]
			if !ok {
				return fmt.Errorf("the variable %s of the last apply is missing", name)
			}
			value = last
		case given.Refs != nil:
			var tree appspec.Value
			if err := json.Unmarshal(given.Refs, &tree); err != nil {
				return fmt.Errorf("the references of variable %s cannot be read: %w", name, err)
			}
			var err error
			if value, _, err = tree.Resolve(v.scope()); err != nil {
				return &ReferenceError{name, err}
			}
			if variable, ok := strings.CutPrefix(name, appspec.EnvPrefix); ok {
				if value, err = appspec.EnvText(value); err != nil {
					return &ReferenceError{name, fmt.Errorf("the environment variable %s %w", variable, err)}
				}
			}
		default:
			continue
		}
		raw, err := encode(value)
		if err != nil {
			return fmt.Errorf("encode variable %s: %w", name, err)
		}
		inputs[name] = events.SpecVar{Value: raw, Sensitive: true}
	}
	spec.SetInputs(inputs)
	return nil
}

// scope returns the values as the targets of references.
func (v Values) scope() appspec.Scope {
	of := func(name string) map[string]appspec.Resolved {
		out := make(map[string]appspec.Resolved, len(v[name]))
		for target, value := range v[name] {
			out[target] = appspec.Resolved{Value: value, Sensitive: true}
		}
		return out
	}
	return appspec.Scope{Inputs: of(events.ValuesInputs), Params: of(events.ValuesParams),
		Outputs: func(component, output string) (appspec.Resolved, bool) {
			value, ok := v[events.ValuesOutputs+component][output]
			return appspec.Resolved{Value: value, Sensitive: true}, ok
		}}
}

// encode returns compact JSON, with the keys of maps in order and without the escapes of HTML, which would make "<" six
// times as large.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
