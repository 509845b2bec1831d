package runnerspec

import (
	"encoding/json"
	"reflect"
)

// Masked returns a copy of the configuration to show to a reader: each secret is replaced by Masked. The copy is not
// valid as the configuration of a new runner. If the copy is used as an update, it changes nothing.
func (s *Spec) Masked() *Spec {
	data, err := json.Marshal(s)
	if err != nil {
		panic("runnerspec: encode a configuration: " + err.Error()) // cannot happen: it consists of strings and numbers
	}
	var c Spec
	if err := c.UnmarshalJSON(data); err != nil {
		panic("runnerspec: decode a valid configuration: " + err.Error())
	}
	secrets(reflect.ValueOf(c.Runner).Elem(), func(v reflect.Value) { v.SetString(Masked) })
	return &c
}

// Secrets returns the secrets of the configuration, so that a caller can find them in a log.
func (s *Spec) Secrets() []string {
	var found []string
	secrets(reflect.ValueOf(s.Runner).Elem(), func(v reflect.Value) { found = append(found, v.String()) })
	return found
}

// secrets calls f for each secret in v that is not empty.
func secrets(v reflect.Value, f func(reflect.Value)) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		secrets(v.Elem(), f)
	case v.Type() == reflect.TypeFor[Secret]():
		if v.String() != "" {
			f(v)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			secrets(v.Field(i), f)
		}
	}
}
