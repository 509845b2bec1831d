package changeset

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The texts in place of values that must not or cannot be shown.
const (
	Sensitive = "(sensitive)"
	Unknown   = "(known after apply)"
)

// Marks names the unknown and the sensitive parts of two values. Each mark has the shape of its value: true covers
// everything below it, and all else but a list or a map of marks covers nothing.
type Marks struct {
	Unknown         any // of the value after the change
	BeforeSensitive any
	AfterSensitive  any
}

// SetValues sets Before, After, Changed, Unknown and Sensitive from the decoded JSON of the object before and after the
// change; nil: the object does not exist. mask hides the secrets in a text. Numbers should be of type json.Number, because a
// float64 cannot hold all integers.
func (c *Change) SetValues(before, after any, m Marks, mask func(string) string) {
	v := values{mask: mask}
	switch {
	case before != nil && (after != nil || hasUnknown(m.Unknown)):
		c.Before, c.After, _ = v.diff("", before, after, m)
	default:
		c.Before = v.masked("", before, nil, m.BeforeSensitive)
		c.After = v.masked("", after, m.Unknown, m.AfterSensitive)
	}
	c.Changed, c.Unknown, c.Sensitive = sorted(v.changed), sorted(v.unknown), sorted(v.sensitive)
}

// Masked returns the change with mask applied to each of its texts, for a change that another program has built. A value that mask
// alters is sensitive.
func (c Change) Masked(mask func(string) string) Change {
	v := values{mask: mask}
	c.Before, c.After = v.masked("", c.Before, nil, nil), v.masked("", c.After, nil, nil)
	for _, text := range []*string{&c.Address, &c.Kind, &c.Previous, &c.Reason, (*string)(&c.Order)} {
		*text = mask(*text)
	}
	c.Changed, c.Unknown = maskedPointers(c.Changed, mask), maskedPointers(c.Unknown, mask)
	c.Sensitive = sorted(append(v.sensitive, maskedPointers(c.Sensitive, mask)...))
	return c
}

// maskedPointers masks each part of the pointers.
func maskedPointers(pointers []string, mask func(string) string) []string {
	var out []string
	for _, p := range pointers {
		parts := strings.Split(p, "/")
		for i, part := range parts {
			parts[i] = strings.TrimPrefix(below("", mask(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))), "/")
		}
		out = append(out, strings.Join(parts, "/"))
	}
	return out
}

func sorted(pointers []string) []string {
	slices.Sort(pointers)
	return slices.Compact(pointers)
}

// values collects the pointers of a change.
type values struct {
	mask                        func(string) string
	changed, unknown, sensitive []string
}

