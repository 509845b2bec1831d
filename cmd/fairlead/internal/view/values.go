package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// array returns items, and an empty array rather than null for none.
func array[S ~[]T, T any](items S) []T {
	if items == nil {
		return []T{}
	}
	return items
}

func orDash(s string) string { return cmp.Or(s, "-") }

// ShortID is how much of an identifier or digest tables show behind its prefix.
const ShortID = 12

// short abbreviates a content address: the twelve digits that people compare.
func short(id string) string {
	for _, prefix := range []string{"sha256:", "ver_"} {
		if digits, ok := strings.CutPrefix(id, prefix); ok && len(digits) > ShortID {
			return prefix + digits[:ShortID]
		}
	}
	return orDash(id)
}

// value writes a JSON value for people: a string as it is, unless that would
// hide what it holds, anything else as compact JSON.
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
