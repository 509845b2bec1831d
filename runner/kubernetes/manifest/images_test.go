package manifest

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The objects of a plan have the images of the install's registry. An image that nothing replaces is named with its file and line.
func TestObjectsHaveTheImagesOfTheBundle(t *testing.T) {
	const own = "registry.example.com/acme/ins_1/bundle@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: '${vars.image}'}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {initContainers: [{name: b, image: 'redis:7'}]}\n"
	objects, err := Parse(fstest.MapFS{"pods.yaml": {Data: []byte(text)}})
	if err == nil {
		err = Substitute(objects, map[string]any{"image": "nginx"})
	}
	if err != nil {
		t.Fatal(err)
	}
	found := Images(objects)
	if len(found) != 2 || found[0] != (Image{"nginx", "Pod/a", "pods.yaml:1"}) || found[1] != (Image{"redis:7", "Pod/b", "pods.yaml:8"}) {
		t.Errorf("the images are %+v", found)
	}
	err = ReplaceImages(objects, podimage.New(map[string]string{"docker.io/library/nginx:latest": own}, ""))
	if plugin.ReasonOf(err) != fairlead.ReasonImageNotInBundle || !strings.Contains(err.Error(), "pods.yaml:8: the Pod/b has the image redis:7") || strings.Contains(err.Error(), "nginx") {
		t.Errorf("the error is %v", err)
	}
	if found = Images(objects); found[0].Image != own {
		t.Errorf("the image is %s", found[0].Image)
	}
	if err := ReplaceImages(objects, nil); err != nil {
		t.Errorf("an app that is not closed: %v", err)
	}
}
