package podimage_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
	"github.com/fairlead/fairlead/runner/plugin"
)

const (
	digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	other  = "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	here   = "registry.example.com/acme/ins_1/"
)

func replacement() *podimage.Replacement {
	return podimage.New(map[string]string{"docker.io/library/nginx:1.27": here + "bundle@" + digest, "ghcr.io/acme/web:2": here + "bundle@" + other}, here)
}

// Each document has images in a place of its own. The texts of the documents are those of charts and of manifests.
var documents = map[string]struct {
	text string
	want []string // all images
}{
	"a pod":                       {"kind: Pod\nspec:\n  containers:\n  - image: nginx:1.27\n    name: a\n", []string{"nginx:1.27"}},
	"init containers":             {"kind: Pod\nspec: {initContainers: [{image: nginx:1.27}], ephemeralContainers: [{image: 'ghcr.io/acme/web:2'}]}\n", []string{"ghcr.io/acme/web:2", "nginx:1.27"}},
	"a deployment":                {"kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n        - name: a\n          image: \"docker.io/library/nginx:1.27\" # the web server\n", []string{"docker.io/library/nginx:1.27"}},
	"a cron job":                  {"kind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{image: \"nginx:1.27\"}]}}}}}\n", []string{"nginx:1.27"}},
	"a list":                      {"kind: List\nitems:\n- kind: Pod\n  spec: {containers: [{image: nginx:1.27}]}\n", []string{"nginx:1.27"}},
	"a custom resource":           {"kind: Rollout\nspec: {template: {spec: {containers: [{image: nginx:1.27}]}}}\n", []string{"nginx:1.27"}},
	"a volume":                    {"kind: Pod\nspec:\n  volumes:\n  - name: x\n    image:\n      reference: nginx:1.27\n", []string{"nginx:1.27"}},
	"an alias":                    {"kind: Pod\nx: &i ['nginx:1.27']\nspec:\n  containers: [{image: nginx:1.27}]\n  initContainers: [{image: nginx:1.27}]\n", []string{"nginx:1.27", "nginx:1.27"}},
	"shared containers":           {"kind: Pod\na: &c [{image: nginx:1.27}]\nspec: {containers: *c}\n", []string{"nginx:1.27"}},
	"text in other places":        {"kind: ConfigMap\ndata:\n  image: nginx:1.27\n  pod: |\n    containers:\n    - image: nginx:1.27\n", nil},
	"a definition":                {"kind: CustomResourceDefinition\nspec: {default: {containers: [{image: nginx:1.27}]}}\n", nil},
	"characters of several bytes": {"kind: Pod\nmetadata: {annotations: {a: \"äöü\", b: é}}\nspec: {x: 'ü日', containers: [{name: ü, image: nginx:1.27}]}\n", []string{"nginx:1.27"}},
	"no image":                    {"kind: Pod\nspec: {containers: [{name: a}]}\n", nil},
	"two documents":               {"---\n# a\nkind: Pod\nspec: {containers: [{image: nginx:1.27}]}\n---\nkind: Pod\nspec: {containers: [{image: nginx:1.27}]}\n", []string{"nginx:1.27", "nginx:1.27"}},
}

// objects decodes the documents of a text as the plugins do.
func objects(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for _, doc := range strings.Split(text, "---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all
}

func images(all []map[string]any) (found []string) {
	for _, o := range all {
		bundle.EachImage(o, func(image string) string { found = append(found, image); return image })
	}
	slices.Sort(found)
	return found
}

func TestImagesAreFoundByTheirPlace(t *testing.T) {
	for name, d := range documents {
		if got := images(objects(t, d.text)); !slices.Equal(got, d.want) {
			t.Errorf("%s: %q, want %q", name, got, d.want)
		}
	}
}

// A text is replaced as its objects are, and keeps all its other bytes.
func TestTextIsReplacedAsItsObjectsAre(t *testing.T) {
	for name, d := range documents {
		got, err := replacement().Text(d.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := objects(t, d.text)
		for _, o := range want {
			if outside := replacement().Object(o); len(outside) > 0 {
				t.Errorf("%s: nothing replaces %q", name, outside)
			}
		}
		is, _ := json.Marshal(objects(t, got))
		should, _ := json.Marshal(want)
		if string(is) != string(should) && name != "shared containers" { // the anchor is outside of the pod
			t.Errorf("%s: the text has\n%s\nwant\n%s", name, is, should)
		}
		for _, image := range images(objects(t, got)) {
			if !strings.HasPrefix(image, here) {
				t.Errorf("%s: the image %s is not replaced", name, image)
			}
		}
		rest := func(text string) string {
			for _, image := range []string{here + "bundle@" + digest, here + "bundle@" + other, "docker.io/library/nginx:1.27", "nginx:1.27", "ghcr.io/acme/web:2"} {
				for _, quote := range []string{`"`, "'", ""} {
					text = strings.ReplaceAll(text, quote+image+quote, "IMAGE")
				}
			}
			return text
		}
		if rest(got) != rest(d.text) {
			t.Errorf("%s: the text\n%s\nis now\n%s", name, d.text, got)
		}
	}
}

func TestImagesAreComparedAsAClusterReadsThem(t *testing.T) {
	for image, want := range map[string]string{
		"nginx:1.27":                         here + "bundle@" + digest,
		"index.docker.io/library/nginx:1.27": here + "bundle@" + digest,
		"mirror.example.com/nginx@" + digest: here + "bundle@" + digest, // the same content
		here + "web@" + other:                here + "web@" + other,
		here + "bundle@" + digest:            here + "bundle@" + digest,
		here + "web:1":                       "", // a tag can move
		"registry.example.com/acme/ins_10/web@" + "sha256:2" + other[8:]: "",
		"nginx":                           "",
		"nginx:1.28":                      "",
		"nginx@" + "sha256:2" + other[8:]: "",
		"Not An Image":                    "",
	} {
		if got, ok := replacement().Of(image); got != want || ok != (want != "") {
			t.Errorf("%s is replaced by %q, want %q", image, got, want)
		}
	}
}

func TestImageThatCannotBeReplacedIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"a folded text": "kind: Pod\nspec:\n  containers:\n  - image: >-\n      nginx:1.27\n",
		"an escape":     "kind: Pod\nspec: {containers: [{image: \"nginx\\x3a1.27\"}]}\n",
		"an anchor":     "kind: Pod\nspec: {containers: [{image: &i nginx:1.27}], initContainers: [{image: *i}]}\n",
		"no YAML":       "kind: Pod\nimage: [\n",
	} {
		if got, err := replacement().Text(text); err == nil {
			t.Errorf("%s: no error, and the text is\n%s", name, got)
		}
	}
}

func TestRefusalNamesImageAndObject(t *testing.T) {
	if podimage.Refuse(nil) != nil || podimage.New(nil, here) != nil || (*podimage.Replacement)(nil).Object(map[string]any{}) != nil {
		t.Error("an app that is not closed has a replacement")
	}
	err := podimage.Refuse([]podimage.Outside{{"redis:7", "Deployment/acme/web", "web.yaml:3"}})
	if plugin.ReasonOf(err) != fairlead.ReasonImageNotInBundle || !strings.Contains(err.Error(), "web.yaml:3: the Deployment/acme/web has the image redis:7") || !strings.Contains(err.Error(), "the lock of the app does not have") {
		t.Errorf("the error is %v", err)
	}
}
