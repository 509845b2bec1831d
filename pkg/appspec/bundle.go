package appspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"slices"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Bundle makes an app closed: its lock names each image that an install will ever pull, by digest. The reader adds a component
// that copies these images to the install's registry, and gives the copies to all components that render objects.
type Bundle struct {
	Images map[string]string `json:"images,omitempty" check:"bundleimages" alias:"extra additional" doc:"Images that no chart and no manifest of the app has, by a name of your choice, such as the images that an operator creates. A reference to a copy is ${components.bundle.outputs.named.NAME}."`
}

// The outputs of the component that copies the images of the lock.
const (
	bundleNamed    = "named"    // references by digest to the images of app.yaml, by name
	bundleImages   = "images"   // references by digest in the install's registry, by the references of the lock
	bundleRegistry = "registry" // the begin of all references to images of the install
)

// LockFile is the path of the lock in the app's folder.
const LockFile = bundle.Folder + "/" + bundle.File

// Closed reports whether all images of the app's installs are in its lock.
func (a *App) Closed() bool { return a.Bundle != nil }

// CopiesBundle reports whether the component is the one that copies the images of the lock.
func (a *App) CopiesBundle(c Component) bool { return a.Closed() && isGenerated(c) }

// Program returns the name of the program of the runner that has the plugin of the component; "": there is none.
func (c Component) Program() string {
	t, _ := component.Of(c.Type)
	return t.Program
}

// BundleProgram returns the name of the program that looks images up and copies them.
func BundleProgram() string { return bundleComponent().Program() }

// Locked returns the components whose images the lock of a closed app has.
func (a *App) Locked() []Component {
	return slices.DeleteFunc(slices.Clone(a.Components), func(c Component) bool {
		t, _ := component.Of(c.Type)
		return !t.UsesImages()
	})
}

// canonical returns a copy in which each image has its one spelling.
func (b *Bundle) canonical() *Bundle {
	if b == nil {
		return nil
	}
	out := &Bundle{Images: maps.Clone(b.Images)}
	for name, text := range out.Images {
		if normal, err := bundle.Normalize(text); err == nil {
			out.Images[name] = normal
		}
	}
	return out
}

// bundleComponent returns the component that copies the images of the lock.
func bundleComponent() Component {
	return Component{Name: component.Bundle, Type: component.Bundle, Source: bundle.Folder}
}

// bundleOptions returns the options that a closed app gives to a component that renders objects.
func bundleOptions() map[string]Value {
	of := func(output string) Value {
		return Value{template{Reference{Namespace: Components, Name: component.Bundle, Output: output}}}
	}
	return map[string]Value{component.OptionImages: of(bundleImages), component.OptionRegistry: of(bundleRegistry)}
}

// lowerBundle adds the component that copies the images of the lock, and gives its outputs to the components that render
// objects. So nothing else needs to know that an app is closed.
func (r *reader) lowerBundle() {
	if r.app.Bundle == nil {
		return
	}
	r.app.Bundle = r.app.Bundle.canonical()
	for i := range r.app.Actions {
		a := &r.app.Actions[i]
		a.Image = r.lowerImage("actions."+a.Name+".image", "image-of-action-"+a.Name, a.Image)
	}
	for i := range r.app.Components {
		c := &r.app.Components[i]
		c.Image = r.lowerImage("components."+c.Name+".image", "image-of-"+c.Name, c.Image)
		if t, _ := component.Of(c.Type); !t.UsesImages() {
			continue
		}
		if c.Options == nil {
			c.Options = map[string]Value{}
		}
		for name, value := range bundleOptions() {
			where := "components." + c.Name + "." + OptionPrefix + name
			if _, given := c.Options[name]; given {
				r.report(where, "reserved-option", fmt.Sprintf("a closed app sets the option %s itself", name), "Remove it.")
				continue
			}
			c.Options[name] = value
			r.Put(where, r.Node("components."+c.Name))
		}
	}
	if _, taken := r.app.Component(component.Bundle); !taken { // checkBundle reports another component of the name
		r.app.Components = append(r.app.Components, bundleComponent())
		r.Put("components."+component.Bundle, r.Node(component.Bundle))
	}
}

