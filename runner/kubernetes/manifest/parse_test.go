package manifest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
	"github.com/fairlead/fairlead/runner/plugin"
)

func TestFilesAreReadAsKubectlDoes(t *testing.T) {
	objects, err := parse(t, map[string]string{
		"b/two.yml": "# only a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: |\n    x\n    ---\n",
		"a.yaml": "\ufeff---\n# first\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  uid: x\n  creationTimestamp: null\n  labels:\nstatus: {x: 1}\n--- # second\n" +
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s, namespace: ns}\n  stringData: {k: v}\n  data: {b: YQ==}\n- &x\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b}\n---\n",
		"c.json":          `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"}}`,
		"numbers.yaml":    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {mode: 0644, on: yes, big: 9007199254740993}\n",
		".hidden.yaml":    "no: object",
		".git/x.yaml":     "no: object",
		"README.md":       "kind: none",
		"notes/x.yaml.md": "kind: none",
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, fmt.Sprintf("%s:%d %s/%s", o.File, o.Line, o.GetKind(), o.GetName()))
	}
	want := "a.yaml:3 ConfigMap/a, a.yaml:15 Secret/s, a.yaml:21 ConfigMap/b, b/two.yml:3 ConfigMap/c, c.json:1 ConfigMap/j, numbers.yaml:1 Pod/p"
	if strings.Join(got, ", ") != want {
		t.Errorf("read\n%s, want\n%s", strings.Join(got, ", "), want)
	}
	if _, has := objects[0].Object["status"]; has || objects[0].GetUID() != "" || len(objects[0].Object["metadata"].(map[string]any)) != 1 {
		t.Errorf("the fields of a server stay: %v", objects[0].Object)
	}
	if data := objects[1].Object["data"].(map[string]any); data["k"] != "dg==" || data["b"] != "YQ==" || objects[1].Object["stringData"] != nil {
		t.Errorf("the Secret is %v", objects[1].Object)
	}
	spec := objects[5].Object["spec"].(map[string]any)
	if spec["mode"] != int64(420) || spec["true"] != true || spec["big"] != int64(9007199254740993) {
		t.Errorf("the values are %v", spec)
	}
}

func TestFileThatIsNoObjectIsRefusedAtItsLine(t *testing.T) {
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct {
		file string // "": web.yaml
		text string
		want []string // parts of the message
	}{
		"syntax":                                {text: object + "---\na: [\n", want: []string{"web.yaml:4: ", "line 5"}},
		"a template of Helm":                    {text: "kind: {{ .Values.kind }}\n", want: []string{"web.yaml:1: "}},
		"a key twice":                           {text: "\n" + object + "data: {}\ndata: {}\n", want: []string{"web.yaml:", "line 6", "data"}},
		"no apiVersion":                         {text: "kind: ConfigMap\nmetadata: {name: a}", want: []string{"web.yaml:1: ", "apiVersion"}},
		"no kind":                               {text: "\n\napiVersion: v1\nmetadata: {name: a}", want: []string{"web.yaml:3: ", "kind"}},
		"no metadata":                           {text: "apiVersion: v1\nkind: ConfigMap", want: []string{"metadata"}},
		"no name":                               {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {}", want: []string{"metadata.name"}},
		"a name that a server makes":            {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}", want: []string{"generateName"}},
		"a namespace that YAML reads as a bool": {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n}", want: []string{"quote it"}},
		"a name that is a path":                 {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../../secrets/a}", want: []string{"web.yaml:1: "}},
		"a namespace that is a path":            {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ..}", want: []string{"web.yaml:1: "}},
		"a kind that is a path":                 {text: "apiVersion: v1\nkind: a/b\nmetadata: {name: a}", want: []string{"web.yaml:1: "}},
		"an apiVersion with two slashes":        {text: "apiVersion: a/b/c\nkind: ConfigMap\nmetadata: {name: a}", want: []string{"apiVersion"}},
		"a label that is a number":              {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: 1}}", want: []string{"quote it"}},
		"annotations that are a list":           {text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: [a]}", want: []string{"annotations"}},
		"a Secret that is not Base64":           {text: "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: " + secret + "}", want: []string{"Base64"}},
		"a text":                                {text: "hello", want: []string{"web.yaml:1: ", "apiVersion"}},
		"a list":                                {text: "[1]", want: []string{"web.yaml:1: "}},
		"a list whose items are no list":        {text: "apiVersion: v1\nkind: List\nitems: {}", want: []string{"web.yaml:3: "}},
		"an item that is no object":             {text: "apiVersion: v1\nkind: List\nitems:\n- 1", want: []string{"web.yaml:4: "}},
		"an object twice":                       {text: object + "---\n" + object, want: []string{"web.yaml:5: ", "web.yaml:1"}},
		"no object":                             {text: "# nothing\n---\n", want: []string{"no object"}},
		"a kustomization":                       {file: "kustomization.yaml", text: "resources: []", want: []string{"kustomization.yaml:1: ", "kustomize build"}},
		"bytes that are no text":                {text: "a: \xff", want: []string{"UTF-8"}},
		"deep lists":                            {text: strings.Repeat("[", 300), want: []string{"web.yaml:1: "}},
		"deep maps":                             {text: deep(200), want: []string{"deeper than 100"}},
		"aliases that multiply":                 {text: bomb(), want: []string{"values"}},
		"an alias that contains itself":         {text: object + "data: &a {b: *a}", want: []string{"web.yaml:"}},
		"a huge file":                           {text: object + "# " + strings.Repeat("x", 16<<20), want: []string{"too large"}},
		"a document without a marker between":   {text: "{apiVersion: v1}\n{kind: a}", want: []string{"web.yaml:1: "}},
	} {
		t.Run(name, func(t *testing.T) {
			file := tc.file
			if file == "" {
				file = "web.yaml"
			}
			_, err := parse(t, map[string]string{file: tc.text})
			if plugin.ReasonOf(err) != fairlead.ReasonManifestInvalid || err == nil {
				t.Fatalf("got %v (%s)", err, plugin.ReasonOf(err))
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message %q does not have %q", err, want)
				}
			}
			if strings.Contains(err.Error(), secret) || len(err.Error()) > 1000 {
				t.Errorf("the message shows too much: %.300q", err)
			}
		})
	}
}

// deep returns a map in maps.
func deep(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// bomb returns a document whose aliases stand for a billion values.
func bomb() string {
	text := "l0: &l0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		text += fmt.Sprintf("l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d,", i-1), 10), ","))
	}
	return text
}

func TestLinkOutOfTheFolderIsRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.WriteFile(outside, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	_, err := manifest.Parse(os.DirFS(dir))
	if plugin.ReasonOf(err) != fairlead.ReasonManifestInvalid || !strings.Contains(err.Error(), "a.yaml:1: ") {
		t.Errorf("got %v", err)
	}
	// A linked folder is not followed either.
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if objects, err := manifest.Parse(os.DirFS(dir)); err == nil {
		t.Errorf("read %v", objects)
	}
}
