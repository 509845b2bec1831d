package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/changeset"
)

// images judges the images of containers that the plan sets.
func (p *Policy) images(q Request) Decision {
	if q.Plan == nil || !p.given["images"] {
		return allowed
	}
	if q.Plan.Omitted > 0 {
		return p.denied("images", "%d changes of the plan are not known, so their images cannot be judged", q.Plan.Omitted)
	}
	for _, c := range q.Plan.Changes {
		images, clear := imagesOf(c)
		if !clear {
			return p.denied("images", "the images of %s are hidden, too large to be read, or not known before the apply", quoted(c.Address))
		}
		for _, image := range images {
			normal, err := bundle.Normalize(image)
			if err != nil {
				return p.denied("images", "the image %s of %s cannot be judged: %v", quoted(image), quoted(c.Address), err)
			}
			if !slices.ContainsFunc(p.Images, func(pattern string) bool { return matchesPath(pattern, normal) }) {
				return p.denied("images", "it does not list the image %s of %s", quoted(normal), quoted(c.Address))
			}
		}
	}
	return allowed
}

// helmRelease is the kind of a row about a release itself.
const helmRelease = "Helm release"

// taskDefinition is the type of a resource whose containers are a JSON text.
const taskDefinition = "aws_ecs_task_definition"

// imagesOf returns the images that a change sets. clear is false if some of them may be hidden.
func imagesOf(c changeset.Change) (images []string, clear bool) {
	switch {
	case c.Action == changeset.Delete || c.Action == changeset.Forget || c.Action == changeset.Read || !hasContainers(c.Kind):
		return nil, true
	case c.Omitted || c.After == nil && sets(c):
		return nil, false
	}
	after, isMap := c.After.(map[string]any)
	if c.After != nil && !isMap {
		return nil, false
	}
	f := imageFinder{clear: true}
	if c.Kind == taskDefinition {
		f.definitions(after["container_definitions"])
	} else {
		f.find(after)
	}
	for _, pointer := range slices.Concat(c.Sensitive, c.Unknown) {
		if leadsToImage(pointer) {
			f.clear = false
		}
	}
	return f.images, f.clear
}

// sets reports whether the change sets values.
func sets(c changeset.Change) bool {
	return c.Action != changeset.Move && (c.Action != changeset.Import || len(c.Changed) > 0)
}

// hasContainers reports whether images of objects of the kind are judged. Kinds of Kubernetes have a version before a space.
func hasContainers(kind string) bool {
	if kind == "v1 Secret" || kind == "v1 ConfigMap" || kind == helmRelease || strings.HasSuffix(kind, " "+bundle.Definition) {
		return false
	}
	return strings.Contains(kind, " ") || strings.HasPrefix(kind, "kubernetes_") || kind == taskDefinition
}

// blocks are the lists of containers in resources of the Kubernetes provider.
var blocks = []string{"container", "init_container"}

type imageFinder struct {
	images []string
	clear  bool
}

// find finds the images of an object of Kubernetes, or of a resource of its provider.
func (f *imageFinder) find(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			f.find(e)
		}
	case map[string]any:
		for key, e := range v {
			path := bundle.ImageIn(key)
			if slices.Contains(blocks, key) {
				path = []string{"image"}
			}
			if path != nil {
				f.list(e, path)
			}
			f.find(e)
		}
	}
}

// list finds the images in a list, at a path in each item.
func (f *imageFinder) list(v any, path []string) {
	if text, ok := v.(string); ok && hidden(text) {
		f.clear = false
	}
	items, _ := v.([]any)
	for _, item := range items {
		for _, name := range path {
			if fields, ok := item.(map[string]any); ok {
				item = fields[name]
			}
			if text, ok := item.(string); ok && hidden(text) {
				f.clear = false
			}
		}
		if text, ok := item.(string); ok && text != "" && !hidden(text) {
			f.images = append(f.images, text)
		}
	}
}

// definitions finds the images in the container definitions of ECS.
func (f *imageFinder) definitions(v any) {
	if v == nil {
		return
	}
	text, _ := v.(string)
	var all []struct {
		Image string `json:"image"`
	}
	if hidden(text) || json.Unmarshal([]byte(text), &all) != nil {
		f.clear = false
		return
	}
	for _, d := range all {
		if d.Image != "" {
			f.images = append(f.images, d.Image)
		}
	}
}

func hidden(text string) bool { return text == changeset.Unknown || text == changeset.Sensitive }

// leadsToImage reports whether a JSON pointer is that of an image, or of the definitions of containers.
func leadsToImage(pointer string) bool {
	names := strings.Split(pointer, "/")
	last := names[len(names)-1]
	in := func(names []string, of func(string) bool) bool { return slices.ContainsFunc(names, of) }
	return last == "container_definitions" ||
		(last == "image" || last == "reference") && in(names, func(n string) bool { return bundle.ImageIn(n) != nil || slices.Contains(blocks, n) })
}