// lowerImage adds the image in which jobs run to the images of the bundle, by the name, and returns a reference to its copy. A
// reference stays: it is a copy already.
func (r *reader) lowerImage(where, name string, image Value) Value {
	text, ok := image.tree.(string)
	if !ok || !IsImage(text) { // checkImage reports what it is
		return image
	}
	normal, err := bundle.Normalize(text)
	if err != nil {
		return image
	}
	if _, taken := r.app.Bundle.Images[name]; taken {
		r.report("bundle.images."+name, "reserved-name", fmt.Sprintf("the name %s is that of the image in %s", yamlnode.Quote(name), where), "Rename the image.")
	} else {
		if r.app.Bundle.Images == nil {
			r.app.Bundle.Images = map[string]string{}
		}
		r.app.Bundle.Images[name] = normal
		r.Put("bundle.images."+name, r.Node(where))
	}
	return Value{template{Reference{Namespace: Components, Name: component.Bundle, Output: bundleNamed, Path: []string{name}}}}
}

// ImageUser returns the component or action whose jobs run in the image that the bundle has under a name; "bundle.images.NAME" if
// app.yaml itself gives the name.
func (a *App) ImageUser(name string) string {
	for _, part := range a.Parts() {
		for _, ref := range part.Image.References() {
			if ref.Name == component.Bundle && ref.Output == bundleNamed && len(ref.Path) == 1 && ref.Path[0] == name {
				return part.Name
			}
		}
	}
	return "bundle.images." + name
}

// checkBundle reports the problems of a closed app, and of components that only a closed app has.
func checkBundle(report reporter, a *App) {
	of, _ := a.Component(component.Bundle)
	for _, c := range a.Components {
		if t, _ := component.Of(c.Type); t.Generated && (a.Bundle == nil || c.Name != component.Bundle) {
			report("components."+c.Name+".type", "unknown-type", fmt.Sprintf("%s is not a type that app.yaml can name", yamlnode.Quote(c.Type)), yamlnode.DidYouMean(c.Type, "types", component.Written()))
		}
	}
	if a.Bundle == nil {
		return
	}
	if of.Type != component.Bundle || of.Source != bundle.Folder || len(of.Vars)+len(of.Options)+len(of.Env) > 0 || of.Built() || of.Enabled != "" {
		report("components."+component.Bundle, "reserved-name", fmt.Sprintf("the name %s is that of the component which copies the images of a closed app", yamlnode.Quote(component.Bundle)), "Rename the component.")
	}
	if n := len(a.Bundle.Images); n > bundle.MaxImages {
		report("bundle.images", "too-many-images", fmt.Sprintf("the app names %d images, %d are allowed", n, bundle.MaxImages), "Split the app.")
	}
	for _, name := range slices.Sorted(maps.Keys(a.Bundle.Images)) {
		where, text := "bundle.images."+name, a.Bundle.Images[name]
		if !identifier.MatchString(name) {
			report(where, "invalid-name", fmt.Sprintf("%s is not a valid name of an image", yamlnode.Quote(name)), "Use letters, digits, underscores and hyphens; begin with a letter.")
		}
		if normal, err := bundle.Normalize(text); err != nil {
			report(where, "invalid-image", fmt.Sprintf("%s is not the reference of an image: %v", yamlnode.Quote(text), err), "Write it as docker pull accepts it, such as ghcr.io/acme/web:1.2.")
		} else if normal != text {
			report(where, "invalid-image", fmt.Sprintf("the image %s must be written as %q", yamlnode.Quote(text), normal), "")
		}
	}
	for _, part := range a.Parts() {
		if text, ok := part.Image.tree.(string); ok && IsImage(text) {
			place := part.Name + ".image" // an action's name has its prefix
			if _, ok := a.Component(part.Name); ok {
				place = "components." + place
			}
			report(place, "reserved-option", fmt.Sprintf("the image of %s in a closed app must be an output of the component %s", yamlnode.Quote(part.Name), component.Bundle), "Publish the app from its folder.")
		}
	}
	for _, c := range a.Locked() {
		for name, want := range bundleOptions() {
			if got := c.Options[name]; got.String() != want.String() {
				report("components."+c.Name+"."+OptionPrefix+name, "reserved-option", fmt.Sprintf("the option %s of a closed app must be %s", name, want), "Publish the app from its folder.")
			}
		}
	}
}

