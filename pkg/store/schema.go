package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Each item carries the schema of the code that wrote it, as the first member of its JSON object:
// {"schema":"1.0",...}. An item without a schema is older than schemas, and counts as 1.0.
//
// During an upgrade, old and new functions work on one table. Code that reads an item
//   - of its own or an older schema, knows each of its fields;
//   - of a newer minor number, does not know some fields. It keeps them: a later write of the record
//     stores them again, with the schema of the newer code;
//   - of a newer major number, refuses it with CodeNewerSchema, so it changes nothing.
//
// A new field that older code may keep without understanding it raises schemaMinor. Any other
// change raises schemaMajor, and only after a release that reads the new form already: see the
// decision "table items carry a schema".
const (
	schemaMajor = 1
	schemaMinor = 0
)

const schemaMember = `{"schema":"`

// schemaHead begins each item that this code writes.
var schemaHead = []byte(schemaMember + strconv.Itoa(schemaMajor) + "." + strconv.Itoa(schemaMinor) + `"`)

// withSchema returns the JSON object with the head as its first member.
func withSchema(head, object []byte) []byte {
	out := make([]byte, 0, len(head)+len(object)+1)
	out = append(out, head...)
	if len(object) > len("{}") {
		out = append(out, ',')
	}
	return append(out, object[1:]...)
}

// readSchema returns the item's body if newer code of the same major number wrote it, and nil if
// this code knows all fields. It returns an error of CodeNewerSchema if this code must not read
// the item.
func readSchema(it *engine.Item) (newer []byte, err error) {
	if bytes.HasPrefix(it.Body, schemaHead) { // nearly always
		return nil, nil
	}
	rest, ok := bytes.CutPrefix(it.Body, []byte(schemaMember))
	if !ok {
		return nil, nil // written before items had a schema
	}
	text, _, _ := strings.Cut(string(rest[:min(len(rest), 32)]), `"`)
	a, b, _ := strings.Cut(text, ".")
	major, err1 := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("decode %s: %q is no schema", it.Key, text)
	}
	switch {
	case major > schemaMajor:
		return nil, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeNewerSchema,
			Message: fmt.Sprintf("the record %s has schema %s, written by a newer version of the control plane; this version reads schemas up to %d", it.Key, text, schemaMajor),
			Hint:    "Upgrade the control plane. If an upgrade is running, repeat the request when it is complete."}
	case major == schemaMajor && minor > schemaMinor:
		return it.Body, nil
	}
	return nil, nil
}

// encode returns the body of a record. It contains the fields of r.newer that T does not have.
func encode[T any](r Stored[T]) ([]byte, error) {
	now, err := json.Marshal(r.V)
	if err != nil || r.newer == nil {
		return withSchema(schemaHead, now), err
	}
	// What this code understands of the newer body is what decoding and encoding leave of it. The
	// rest are the fields to keep.
	var v T
	if err := json.Unmarshal(r.newer, &v); err != nil {
		return nil, err
	}
	known, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var trees [3]any // newer, known, now
	for i, text := range [][]byte{r.newer, known, now} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // a float cannot hold every integer
		if err := d.Decode(&trees[i]); err != nil {
			return nil, err
		}
	}
	newer := trees[0].(map[string]any)
	head := schemaMember + newer["schema"].(string) + `"`
	delete(newer, "schema")
	merged, err := json.Marshal(kept(trees[0], trees[1], trees[2]))
	if err != nil {
		return nil, err
	}
	return withSchema([]byte(head), merged), nil
}

// kept returns now with what newer has and known does not have: the fields that this code does not
// know. It looks into objects, and into lists of objects. An element of a list keeps its fields if
// it did not change, or if it changed in its place.
func kept(newer, known, now any) any {
	switch now := now.(type) {
	case map[string]any:
		n, ok1 := newer.(map[string]any)
		k, ok2 := known.(map[string]any)
		if !ok1 || !ok2 {
			return now
		}
		for name, v := range n {
			before, understood := k[name]
			if after, still := now[name]; understood && still {
				now[name] = kept(v, before, after)
			} else if !understood && !still {
				now[name] = v
			}
		}
	case []any:
		n, ok1 := newer.([]any)
		k, ok2 := known.([]any)
		if !ok1 || !ok2 || len(n) != len(k) {
			return now
		}
		used := make([]bool, len(k))
		var changed []int
		for i, v := range now {
			j := indexOf(k, used, v)
			if j < 0 {
				changed = append(changed, i)
				continue
			}
			used[j], now[i] = true, n[j]
		}
		for _, i := range changed {
			if len(now) == len(k) && !used[i] {
				now[i] = kept(n[i], k[i], now[i])
			}
		}
	}
	return now
}

// indexOf returns the index of the first unused element that equals v, or -1.
func indexOf(list []any, used []bool, v any) int {
	for i := range list {
		if !used[i] && reflect.DeepEqual(list[i], v) {
			return i
		}
	}
	return -1
}
