package appspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

const (
	imageHost   = `(?:localhost|(?:[a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+|[a-zA-Z0-9-]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?`
	imagePart   = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
	imageName   = imageHost + `/` + imagePart + `(?:/` + imagePart + `)*`
	imageDigest = `@sha256:[0-9a-f]{64}`

	imagePattern = `^` + imageName + imageDigest + `$`
	// imageReference is the pattern of one reference to an output of a component.
	imageReference = `^\$\{[ \t]*components\..+\}$`
)

// maxImage is the largest number of bytes of an image's reference.
const maxImage = 500

var (
	imageByDigest = pattern.New(imagePattern)
	imageByTag    = pattern.New(`^(` + imageName + `)(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(` + imageDigest + `)?$`)
)

// IsImage reports whether the text names an image by registry, name and digest, without a tag. Such a reference always names
// the same image.
func IsImage(text string) bool { return len(text) <= maxImage && imageByDigest.MatchString(text) }

// HasImage reports whether the jobs of the component run in an image of their own.
func (c Component) HasImage() bool { return c.Image.tree != nil }

// checkImage checks the image of a component, or of an action's part.
func checkImage(report reporter, place string, c Component, names scopeNames) {
	if t, known := component.Of(c.Type); known && !t.OwnImage {
		report(place, "no-own-image", fmt.Sprintf("the jobs of a component of type %s cannot run in an image of their own", t.Name),
			fmt.Sprintf("These types can: %s. Remove the field image.", strings.Join(component.WithOwnImage(), ", ")))
		return
	}
	if t, ok := c.Image.tree.(template); ok {
		ref, whole := t[0].(Reference)
		switch {
		case !whole || len(t) > 1:
			report(place, "invalid-image", "the image has a reference inside a text, and its digest must be known", "Write the reference as the whole value: ${components.NAME.outputs.reference}.")
		case ref.Namespace != Components || names.components[ref.Name] && names.types[ref.Name] != component.Image && names.types[ref.Name] != component.Bundle:
			report(place+"|"+ref.String(), "image-not-by-digest", fmt.Sprintf("%s does not name an image by its digest", ref.show()), "Refer to an output of a component of type image, such as ${components.NAME.outputs.reference}. It has the digest of the copy.")
		}
		return
	}
	text, ok := c.Image.tree.(string)
	switch m := imageByTag.FindStringSubmatch(text); {
	case !ok || text == "":
		report(place, "wrong-type", fmt.Sprintf("the image must be a text, not %s", yamlnode.Describe(c.Image.tree)), "Write HOST/NAME@sha256:DIGEST.")
	case IsImage(text):
	case len(text) > maxImage:
		report(place, "invalid-image", fmt.Sprintf("the image's reference is longer than %d bytes", maxImage), "")
	case m == nil:
		report(place, "invalid-image", fmt.Sprintf("%s is not the reference of an image in a registry", yamlnode.Quote(text)),
			"Write HOST/NAME@sha256:DIGEST, such as registry.example.com/tools@sha256:… . An image of Docker Hub has the host docker.io.")
	case m[2] != "":
		report(place, "image-not-by-digest", fmt.Sprintf("the image %s has a tag and a digest", yamlnode.Quote(text)), fmt.Sprintf("Remove the tag, which is ignored: %s%s", m[1], m[2]))
	default:
		report(place, "image-not-by-digest", fmt.Sprintf("the image %s has no digest, so its name can later mean another image", yamlnode.Quote(text)), fmt.Sprintf("Write its digest: %s@sha256:…", m[1]))
	}
}

// OwnImage returns the first part of the app that runs in an image of its own on the runner of its install; "" if there is
// none. A part in the sandbox has another runner.
func (a *App) OwnImage() string {
	for _, part := range a.Parts() {
		if part.HasImage() && !a.InSandbox(part.Name) {
			return part.Name
		}
	}
	return ""
}

// OwnImages returns the images in which parts of the app run on the runner of its install, by the name of the part. It does not have
// the images that are outputs of components, because only an install knows them.
func (a *App) OwnImages() map[string]string {
	images := map[string]string{}
	for _, part := range a.Parts() {
		if text, ok := part.Image.tree.(string); ok && !a.InSandbox(part.Name) {
			images[part.Name] = text
		}
	}
	return images
}

// kindsWithImages returns the kinds of runners that start jobs in an image of their own.
func kindsWithImages() []string {
	return slices.DeleteFunc(runnerKinds(), func(k string) bool { return !runnerspec.Kind(k).OwnImages() })
}

// checkImagesFit reports each declared kind of runner that cannot start jobs in an image of their own, if the app needs that.
func checkImagesFit(report reporter, a *App) {
	able := strings.Join(kindsWithImages(), ", ")
	refuse := func(where, kind, part string) {
		report(where, "runner-without-images", fmt.Sprintf("a runner of kind %s cannot start jobs in an image of their own, and %s needs it", kind, yamlnode.Quote(strings.TrimPrefix(part, fairlead.ActionPrefix))),
			fmt.Sprintf("These kinds can: %s.", able))
	}
	if part := a.OwnImage(); part != "" && a.Runner != nil {
		for i, kind := range a.Runner.Kinds {
			if k := runnerspec.Kind(kind); slices.Contains(runnerspec.Kinds(), k) && !k.OwnImages() {
				refuse(fmt.Sprintf("runner.kinds.%d", i+1), kind, part)
			}
		}
	}
	r := a.sandboxRunner()
	if r == nil || !slices.Contains(runnerspec.Kinds(), r.Kind()) || r.Kind().OwnImages() {
		return
	}
	for _, part := range a.Parts() {
		if part.HasImage() && a.InSandbox(part.Name) {
			refuse("sandbox.runner.configuration", string(r.Kind()), part.Name)
			return
		}
	}
}