// below returns the JSON pointer (RFC 6901) of an attribute or an element.
func below(pointer, name string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// diff returns the masked parts of both values that differ. It compares before it masks, because two different secrets look
// the same afterwards.
func (v *values) diff(pointer string, before, after any, m Marks) (b, a any, differ bool) {
	if m.BeforeSensitive == true || m.AfterSensitive == true {
		if !hasUnknown(m.Unknown) && reflect.DeepEqual(before, after) {
			return nil, nil, false
		}
		v.changed, v.sensitive = append(v.changed, pointer), append(v.sensitive, pointer)
		return Sensitive, Sensitive, true
	}
	from, fromMap := before.(map[string]any)
	to, toMap := after.(map[string]any)
	if fromMap && (toMap || isMap(m.Unknown)) {
		names := slices.Concat(slices.Collect(maps.Keys(from)), slices.Collect(maps.Keys(to)))
		for name, e := range asMap(m.Unknown) {
			if hasUnknown(e) {
				names = append(names, name)
			}
		}
		outB, outA := map[string]any{}, map[string]any{}
		for _, name := range sorted(names) {
			eb, ea, d := v.diff(below(pointer, v.mask(name)), from[name], to[name],
				Marks{of(m.Unknown, name), of(m.BeforeSensitive, name), of(m.AfterSensitive, name)})
			if !d {
				continue
			}
			if _, ok := from[name]; ok {
				outB[v.mask(name)] = eb
			}
			if _, ok := to[name]; ok || hasUnknown(of(m.Unknown, name)) {
				outA[v.mask(name)] = ea
			}
		}
		return outB, outA, len(outB)+len(outA) > 0
	}
	if !hasUnknown(m.Unknown) && reflect.DeepEqual(before, after) {
		return nil, nil, false
	}
	b = v.masked(pointer, before, nil, m.BeforeSensitive)
	a = v.masked(pointer, after, m.Unknown, m.AfterSensitive)
	v.elements(pointer, before, after, m)
	return b, a, true
}

// elements collects the pointers of what differs in two lists of the same length, or the pointer of the whole value.
func (v *values) elements(pointer string, before, after any, m Marks) {
	from, ok1 := before.([]any)
	to, ok2 := after.([]any)
	if !ok1 || !ok2 || len(from) != len(to) || m.Unknown == true {
		v.changed = append(v.changed, pointer)
		return
	}
	for i := range from {
		at := strconv.Itoa(i)
		v.diff(below(pointer, at), from[i], to[i], Marks{index(m.Unknown, i), index(m.BeforeSensitive, i), index(m.AfterSensitive, i)})
	}
}

// masked returns the value with its unknown and secret parts replaced.
func (v *values) masked(pointer string, value, unknown, sensitive any) any {
	if sensitive == true {
		if value == nil && !hasUnknown(unknown) {
			return nil
		}
		v.sensitive = append(v.sensitive, pointer)
		return Sensitive
	}
	if unknown == true {
		v.unknown = append(v.unknown, pointer)
		return Unknown
	}
	switch value := value.(type) {
	case string:
		return v.text(pointer, value)
	case json.Number:
		if m := v.text(pointer, value.String()); m != value.String() {
			return m
		}
		return value
	case []any:
		out := make([]any, 0, len(value))
		for i := range max(len(value), lenOf(unknown)) {
			out = append(out, v.masked(below(pointer, strconv.Itoa(i)), elementOf(value, i), index(unknown, i), index(sensitive, i)))
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(value))
		for name, e := range value {
			out[v.mask(name)] = v.masked(below(pointer, v.mask(name)), e, of(unknown, name), of(sensitive, name))
		}
		v.addUnknown(pointer, out, value, unknown, sensitive)
		return out
	case nil:
		// A value that is partly unknown can be absent from the plan.
		if isMap(unknown) && hasUnknown(unknown) {
			out := map[string]any{}
			v.addUnknown(pointer, out, nil, unknown, sensitive)
			return out
		}
	}
	return value
}

func (v *values) text(pointer, text string) string {
	m := v.mask(text)
	if m != text {
		v.sensitive = append(v.sensitive, pointer)
	}
	return m
}

// addUnknown adds the attributes that only the marks have.
func (v *values) addUnknown(pointer string, out, value map[string]any, unknown, sensitive any) {
	for name, e := range asMap(unknown) {
		if _, ok := value[name]; !ok && hasUnknown(e) {
			out[v.mask(name)] = v.masked(below(pointer, v.mask(name)), nil, e, of(sensitive, name))
		}
	}
}

// hasUnknown reports whether the marks have a true anywhere.
func hasUnknown(marks any) bool {
	switch m := marks.(type) {
	case bool:
		return m
	case []any:
		return slices.ContainsFunc(m, hasUnknown)
	case map[string]any:
		for _, e := range m {
			if hasUnknown(e) {
				return true
			}
		}
	}
	return false
}

func isMap(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func of(v any, name string) any { return asMap(v)[name] }

func lenOf(v any) int {
	s, _ := v.([]any)
	return len(s)
}

func index(v any, i int) any {
	s, _ := v.([]any)
	return elementOf(s, i)
}

func elementOf(s []any, i int) any {
	if i < len(s) {
		return s[i]
	}
	return nil
}

// Path renders a JSON pointer as people write an attribute: "/spec/ports/0/port" as "spec.ports[0].port". The whole value is "".
func Path(pointer string) string {
	var b strings.Builder
	for i, part := range strings.Split(pointer, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		_, err := strconv.ParseUint(part, 10, 32)
		switch {
		case i == 0:
		case err == nil:
			b.WriteString("[" + part + "]")
		case strings.ContainsAny(part, ".[]/ ") || part == "":
			b.WriteString("[" + strconv.Quote(part) + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(part)
		}
	}
	return b.String()
}
