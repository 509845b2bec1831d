package helm

import (
	"fmt"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
)

// replaceImages replaces the images in the rendered files. An image that nothing replaces stays, for checkImages to find.
func (r *rendering) replaceImages(by *podimage.Replacement) error {
	if by == nil {
		return nil
	}
	for name, text := range r.Files {
		if name == r.notes() {
			continue
		}
		replaced, err := by.Text(text)
		if err != nil {
			return invalid("read %s: %w", name, err)
		}
		r.Files[name] = replaced
	}
	return nil
}

// checkImages returns an error that names each image which the cluster may not pull.
func (r *rendering) checkImages(by *podimage.Replacement) error {
	if by == nil {
		return nil
	}
	objects, err := r.objects()
	if err != nil {
		return err
	}
	var outside []podimage.Outside
	for _, o := range objects {
		for _, image := range by.Outside(o.Object) {
			outside = append(outside, podimage.Outside{Image: image, Object: o.id().String(), Place: o.source})
		}
	}
	return podimage.Refuse(outside)
}

// objects reads all rendered objects: hooks and others.
func (r *rendering) objects() (all []*object, err error) {
	add := func(source, doc string) error {
		objects, err := parse(source, doc)
		all = append(all, objects...)
		return err
	}
	for _, h := range r.hooks {
		if err := add(h.Path, h.Manifest); err != nil {
			return nil, err
		}
	}
	for _, m := range r.manifests {
		if err := add(m.Name, m.Content); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Image is an image in an object of a chart.
type Image struct{ Image, Object, Place string }

// Images renders a chart without a cluster and returns the images of its objects. A template that looks an object of the cluster up finds none.
func Images(ch *Chart, release, namespace string, values map[string]any) ([]Image, error) {
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true, IsUpgrade: true}
	loaded, top, err := ch.prepare(values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, top)
	if err != nil {
		return nil, invalid("render the chart %s: %w", loaded.Name(), err)
	}
	r := &rendering{Metadata: loaded.Metadata, Files: map[string]string{}}
	if err := r.add(files); err != nil {
		return nil, err
	}
	if err := r.sort(); err != nil {
		return nil, err
	}
	objects, err := r.objects()
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, o := range objects {
		bundle.EachImage(o.Object, func(image string) string {
			all = append(all, Image{image, fmt.Sprintf("%s/%s", o.GetKind(), o.GetName()), o.source})
			return image
		})
	}
	return all, nil
}
