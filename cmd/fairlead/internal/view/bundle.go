package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/tfmodule"
)

// Locked is a lock that was written.
type Locked struct {
	File    string        `json:"file" doc:"Path of the lock"`
	Images  []LockedImage `json:"images" doc:"The images of the lock, by reference"`
	Added   []string      `json:"added" doc:"References that the earlier lock does not have"`
	Changed []string      `json:"changed" doc:"References with another digest than in the earlier lock"`
	Removed []string      `json:"removed" doc:"References that only the earlier lock has"`
}

// LockedImage is an image of a lock.
type LockedImage struct {
	Reference string   `json:"reference" doc:"The image as charts, manifests and app.yaml name it, in its full spelling"`
	Digest    string   `json:"digest" doc:"The digest of the image"`
	Bytes     int      `json:"bytes" doc:"The size of all layers and configurations of all platforms"`
	Platforms []string `json:"platforms" doc:"The platforms of the image"`
	UsedBy    []string `json:"used_by" doc:"The components with the image, and names under bundle.images"`
}

// NewLocked returns the lock with what differs from the earlier one.
func NewLocked(file string, before, after bundle.Lock) Locked {
	l := Locked{File: file, Added: []string{}, Changed: []string{}, Removed: []string{}, Images: []LockedImage{}}
	for _, i := range after.Images {
		l.Images = append(l.Images, LockedImage{i.Reference, i.Digest, i.Bytes, array(i.Platforms), array(i.UsedBy)})
		switch was, ok := before.Image(i.Reference); {
		case !ok:
			l.Added = append(l.Added, i.Reference)
		case was.Digest != i.Digest:
			l.Changed = append(l.Changed, i.Reference)
		}
	}
	for _, i := range before.Images {
		if _, ok := after.Image(i.Reference); !ok {
			l.Removed = append(l.Removed, i.Reference)
		}
	}
	return l
}

// JSON returns the lock.
func (l Locked) JSON() any { return l }

// Human writes a table of the images, and what differs from the earlier lock.
func (l Locked) Human(p *Page) {
	table(p, []string{"IMAGE", "DIGEST", "SIZE", "USED BY"}, l.Images, func(i LockedImage) []string {
		return []string{i.Reference, short(i.Digest), sizeOf(i.Bytes), orDash(strings.Join(i.UsedBy, ", "))}
	})
	p.Gap()
	p.Fields([2]string{"Lock", l.File}, [2]string{"Added", strings.Join(l.Added, ", ")}, [2]string{"Changed", strings.Join(l.Changed, ", ")}, [2]string{"Removed", strings.Join(l.Removed, ", ")})
}

