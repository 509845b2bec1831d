package manifest

import (
	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
)

// ReplaceImages replaces the images of the objects. Its error names each image that nothing replaces, with its object, file and line.
func ReplaceImages(objects []Object, by *podimage.Replacement) error {
	var outside []podimage.Outside
	for _, o := range objects {
		for _, image := range by.Object(o.Object) {
			outside = append(outside, podimage.Outside{Image: image, Object: refOf(o.Unstructured).String(), Place: o.place()})
		}
	}
	return podimage.Refuse(outside)
}

// Image is an image in an object of a component's files.
type Image struct{ Image, Object, Place string }

// Images lists the images of the objects.
func Images(objects []Object) (all []Image) {
	for _, o := range objects {
		bundle.EachImage(o.Object, func(image string) string {
			all = append(all, Image{image, refOf(o.Unstructured).String(), o.place()})
			return image
		})
	}
	return all
}
