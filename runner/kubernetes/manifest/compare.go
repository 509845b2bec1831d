package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// reported lists annotations in which a controller reports its progress, as others do in the status.
var reported = []string{"deployment.kubernetes.io/revision"}

// lastApplied is the annotation in which kubectl keeps the whole object, also the data of a Secret.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// content returns a copy of the object without what only a server or a status reports.
func content(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	dropServerFields(c)
	dropAnnotations(c, reported...)
	return c.Object
}

func dropAnnotations(u *unstructured.Unstructured, names ...string) {
	a := u.GetAnnotations()
	for _, name := range names {
		delete(a, name)
	}
	u.SetAnnotations(a)
	if len(a) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
}

// digest identifies the content of an object of the cluster, and the object itself: one that was deleted and created again has
// another digest. The status does not count. Nor does the number of replicas that an autoscaler sets through the subresource scale:
// otherwise no plan of a scaled object would live until its approval.
func digest(u *unstructured.Unstructured) (string, error) {
	c := content(u)
	if slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "scale" }) {
		unstructured.RemoveNestedField(c, "spec", "replicas")
	}
	b, err := json.Marshal([]any{u.GetUID(), c})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// values returns the object as decoded JSON with exact numbers; nil for nil.
func values(object map[string]any) (any, error) {
	if object == nil {
		return nil, nil
	}
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return v, dec.Decode(&v)
}

// shown returns the part of the object that a change shows.
func shown(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	c := &unstructured.Unstructured{Object: content(u)}
	dropAnnotations(c, lastApplied)
	return c.Object
}

// setValues sets the masked values of a change. Each value of a Secret is sensitive.
func (r *run) setValues(c *changeset.Change, before, after *unstructured.Unstructured) error {
	from, err := values(shown(before))
	if err != nil {
		return err
	}
	to, err := values(shown(after))
	if err != nil {
		return err
	}
	c.SetValues(from, to, changeset.Marks{BeforeSensitive: sensitive(before), AfterSensitive: sensitive(after)}, r.Mask)
	return nil
}

func isSecret(u *unstructured.Unstructured) bool {
	return u != nil && u.GetKind() == "Secret" && u.GroupVersionKind().Group == ""
}

// sensitive returns the marks of an object's secret values.
func sensitive(u *unstructured.Unstructured) any {
	if !isSecret(u) {
		return nil
	}
	marks := map[string]any{}
	for _, field := range []string{"data", "stringData"} {
		leaves, ok := u.Object[field].(map[string]any)
		if !ok {
			marks[field] = true
			continue
		}
		each := map[string]any{}
		for name := range leaves {
			each[name] = true
		}
		marks[field] = each
	}
	return marks
}

// same reports whether two objects have the same content.
func same(a, b *unstructured.Unstructured) bool { return reflect.DeepEqual(content(a), content(b)) }

// predict returns the live object as an apply of the wanted object would probably leave it: the wanted values replace those of the
// live object, and a value that only the component owned and no longer wants is removed. It does not know the schema, so it merges
// lists whose items have keys by these keys, and replaces all others. A value that it keeps wrongly is a value that the API server
// could set by default.
func predict(live, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	after := live.DeepCopy()
	for _, f := range live.GetManagedFields() {
		var owned map[string]any
		if f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "" && f.FieldsV1 != nil &&
			json.Unmarshal(f.FieldsV1.GetRawBytes(), &owned) == nil {
			after.Object, _ = without(after.Object, wanted.Object, owned).(map[string]any)
		}
	}
	after.Object, _ = merged(after.Object, wanted.DeepCopy().Object).(map[string]any)
	return after
}

// without removes from value what is owned and not in wanted. Owned has the form of managedFields: "f:NAME" is a field, and `k:{…}` an
// item of a list with these keys.
func without(value, wanted any, owned map[string]any) any {
	for path, below := range owned {
		deeper, _ := below.(map[string]any)
		if name, ok := strings.CutPrefix(path, "f:"); ok {
			from, isMap := value.(map[string]any)
			if !isMap {
				continue
			}
			if _, exists := from[name]; !exists {
				continue
			}
			to, _ := wanted.(map[string]any)
			if w, kept := to[name]; kept {
				from[name] = without(from[name], w, deeper)
			} else if rest := without(from[name], nil, deeper); len(deeper) == 0 || isEmpty(rest) {
				delete(from, name)
			} else {
				from[name] = rest
			}
			continue
		}
		keys, ok := strings.CutPrefix(path, "k:")
		var key map[string]any
		items, isList := value.([]any)
		if !ok || !isList || json.Unmarshal([]byte(keys), &key) != nil {
			continue
		}
		wantedItems, _ := wanted.([]any)
		i := itemOf(items, key)
		// The files may leave out a key that has a default, such as the protocol of a port.
		at := slices.IndexFunc(wantedItems, func(item any) bool {
			fields, _ := item.(map[string]any)
			some, all := false, true
			for name, v := range key {
				if fields[name] != nil {
					some, all = true, all && fmt.Sprint(fields[name]) == fmt.Sprint(v)
				}
			}
			return some && all
		})
		if i >= 0 && at >= 0 {
			items[i] = without(items[i], wantedItems[at], deeper)
		} else if i >= 0 {
			value = slices.Delete(slices.Clone(items), i, i+1)
		}
	}
	return value
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// itemOf returns the index of the item with these keys, or -1.
func itemOf(items []any, key map[string]any) int {
	return slices.IndexFunc(items, func(item any) bool {
		fields, ok := item.(map[string]any)
		for name, v := range key {
			ok = ok && fields[name] != nil && fmt.Sprint(fields[name]) == fmt.Sprint(v)
		}
		return ok
	})
}

// merged returns the live value with the wanted values in it.
func merged(live, wanted any) any {
	switch w := wanted.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return w
		}
		out := maps.Clone(l)
		for name, v := range w {
			if v == nil {
				delete(out, name)
				continue
			}
			out[name] = merged(l[name], v)
		}
		return out
	case []any:
		l, ok := live.([]any)
		key := keyOf(w)
		if !ok || key == "" {
			return w
		}
		out := slices.Clone(l)
		for _, item := range w {
			if i := itemOf(out, map[string]any{key: item.(map[string]any)[key]}); i >= 0 {
				out[i] = merged(out[i], item)
			} else {
				out = append(out, item)
			}
		}
		return out
	}
	return wanted
}

// keyOf returns the field by which the API server tells the items of such a list apart, or "".
func keyOf(items []any) string {
	for _, key := range []string{"name", "containerPort", "port", "mountPath", "ip", "key", "type", "uid", "topologyKey"} {
		seen := map[string]bool{}
		all := len(items) > 0
		for _, item := range items {
			fields, ok := item.(map[string]any)
			text := fmt.Sprint(fields[key])
			all = all && ok && fields[key] != nil && !seen[text]
			seen[text] = true
		}
		if all {
			return key
		}
	}
	return ""
}