// sizeOf returns a number of bytes for people.
func sizeOf(n int) string {
	for _, unit := range []struct {
		bytes int
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Bundle is everything that an install of a version fetches.
type Bundle struct {
	App     string       `json:"app" doc:"Name of the app"`
	Version string       `json:"version" doc:"ID of the version"`
	Names   []string     `json:"names" doc:"Names of the version"`
	Closed  bool         `json:"closed" doc:"Whether the version has a lock of its images"`
	Items   []BundleItem `json:"items" doc:"What an install fetches"`
	Open    []string     `json:"open" doc:"Parts of the app that no lock names, each with the reason"`
	Copied  Copied       `json:"copied,omitzero" doc:"The copy that --out or --mirror has made"`
}

// Copied is a copy of a bundle: in a file, or in a registry.
type Copied struct {
	File    string        `json:"file,omitempty" doc:"The file or folder with the copy"`
	Mirror  string        `json:"mirror,omitempty" doc:"Reference, by digest, of the index in the registry that names everything"`
	Digest  string        `json:"digest" doc:"Digest of the index that names everything"`
	Objects []CopiedEntry `json:"objects" doc:"What was copied"`
	Absent  []string      `json:"absent" doc:"Archives of providers that are not in the copy, each with the reason"`
}

// CopiedEntry is an object of OCI in the copy of a bundle.
type CopiedEntry struct {
	Kind    string   `json:"kind" doc:"artifact, image or provider"`
	Name    string   `json:"name" doc:"Component or action, reference of an image, or address of a provider"`
	Version string   `json:"version,omitempty" doc:"Version of a provider"`
	Digest  string   `json:"digest" doc:"Digest of the object; of a provider, of the index with an archive for each platform"`
	UsedBy  []string `json:"used_by" doc:"Components and actions that use it"`
}

// NewCopied returns the copy that the program of the plugin has made.
func NewCopied(a bundle.CopyAnswer) Copied {
	c := Copied{Mirror: a.Reference, Digest: a.Digest, Objects: []CopiedEntry{}, Absent: array(a.Absent)}
	for _, e := range a.Entries {
		c.Objects = append(c.Objects, CopiedEntry{string(e.Kind), e.Name, e.Version, e.Digest, array(e.UsedBy)})
	}
	return c
}

// JSON returns the copy.
func (c Copied) JSON() any { return c }

// Human writes a table of the objects.
func (c Copied) Human(p *Page) {
	table(p, []string{"KIND", "NAME", "DIGEST", "USED BY"}, c.Objects, func(e CopiedEntry) []string {
		return []string{e.Kind, strings.TrimSpace(e.Name + " " + e.Version), short(e.Digest), orDash(strings.Join(e.UsedBy, ", "))}
	})
	p.Gap()
	c.fields(p)
}

// fields writes where the copy is, and what is not in it.
func (c Copied) fields(p *Page) {
	p.Fields([2]string{"File", c.File}, [2]string{"Mirror", c.Mirror}, [2]string{"Digest", c.Digest})
	for _, text := range c.Absent {
		p.Line("Not copied: %s.", text)
	}
}

// BundleItem is something that an install fetches.
type BundleItem struct {
	Kind      string   `json:"kind" doc:"artifact, image or provider"`
	Name      string   `json:"name" doc:"Component or action, reference of an image, or address of a provider"`
	Version   string   `json:"version,omitempty" doc:"Version of a provider"`
	Digest    string   `json:"digest,omitempty" doc:"Digest of an artifact or image"`
	Hashes    []string `json:"hashes,omitempty" doc:"Hashes of the packages of a provider"`
	Bytes     int      `json:"bytes,omitempty" doc:"Size of all layers and configurations of an image"`
	Platforms []string `json:"platforms,omitempty" doc:"Platforms of an image"`
	UsedBy    []string `json:"used_by" doc:"Components and actions that use it"`
}

// AddProvider adds a provider of a component. A provider that several components lock with the same version and hashes is one item.
func (b *Bundle) AddProvider(component string, p tfmodule.Provider) {
	for i := range b.Items {
		if it := &b.Items[i]; it.Name == p.Address && it.Version == p.Version && slices.Equal(it.Hashes, p.Hashes) {
			if !slices.Contains(it.UsedBy, component) {
				it.UsedBy = append(it.UsedBy, component)
			}
			return
		}
	}
	b.Items = append(b.Items, BundleItem{Kind: "provider", Name: p.Address, Version: p.Version, Hashes: p.Hashes, UsedBy: []string{component}})
}

// JSON returns the bundle.
func (b Bundle) JSON() any {
	b.Names = array(b.Names)
	return b
}

// Human writes a table of the items, and what is open.
func (b Bundle) Human(p *Page) {
	table(p, []string{"KIND", "NAME", "DIGEST", "SIZE", "USED BY"}, b.Items, func(i BundleItem) []string {
		name, digest, size := i.Name, short(i.Digest), "-"
		if i.Version != "" {
			name, digest = i.Name+" "+i.Version, fmt.Sprintf("%d hashes", len(i.Hashes))
		}
		if i.Bytes > 0 {
			size = sizeOf(i.Bytes)
		}
		return []string{i.Kind, name, digest, size, orDash(strings.Join(i.UsedBy, ", "))}
	})
	p.Gap()
	closed := "no"
	if b.Closed {
		closed = "yes"
	}
	p.Fields([2]string{"Version", versionField(b.Version, b.Names)}, [2]string{"Closed", closed})
	if b.Copied.Digest != "" {
		b.Copied.fields(p)
	}
	if len(b.Open) > 0 {
		p.Gap()
		for _, text := range b.Open {
			p.Line("Open: %s.", text)
		}
	}
}
