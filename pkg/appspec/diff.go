package appspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// Diff returns the differences of two apps, or of two versions of one app, as the changes of a change set. The artifacts of an
// app are the digests of its components' sources, by component.
//
// An address is that of the app's file: inputs.NAME, components.NAME, or a field of the app such as aws. A component has its
// digest as the field "artifact". The defaults of sensitive inputs are masked. Changes are in the order of their addresses.
// Diff compares canonical forms, so a new field of app.yaml needs no code here.
func Diff(before, after *App, beforeArtifacts, afterArtifacts map[string]string) (*changeset.Set, error) {
	from, err := partsOf(before, beforeArtifacts)
	if err != nil {
		return nil, err
	}
	to, err := partsOf(after, afterArtifacts)
	if err != nil {
		return nil, err
	}
	addresses := slices.Concat(slices.Collect(maps.Keys(from)), slices.Collect(maps.Keys(to)))
	slices.Sort(addresses)
	var b changeset.Builder
	for _, address := range slices.Compact(addresses) {
		was, is := from[address], to[address]
		c := changeset.Change{Address: address, Kind: cmp.Or(is.kind, was.kind)}
		switch {
		case was.value == nil:
			c.Action = changeset.Create
		case is.value == nil:
			c.Action = changeset.Delete
		default:
			c.Action = changeset.Update
		}
		c.SetValues(was.value, is.value, changeset.Marks{BeforeSensitive: was.sensitive, AfterSensitive: is.sensitive}, unmasked)
		if c.Action == changeset.Update && len(c.Changed) == 0 {
			continue
		}
		if err := b.Add(c); err != nil {
			return nil, err
		}
	}
	return b.Set(nil), nil
}

// unmasked is the mask of values in which no text is secret.
func unmasked(text string) string { return text }

// part is an addressed part of an app.
type part struct {
	kind      string // type of a component or input; "": another part
	value     any    // decoded JSON
	sensitive any    // marks, in the shape of the value
}

// partsOf returns the parts of an app by address.
func partsOf(a *App, artifacts map[string]string) (map[string]part, error) {
	canonical, err := a.Canonical()
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, fmt.Errorf("decode app %q: %w", a.Name, err)
	}
	delete(fields, "fairlead")
	out := map[string]part{}
	for key, value := range fields {
		named := byName(value)
		if named == nil {
			out[key] = part{value: value}
			continue
		}
		for name, fields := range named {
			p := part{value: fields}
			p.kind, _ = fields["type"].(string)
			if secret, _ := fields["sensitive"].(bool); key == "inputs" && secret {
				p.sensitive = map[string]any{"default": true}
			}
			if key == "components" {
				fields["artifact"] = artifacts[name]
			}
			out[key+"."+name] = p
		}
	}
	return out, nil
}

// byName returns the elements of a list of objects with names, by name. It returns nil for another value. An empty list has no
// elements.
func byName(value any) map[string]map[string]any {
	list, ok := value.([]any)
	if !ok {
		return nil
	}
	out := map[string]map[string]any{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, ok := fields["name"].(string)
		if !ok {
			return nil
		}
		delete(fields, "name") // the address has it
		out[name] = fields
	}
	return out
}
