// Package jobvalues joins a job's spec and the sensitive values that it refers to. The control plane writes a spec that
// names values, and packs the values for the step; the step checks and unpacks them, and resolves the references. It is
// pure.
package jobvalues

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fingerprint"
)

// Encrypted is a value that was encrypted with the key of the install (package installkey).
type Encrypted []byte

// Values holds JSON values, and Encrypted ones, by the name under which a step fetches them, such as events.ValuesInputs, and then by input,
// param, output or variable.
type Values map[string]map[string]any

// Add stores a value.
func (v Values) Add(name, of string, value any) {
	if v[name] == nil {
		v[name] = map[string]any{}
	}
	v[name][of] = value
}

// Encrypted lists the encrypted values of a name, sorted.
func (v Values) Encrypted(name string) (of []string) {
	for key, value := range v[name] {
		if _, ok := value.(Encrypted); ok {
			of = append(of, key)
		}
	}
	slices.Sort(of)
	return of
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

// Open returns a value that was encrypted for a place. It has the errors of installkey.Ring.
type Open func(place string, sealed []byte) ([]byte, error)

// Place returns the place for which a value is encrypted: that of an input, a param or an output. The key of an install opens
// no value of another install, so the place does not name the install.
func Place(name, of string) string {
	switch name {
	case events.ValuesInputs:
		return InputPlace(of)
	case events.ValuesParams:
		return ParamPlace(of)
	case events.ValuesEnv:
		return VariablePlace(of)
	}
	return OutputPlace(strings.TrimPrefix(name, events.ValuesOutputs), of)
}

// InputPlace returns the place for which an input is encrypted.
func InputPlace(input string) string { return "input/" + input }

// ParamPlace returns the place for which a param of a run is encrypted.
func ParamPlace(param string) string { return "param/" + param }

// OutputPlace returns the place for which an output of a component is encrypted.
func OutputPlace(component, output string) string { return outputPlace + component + "/" + output }

const outputPlace = "output/"

// OfSteps reports whether only steps encrypt values for the place, and no person does.
func OfSteps(place string) bool { return strings.HasPrefix(place, outputPlace) }

// VariablePlace returns the place for which an environment variable of the install is encrypted.
func VariablePlace(name string) string { return "variable/" + name }

// Moving is a secret that the control plane sealed, and that a step encrypts, so that only the customer's side can open it.
type Moving struct {
	Value any    `json:"value"`
	Of    string `json:"of"` // identifies the sealed bytes: the control plane replaces only these
}

// AddMoving adds a secret of a place of the install to those that a step encrypts.
func (v Values) AddMoving(place string, value any, of string) {
	v.Add(events.ValuesMove, place, Moving{value, of})
}

// Moved is a secret that a step encrypted for its place, and the sealed bytes that it replaces.
type Moved struct {
	Secret
	Of string
}

// Move encrypts the secrets that the control plane has packed under events.ValuesMove, by place. seal must leave no proof that a
// holder of the seed made the values: the control plane can pack any value. Only places of inputs and variables are encrypted: a step
// must not encrypt a value of others for the place of an output, a plan or a state. An error names no value.
func Move(packed []byte, seal func(place string, value []byte) ([]byte, error), fingerprints []byte) (map[string]Moved, error) {
	var all map[string]struct {
		Value json.RawMessage `json:"value"`
		Of    string          `json:"of"`
	}
	if json.Unmarshal(packed, &all) != nil {
		return nil, fmt.Errorf("the values of %s are not JSON", events.ValuesMove) // the decoder's error can quote a secret
	}
	out := make(map[string]Moved, len(all))
	for place, m := range all {
		if _, _, ok := OfInstall(place); !ok {
			return nil, fmt.Errorf("the values of %s have the place %.100q, which is no input and no variable", events.ValuesMove, place)
		}
		s, err := Encrypt(seal, place, m.Value, fingerprints)
		if err != nil {
			return nil, err
		}
		out[place] = Moved{s, m.Of}
	}
	return out, nil
}

// OfInstall returns the name of the input or of the variable for which a place is. ok is false for other places.
func OfInstall(place string) (name string, variable, ok bool) {
	if name, ok = strings.CutPrefix(place, InputPlace("")); ok {
		return name, false, true
	}
	name, ok = strings.CutPrefix(place, VariablePlace(""))
	return name, true, ok
}

// OpenError reports that an encrypted value cannot be opened.
type OpenError struct{ Err error }

// Error holds no value.
func (e *OpenError) Error() string { return e.Err.Error() }

func (e *OpenError) Unwrap() error { return e.Err }

// Unpack stores what Pack returned, and opens the values that are encrypted. The error of a value that cannot be opened is
// an *OpenError.
func (v Values) Unpack(name string, packed []byte, encrypted []string, open Open) error {
	value, err := decode(packed)
	values, ok := value.(map[string]any)
	if err != nil || !ok {
		return fmt.Errorf("the values of %s are not JSON", name) // the decoder's error can quote a secret
	}
	for _, of := range encrypted {
		text, ok := values[of].(string)
		sealed, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			return fmt.Errorf("the encrypted value %s of %s is missing", of, name)
		}
		raw, err := open(Place(name, of), sealed)
		if err != nil {
			return &OpenError{err}
		}
		if values[of], err = decode(raw); err != nil {
			return fmt.Errorf("the value of %s is not JSON", Place(name, of))
		}
	}
	v[name] = values
	return nil
}

func decode(raw []byte) (value any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a float64 would lose digits
	err = dec.Decode(&value)
	return value, err
}

// Secret is an encrypted value, and what the control plane knows of it.
type Secret struct {
	Encrypted   []byte
	Type        string // as appspec.TypeOf returns it
	Size        int    // of its JSON, in bytes
	Fingerprint string // see package fingerprint; "": a person encrypted it, who has no key of fingerprints
}

// Encrypt encrypts a JSON value for a place, with the key or the ring of an install. With a key of fingerprints, which only
// the customer's side has, the result has a fingerprint.
func Encrypt(seal func(place string, value []byte) ([]byte, error), place string, raw, fingerprints []byte) (Secret, error) {
	value, err := decode(raw)
	if err != nil {
		return Secret{}, fmt.Errorf("the value of %s is not JSON", place)
	}
	out := Secret{Type: string(appspec.TypeOf(value)), Size: len(raw)}
	if fingerprints != nil {
		// The error is that of a value that is nested too deep. Its encrypted bytes stand in for its fingerprint.
		out.Fingerprint, _ = fingerprint.Of(fingerprints, place, value)
	}
	out.Encrypted, err = seal(place, raw)
	return out, err
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

// Resolve sets the values of the spec's sensitive variables, and adds the encrypted environment variables. The bytes of each value are those that the control plane
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
	env := maps.Clone(spec.SecretEnv)
	for name, value := range v[events.ValuesEnv] {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("the environment variable %s is no text", name)
		}
		if env == nil {
			env = map[string]string{}
		}
		env[name] = text
	}
	spec.SetInputs(inputs)
	spec.SecretEnv = env
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
