package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// array returns items. If items is nil, it returns an empty slice, so that the JSON is
// [] and not null.
func array[S ~[]T, T any](items S) []T {
	if items == nil {
		return []T{}
	}
	return items
}

func orDash(s string) string { return cmp.Or(s, "-") }

// ShortID is the number of characters that tables show of an identifier or digest, after
// its prefix.
const ShortID = 12

// short abbreviates a content address to its prefix and ShortID characters.
func short(id string) string {
	for _, prefix := range []string{"sha256:", "ver_"} {
		if digits, ok := strings.CutPrefix(id, prefix); ok && len(digits) > ShortID {
			return prefix + digits[:ShortID]
		}
	}
	return orDash(id)
}

// versionCell renders a version in a cell of a table: its newest name, or its short
// identifier.
func versionCell(id string, names []string) string {
	if len(names) > 0 {
		return names[len(names)-1]
	}
	return short(id)
}

// versionField renders a version where there is room for its identifier and its names.
func versionField(id string, names []string) string {
	if len(names) == 0 {
		return id
	}
	return id + " (" + strings.Join(names, ", ") + ")"
}

// value renders a JSON value for people. It writes a string without quotes. It writes
// compact JSON for all other values, and for a string that is empty, begins or ends with
// a space, or needs cleaning.
func value(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" && text == Cell(text) && text == strings.TrimSpace(text) {
		return text
	}
	var buf bytes.Buffer
	if json.Compact(&buf, raw) != nil {
		return Cell(string(raw))
	}
	return Cell(buf.String())
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
