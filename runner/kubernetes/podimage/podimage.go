// Package podimage finds the images of containers in Kubernetes objects, and replaces them by copies in the registry of an install.
// bundle.EachImage finds them.
package podimage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Replacement is by what the images of a component are replaced. A nil Replacement replaces nothing.
type Replacement struct {
	by       map[string]string // references by the references in the spelling of bundle.Normalize
	digests  map[string]string // references by digest
	registry string            // begin of the references by digest that stay; "": there are none
}

// New returns the replacement by a map of references; nil for a nil map. References by digest that begin with registry stay as they
// are, unless it is "".
func New(by map[string]string, registry string) *Replacement {
	if by == nil {
		return nil
	}
	r := &Replacement{by: map[string]string{}, digests: map[string]string{}, registry: registry}
	for from, to := range by {
		if normal, err := bundle.Normalize(from); err == nil {
			r.by[normal] = to
		}
		r.digests[bundle.DigestOf(to)] = to
	}
	return r
}

// Of returns what replaces an image. ok is false if nothing does.
func (r *Replacement) Of(image string) (to string, ok bool) {
	if r.stays(image) {
		return image, true
	}
	normal, err := bundle.Normalize(image)
	if err != nil {
		return "", false
	}
	if to, ok = r.by[normal]; ok {
		return to, true
	}
	if digest := bundle.DigestOf(normal); digest != "" { // the same content under another name
		to, ok = r.digests[digest]
	}
	return to, ok
}

// stays reports whether an image is already one that the cluster may pull.
func (r *Replacement) stays(image string) bool {
	if r.registry != "" && strings.HasPrefix(image, r.registry) && bundle.DigestOf(image) != "" {
		return true
	}
	for _, to := range r.by {
		if to == image {
			return true
		}
	}
	return false
}

// Outside is an image that nothing replaces.
type Outside struct{ Image, Object, Place string }

// maxNamed is the largest number of images that a message names.
const maxNamed = 5

// Refuse returns the error of images that nothing replaces; nil if there are none.
func Refuse(all []Outside) error {
	if len(all) == 0 {
		return nil
	}
	var named []string
	for _, o := range all[:min(len(all), maxNamed)] {
		named = append(named, fmt.Sprintf("%s: the %s has the image %s", o.Place, o.Object, fairlead.Clip(o.Image, 300)))
	}
	if more := len(all) - maxNamed; more > 0 {
		named = append(named, fmt.Sprintf("%d more images", more))
	}
	return plugin.Errorf(fairlead.ReasonImageNotInBundle, "%s, which the lock of the app does not have. Nothing was changed", strings.Join(named, "; "))
}

// Object replaces the images of an object. It returns those that nothing replaces, each once.
func (r *Replacement) Object(object map[string]any) (outside []string) {
	if r == nil {
		return nil
	}
	bundle.EachImage(object, func(image string) string {
		to, ok := r.Of(image)
		if ok {
			return to
		}
		if !slices.Contains(outside, image) {
			outside = append(outside, image)
		}
		return image
	})
	return outside
}

// Outside returns the images of an object that the cluster may not pull, each once. It is for an object whose images are replaced
// already.
func (r *Replacement) Outside(object map[string]any) (outside []string) {
	if r == nil {
		return nil
	}
	bundle.EachImage(object, func(image string) string {
		if !r.stays(image) && !slices.Contains(outside, image) {
			outside = append(outside, image)
		}
		return image
	})
	return outside
}

// Key returns a text that differs for each replacement; "" for one that replaces nothing.
func (r *Replacement) Key() string {
	if r == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q\n", r.registry)
	for _, from := range slices.Sorted(maps.Keys(r.by)) {
		fmt.Fprintf(&b, "%q %q\n", from, r.by[from])
	}
	return b.String()
}