// Assumed are the values with which a component is rendered although nothing is deployed: constants, defaults of inputs, and
// placeholders.
type Assumed struct {
	Vars    map[string]any `json:"vars,omitempty"`
	Options map[string]any `json:"options,omitempty"`
}

// maxVariants is the largest number of renderings of one component.
const maxVariants = 33

// Assume returns the values with which the component is rendered to find its images: with the defaults of inputs, and once more for
// each input of type bool to which the component refers, with its other value.
func (a *App) Assume(c Component) ([]Assumed, error) {
	flips := []string{""}
	for _, v := range c.Values() {
		for _, ref := range v.References() {
			in, _ := a.Input(ref.Name)
			if outer, _ := in.Type.outer(); ref.Namespace == Inputs && outer == Bool {
				flips = append(flips, ref.Name)
			}
		}
	}
	slices.Sort(flips)
	flips = slices.Compact(flips)
	options := maps.Clone(c.Options)
	for name := range bundleOptions() {
		delete(options, name)
	}
	var all []Assumed
	for _, flipped := range flips[:min(len(flips), maxVariants)] {
		vars, err := a.assume(c.Vars, flipped)
		if err != nil {
			return nil, err
		}
		settings, err := a.assume(options, flipped)
		if err != nil {
			return nil, err
		}
		all = append(all, Assumed{vars, settings})
	}
	return all, nil
}

func (a *App) assume(values map[string]Value, flipped string) (map[string]any, error) {
	out := make(map[string]any, len(values))
	for name, v := range values {
		replaced := v.replace(func(ref Reference) any { return a.placeholder(ref, flipped) }, func(Reference, any) {})
		value, _, err := replaced.Resolve(Scope{})
		if err != nil {
			return nil, fmt.Errorf("assume a value for %s: %w", name, err)
		}
		out[name] = value
	}
	return out, nil
}

// FixedBuild reports whether each build of the component has the same result, and what to change in app.yaml if not.
func (c Component) FixedBuild() (hint string, ok bool) {
	if !c.SameBuild(c) {
		return "Name a commit in git.ref.", false
	}
	return "", true
}

// Providers returns the providers that the lock files of a component's modules name, below the folder fsys. found is false if
// the component is a module and has no lock file that can be read.
func Providers(fsys fs.FS, c Component) (all []tfmodule.Provider, found bool, err error) {
	if t, _ := component.Of(c.Type); !t.Module {
		return nil, true, nil
	}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != tfmodule.LockFile || !d.Type().IsRegular() {
			return err
		}
		text, err := readBounded(fsys, name, maxModuleSize)
		if err != nil {
			return err
		}
		locked, ok := tfmodule.Providers(text)
		found, all = found || ok, append(all, locked...)
		return nil
	})
	return all, found, err
}

// placeholder returns what stands for a reference when nothing is deployed: a tree of a Value. The input with the name flipped
// has the other one of its two values.
func (a *App) placeholder(ref Reference, flipped string) any {
	switch ref.Namespace {
	case Components:
		c, _ := a.Component(ref.Name)
		if t, _ := component.Of(c.Type); t.NeedsRegistry {
			return bundle.ImagePlaceholder
		}
	case Inputs:
		in, _ := a.Input(ref.Name)
		outer, _ := in.Type.outer()
		if outer == Bool {
			on, given := in.Default.(bool)
			return (on || !given) != (ref.Name == flipped)
		}
		if in.HasDefault {
			if value, err := yamlnode.Normalize(in.Default); err == nil {
				if found, ok := (Value{value}).at(ref.Path); ok {
					return found
				}
			}
		}
		t := in.Type
		for range ref.Path {
			_, t = t.outer()
		}
		switch outer, _ := t.outer(); outer {
		case Number:
			return json.Number("1")
		case Bool:
			return true
		case List:
			return []any{}
		case Map:
			return map[string]any{}
		}
	}
	return bundle.Placeholder
}

// maxRenderedFiles is the largest number of files of a component that renders objects.
const maxRenderedFiles = 20_000

