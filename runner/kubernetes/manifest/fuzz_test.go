package manifest_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The files of a vendor are read, or refused with the file and the line.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {on: yes}\n---\napiVersion: v1\nkind: List\nitems: []\n",
		"a: &a [*a]\n", "kind: Kustomization\n", "---\n---\n", "{", "\ufeff{}", "a: !!binary x\n", "? {a: b}\n: c\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := manifest.Parse(fstest.MapFS{"a.yaml": {Data: text}})
		if err != nil {
			const none = "the component's folder has no object"
			if e, ok := errors.AsType[*plugin.Error](err); !ok || !strings.HasPrefix(e.Message, "a.yaml:") && !strings.HasPrefix(e.Message, none) {
				t.Fatalf("the error is a %T without the file: %v", err, err)
			}
			return
		}
		for _, o := range objects {
			if o.GetKind() == "" || o.GetAPIVersion() == "" {
				t.Fatalf("an object without a kind is accepted: %+v", o)
			}
		}
	})
}
