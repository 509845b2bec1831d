package bundle

import (
	"maps"
	"slices"
)

// Definition is the kind whose objects describe fields, and have no pods.
const Definition = "CustomResourceDefinition"

// ImageIn returns the path from an item of the list in a field of a pod to the image of the item; nil: the items have none.
func ImageIn(list string) []string {
	switch list {
	case "containers", "initContainers", "ephemeralContainers":
		return []string{"image"}
	case "volumes":
		return []string{"image", "reference"}
	}
	return nil
}

// EachImage calls f for each image of a Kubernetes object, which is decoded JSON, in a stable order. f returns what replaces the image.
//
// An image is found by its place: in the lists of containers, and in volumes of the type image. So it is found in objects of each kind
// that has pods, also in custom resources. An image in another place, such as a field of a custom resource whose operator makes pods,
// is not found.
func EachImage(object map[string]any, f func(string) string) {
	if object["kind"] != Definition {
		eachImage(object, f)
	}
}

func eachImage(v any, f func(string) string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			eachImage(item, f)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if path := ImageIn(key); path != nil {
				list, _ := v[key].([]any)
				for _, item := range list {
					replaceImage(item, path, f)
				}
			}
			eachImage(v[key], f)
		}
	}
}

func replaceImage(v any, path []string, f func(string) string) {
	fields, _ := v.(map[string]any)
	if len(path) > 1 {
		replaceImage(fields[path[0]], path[1:], f)
		return
	}
	if text, ok := fields[path[0]].(string); ok && text != "" {
		if to := f(text); to != text {
			fields[path[0]] = to
		}
	}
}