// RenderedDigest returns a digest of all that decides which images a component has: its type, its files or their origin, and the
// values that it is rendered with.
func RenderedDigest(fsys fs.FS, a *App, c Component) (string, error) {
	values, err := a.Assume(c)
	if err != nil {
		return "", err
	}
	head, err := json.Marshal(struct {
		Type, Source string
		From         Origin
		Values       []Assumed
	}{c.Type, c.Source, c.From(), values})
	if err != nil {
		return "", fmt.Errorf("encode the values of component %q: %w", c.Name, err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n%s\n", len(head), head)
	if !c.Built() {
		root, err := follow(fsys, c.Source)
		if err != nil {
			return "", err
		}
		files := 0
		err = fs.WalkDir(fsys, root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || name == LockFile { // the packer refuses links and devices
				return err
			}
			if files++; files > maxRenderedFiles {
				return fmt.Errorf("it has more than %d files", maxRenderedFiles)
			}
			text, err := fs.ReadFile(fsys, name)
			if err != nil {
				return err
			}
			below := name
			if root != "." {
				below = name[len(root)+1:]
			}
			digest := sha256.Sum256(text)
			fmt.Fprintf(sum, "%d %s %s\n", len(below), below, hex.EncodeToString(digest[:]))
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("read the files of component %q: %w", c.Name, err)
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// ReadLock returns the lock of the app in the folder fsys. ok is false if there is none.
func ReadLock(fsys fs.FS) (lock bundle.Lock, ok bool, problems Problems) {
	fail := func(err error) (bundle.Lock, bool, Problems) {
		return bundle.Lock{}, true, Problems{{File: LockFile, Line: 1, Column: 1, Code: "unreadable-file", Message: LockFile + " cannot be read: " + reason(err)}}
	}
	real, err := follow(fsys, LockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return bundle.Lock{}, false, nil
	}
	if err != nil {
		return fail(err)
	}
	text, err := readBounded(fsys, real, bundle.MaxFile)
	if err != nil && !errors.Is(err, errTooLarge) {
		return fail(err)
	}
	lock, found := bundle.Read(LockFile, text)
	return lock, true, found
}

// checkLock reports how the lock of a closed app differs from what the app has now.
func checkLock(fsys fs.FS, a *App, report reporter) Problems {
	if !a.Closed() {
		return nil
	}
	const rewrite = "{app.lock} writes it again. Review the change, and commit it."
	lock, ok, problems := ReadLock(fsys)
	if !ok {
		report(component.Bundle, "missing-lock", "the app is closed and has no lock: there is no file "+LockFile, "{app.lock} writes it. Commit it with app.yaml.")
	}
	if !ok || len(problems) > 0 {
		return problems
	}
	for _, name := range slices.Sorted(maps.Keys(a.Bundle.Images)) {
		if lock.Named[name] != a.Bundle.Images[name] {
			report("bundle.images."+name, "stale-lock", fmt.Sprintf("the lock does not have the image %s as it is here", yamlnode.Quote(name)), rewrite)
		}
	}
	rendered := map[string]bool{}
	for _, c := range a.Locked() {
		rendered[c.Name] = true
		digest, err := RenderedDigest(fsys, a, c)
		if err != nil {
			report("components."+c.Name, "unreadable-file", reason(err), "")
		} else if lock.Sources[c.Name] != digest {
			report("components."+c.Name, "stale-lock", fmt.Sprintf("the files or values of component %s have changed since the lock was written", yamlnode.Quote(c.Name)), rewrite)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lock.Sources)) {
		if !rendered[name] {
			report(component.Bundle, "stale-lock", fmt.Sprintf("the lock has images of the component %s, which the app does not have", yamlnode.Quote(name)), rewrite)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lock.Named)) {
		if _, ok := a.Bundle.Images[name]; !ok {
			report(component.Bundle, "stale-lock", fmt.Sprintf("the lock has the image %s, which app.yaml no longer names", yamlnode.Quote(name)), rewrite)
		}
	}
	return nil
}

// isGenerated reports whether the reader has added the component, and not app.yaml.
func isGenerated(c Component) bool {
	t, _ := component.Of(c.Type)
	return t.Generated
}
