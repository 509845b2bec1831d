package jobvalues_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/jobvalues"
)

// packed sends values from the control plane to a step.
func packed(t *testing.T, v jobvalues.Values) jobvalues.Values {
	t.Helper()
	out := jobvalues.Values{}
	for name := range maps.Keys(v) {
		b, ok, err := v.Pack(name)
		if err != nil || !ok {
			t.Fatalf("pack %s: %v", name, err)
		}
		if err := out.Unpack(name, b, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestReferencesResolveInTheStep(t *testing.T) {
	v := jobvalues.Values{}
	v.Add("inputs", "password", "hush<&")
	v.Add("params", "key", json.Number("12345678901234567890"))
	v.Add("components.db", "hosts", map[string]any{"b": []any{"x", "y"}, "a": nil})
	v.Add("last", "old", []any{json.Number("1.50"), true})
	v.Add("last", "env.TOKEN", "t0ken")
	for name, c := range map[string]struct {
		variable string
		given    events.SpecVar
		want     string
	}{
		"a whole reference keeps its type":        {"a", events.SpecVar{Refs: json.RawMessage(`"${params.key}"`)}, `12345678901234567890`},
		"a text of several parts":                 {"a", events.SpecVar{Refs: json.RawMessage(`"redis://:${inputs.password}@${components.db.outputs.hosts.b[1]}"`)}, `"redis://:hush<&@y"`},
		"keys are in order":                       {"a", events.SpecVar{Refs: json.RawMessage(`{"z":"${components.db.outputs.hosts}","b":"$${kept}"}`)}, `{"b":"${kept}","z":{"a":null,"b":["x","y"]}}`},
		"a value of the last apply is not read":   {"old", events.SpecVar{Last: true}, `[1.50,true]`},
		"an environment variable is a text":       {"env.N", events.SpecVar{Refs: json.RawMessage(`"${params.key}"`)}, `"12345678901234567890"`},
		"an environment variable of the last one": {"env.TOKEN", events.SpecVar{Last: true}, `"t0ken"`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := events.JobSpec{}
			c.given.Sensitive = true
			spec.SetInputs(map[string]events.SpecVar{c.variable: c.given, "plain": {Value: json.RawMessage(`"${inputs.password}"`)}})
			if err := packed(t, v).Resolve(&spec); err != nil {
				t.Fatal(err)
			}
			got := spec.Inputs()
			if s := got[c.variable]; string(s.Value) != c.want || !s.Sensitive || s.Refs != nil || s.Last {
				t.Errorf("the variable is %+v with %s, want %s", s, s.Value, c.want)
			}
			if p := got["plain"]; string(p.Value) != `"${inputs.password}"` || p.Sensitive {
				t.Errorf("a plain text was read as a reference: %s", p.Value)
			}
		})
	}
}

func TestMissingValueNamesItsVariableOnly(t *testing.T) {
	v := jobvalues.Values{}
	v.Add("inputs", "password", "hunter2")
	v.Add("inputs", "list", []any{"hunter2"})
	for name, given := range map[string]events.SpecVar{
		"an output that was not fetched":    {Refs: json.RawMessage(`"${components.db.outputs.url}"`)},
		"a path that does not exist":        {Refs: json.RawMessage(`"${inputs.password.part}"`)},
		"a list in a text":                  {Refs: json.RawMessage(`"x${inputs.list}"`)},
		"a variable that the apply had not": {Last: true},
		"references that cannot be read":    {Refs: json.RawMessage(`"${inputs.password"`)},
	} {
		spec := events.JobSpec{Vars: map[string]events.SpecVar{"secret": given}}
		err := v.Resolve(&spec)
		if err == nil || !strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error is %v", name, err)
		}
		if spec.Vars["secret"].Value != nil {
			t.Errorf("%s: the variable has the value %s", name, spec.Vars["secret"].Value)
		}
	}
	if err := v.Unpack("inputs", []byte(`{"password":hunter2}`), nil, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error of damaged values is %v", err)
	}
}

// The control plane packs an encrypted value, and the step opens it at its place.
func TestEncryptedValuesOpenInTheStep(t *testing.T) {
	ring, err := installkey.NewRing("SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123", "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	seal := func(place, raw string) jobvalues.Encrypted {
		s, err := jobvalues.Encrypt(ring.Seal, place, []byte(raw), ring.Current().FingerprintKey())
		if err != nil || s.Fingerprint == "" || s.Size != len(raw) || s.Type == "" || strings.Contains(string(s.Encrypted), "hush") {
			t.Fatalf("%s: %+v, %v", place, s, err)
		}
		return s.Encrypted
	}
	v := jobvalues.Values{}
	v.Add("inputs", "password", seal("input/password", `"hush"`))
	v.Add("inputs", "earlier", "sealed by an earlier release")
	v.Add("components.db", "port", seal("output/db/port", `5432.0`))
	out := jobvalues.Values{}
	for name := range v {
		packed, _, err := v.Pack(name)
		if err != nil || strings.Contains(string(packed), "hush") {
			t.Fatalf("packed %s, %v", packed, err)
		}
		if err := out.Unpack(name, packed, v.Encrypted(name), ring.Open); err != nil {
			t.Fatal(err)
		}
	}
	spec := events.JobSpec{Vars: map[string]events.SpecVar{"url": {Sensitive: true, Refs: json.RawMessage(`"${inputs.password}@${components.db.outputs.port} ${inputs.earlier}"`)}}}
	if err := out.Resolve(&spec); err != nil || string(spec.Vars["url"].Value) != `"hush@5432 sealed by an earlier release"` {
		t.Errorf("resolved %s, %v", spec.Vars["url"].Value, err)
	}

	moved := jobvalues.Values{}
	moved.Add("inputs", "other", seal("input/password", `"hush"`))
	for name, c := range map[string]struct {
		v         jobvalues.Values
		encrypted []string
		open      jobvalues.Open
		cannot    bool // the error is that of a value that cannot be opened
	}{
		"a value of another place":              {moved, []string{"other"}, ring.Open, true},
		"a runner without a seed":               {v, []string{"password"}, installkey.Ring{}.Open, true},
		"a value that is not encrypted":         {v, []string{"earlier"}, ring.Open, false},
		"a value that the answer does not have": {v, []string{"none"}, ring.Open, false},
	} {
		packed, _, err := c.v.Pack("inputs")
		if err != nil {
			t.Fatal(err)
		}
		err = jobvalues.Values{}.Unpack("inputs", packed, c.encrypted, c.open)
		if _, cannot := errors.AsType[*jobvalues.OpenError](err); err == nil || cannot != c.cannot || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An encrypted environment variable of the install reaches the tool as a secret, and only if it was encrypted for its own name.
func TestEncryptedEnvironmentIsOpenedForItsName(t *testing.T) {
	keys, err := installkey.NewRing(strings.Repeat("Seed", 12), "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ place, value, want string }{
		"a text for its own name":                 {jobvalues.VariablePlace("API_TOKEN"), `"hunter2"`, ""},
		"the control plane swapped two variables": {jobvalues.VariablePlace("OTHER"), `"hunter2"`, "damaged"},
		"the control plane moved an input":        {jobvalues.InputPlace("API_TOKEN"), `"hunter2"`, "damaged"},
		"a value that is no text":                 {jobvalues.VariablePlace("API_TOKEN"), `7`, "is no text"},
	} {
		e, err := jobvalues.Encrypt(keys.Current().Public().Seal, c.place, []byte(c.value), nil)
		if err != nil {
			t.Fatal(err)
		}
		packing, got := jobvalues.Values{}, jobvalues.Values{}
		packing.Add(events.ValuesEnv, "API_TOKEN", jobvalues.Encrypted(e.Encrypted))
		packed, _, err := packing.Pack(events.ValuesEnv)
		if err != nil {
			t.Fatal(err)
		}
		given := map[string]string{"GIVEN": "x"}
		spec := events.JobSpec{SecretEnv: given}
		if err = got.Unpack(events.ValuesEnv, packed, packing.Encrypted(events.ValuesEnv), keys.Open); err == nil {
			err = got.Resolve(&spec)
		}
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || spec.SecretEnv["API_TOKEN"] != ""):
			t.Errorf("%s: %v, %v", what, err, spec.SecretEnv)
		case c.want == "" && (err != nil || spec.SecretEnv["API_TOKEN"] != "hunter2" || spec.SecretEnv["GIVEN"] != "x" || len(given) != 1):
			t.Errorf("%s: %v, %v", what, err, spec.SecretEnv)
		}
	}
}

// A step encrypts what the control plane stored for inputs and variables. It encrypts nothing for the place of an output, and leaves no
// proof that it made the value: the control plane could have any value of its own confirmed.
func TestStepMovesOnlyInputsAndVariables(t *testing.T) {
	ring, err := installkey.NewRing(strings.Repeat("Seed", 12), "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	move := func(places ...string) (map[string]jobvalues.Moved, error) {
		v := jobvalues.Values{}
		for _, place := range places {
			v.AddMoving(place, "hush", "of-"+place)
		}
		packed, _, err := v.Pack(events.ValuesMove)
		if err != nil {
			t.Fatal(err)
		}
		return jobvalues.Move(packed, ring.Current().Public().Seal, ring.Current().FingerprintKey())
	}
	moved, err := move("input/password", "variable/TOKEN")
	if err != nil || len(moved) != 2 {
		t.Fatalf("moved %d values: %v", len(moved), err)
	}
	for place, m := range moved {
		if value, err := ring.Open(place, m.Encrypted); err != nil || string(value) != `"hush"` || m.Of != "of-"+place || m.Type != "string" || m.Fingerprint == "" {
			t.Errorf("%s is %+v, %s, %v", place, m, value, err)
		}
		if _, err := ring.OpenOwn(place, m.Encrypted); !errors.Is(err, installkey.ErrForeign) {
			t.Errorf("%s has a proof of its origin: %v", place, err)
		}
	}
	for _, place := range []string{"output/db/password", "param/key", "state/db", "", "inputs/password"} {
		if moved, err := move("input/password", place); err == nil || moved != nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("the place %q: %v, %v", place, moved, err)
		}
	}
	if _, err := jobvalues.Move([]byte(`{"input/x": "hush"}`), ring.Current().Public().Seal, nil); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("values of another form: %v", err)
	}
}
