package appspec

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// ImageBuild is how a build makes the image of a component. All of it is the same for every install, and none of it is
// secret. The folder of the component is the build context, or has a Go program.
type ImageBuild struct {
	Dockerfile string            `json:"dockerfile,omitempty" alias:"file" doc:"The path of the Dockerfile in the component's folder. Default: Dockerfile."`
	Target     string            `json:"target,omitempty" alias:"stage" doc:"The stage of the Dockerfile that becomes the image. Default: the last one."`
	Platforms  []string          `json:"platforms,omitempty" check:"buildplatform" alias:"platform" doc:"The platforms of the image, such as linux/arm64. Default: that of the image builder."`
	Args       map[string]string `json:"args,omitempty" check:"buildargs" alias:"arguments build_args" doc:"The values of the Dockerfile's ARG instructions, by name: constant texts."`
	// Go is the Go program of the image; nil: a Dockerfile makes the image.
	Go *GoProgram `json:"go,omitempty" alias:"golang ko" doc:"A Go program that becomes an image without a Dockerfile. It replaces dockerfile, target and args."`
}

// GoProgram is a Go program that a build compiles and adds to a base image.
type GoProgram struct {
	Package string `json:"package,omitempty" alias:"main path" doc:"The folder of the main package, in the component's folder. Default: the component's folder."`
	Base    string `json:"base" must:"there" alias:"base_image from image" doc:"The image to which the program is added, by digest: HOST/NAME@sha256:DIGEST."`
}

// defaultDockerfile is the default of ImageBuild.Dockerfile.
const defaultDockerfile = "Dockerfile"

// The limits of an ImageBuild.
const (
	maxPlatforms = 20
	maxBuildArgs = 100
	maxArgsSize  = 4 << 10 // bytes of all args: the provenance of the build has them
)

var (
	platformPattern = pattern.New(`^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?$`)
	buildArgPattern = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	targetPattern   = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
)

// completeBuild fills in the omitted settings of a build, and sorts the platforms.
func (c *Component) completeBuild() {
	if t, _ := component.Of(c.Type); t.Dockerfile && c.Build == nil {
		c.Build = &ImageBuild{}
	}
	b := c.Build
	if b == nil {
		return
	}
	slices.Sort(b.Platforms)
	if b.Go != nil {
		b.Go.Package = path.Clean(b.Go.Package)
		return
	}
	if b.Dockerfile == "" {
		b.Dockerfile = defaultDockerfile
	}
	b.Dockerfile = path.Clean(b.Dockerfile)
}

// checkImageBuild reports what is wrong with the build of an image.
func checkImageBuild(report reporter, where string, c Component) {
	t, known := component.Of(c.Type)
	b := c.Build
	where += ".build"
	switch {
	case !known:
		return
	case !t.Dockerfile && b != nil:
		report(where, "not-an-image", fmt.Sprintf("the component %s is of type %s and has a build of an image", yamlnode.Quote(c.Name), t.Name), "Only a component of type "+component.DockerBuild+" has one.")
		return
	case !t.Dockerfile:
		return
	case b == nil:
		report(where, "missing-field", fmt.Sprintf("the component %s has no build", yamlnode.Quote(c.Name)), "")
		return
	}
	if b.Go != nil {
		checkGoProgram(report, where, b)
	} else {
		checkDockerfile(report, where, b)
	}
	checkPlatforms(report, where+".platforms", b.Platforms)
}

// checkGoProgram reports what is wrong with the build of a Go program.
func checkGoProgram(report reporter, where string, b *ImageBuild) {
	for field, given := range map[string]bool{"dockerfile": b.Dockerfile != "", "target": b.Target != "", "args": len(b.Args) > 0} {
		if given {
			report(where+"."+field, "field-of-dockerfile", fmt.Sprintf("the build of a Go program has no Dockerfile, but the field %s", field), "Remove the field, or the field go.")
		}
	}
	if clean, message, _ := cleanSource(b.Go.Package); message != "" || clean != b.Go.Package {
		report(where+".go.package", "invalid-package", fmt.Sprintf("%s is not a folder in the component's folder", yamlnode.Quote(b.Go.Package)), "Write a path with forward slashes, such as ./cmd/web.")
	}
	if b.Go.Base != "" && !IsImage(b.Go.Base) {
		report(where+".go.base", "image-not-by-digest", fmt.Sprintf("%s is not an image by its digest", yamlnode.Quote(b.Go.Base)), "Write HOST/NAME@sha256:DIGEST. An image of Docker Hub has the host docker.io.")
	}
}

func checkDockerfile(report reporter, where string, b *ImageBuild) {
	if clean, message, _ := cleanSource(b.Dockerfile); message != "" || clean != b.Dockerfile || clean == "." {
		report(where+".dockerfile", "invalid-dockerfile", fmt.Sprintf("%s is not the path of a file in the component's folder", yamlnode.Quote(b.Dockerfile)), "Write a path with forward slashes, such as deploy/Dockerfile.")
	}
	if b.Target != "" && !targetPattern.MatchString(b.Target) {
		report(where+".target", "invalid-target", fmt.Sprintf("%s is not the name of a stage", yamlnode.Quote(b.Target)), "Write the name after AS in the Dockerfile.")
	}
	if len(b.Args) > maxBuildArgs {
		report(where+".args", "too-many-args", fmt.Sprintf("the build has %d args, %d are allowed", len(b.Args), maxBuildArgs), "")
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(b.Args)) {
		size += len(name) + len(b.Args[name])
		value, place := b.Args[name], where+".args."+name
		switch {
		case !buildArgPattern.MatchString(name):
			report(place, "invalid-name", fmt.Sprintf("%s is not the name of an ARG", yamlnode.Quote(name)), "Use letters, digits and underscores; begin with a letter or an underscore.")
		case strings.Contains(value, "${"):
			report(place, "reference-in-constant", "an arg of a build cannot hold a reference", "The image is the same for every install. Give what differs to what runs the image.")
		}
	}
	if size > maxArgsSize {
		report(where+".args", "too-long", fmt.Sprintf("the args have %d bytes, %d are allowed", size, maxArgsSize), "Put them into a file of the component's folder.")
	}
}

func checkPlatforms(report reporter, where string, platforms []string) {
	if len(platforms) > maxPlatforms {
		report(where, "too-many-platforms", fmt.Sprintf("the build has %d platforms, %d are allowed", len(platforms), maxPlatforms), "")
	}
	for i, p := range platforms {
		if !platformPattern.MatchString(p) {
			report(where, "invalid-platform", fmt.Sprintf("%s is not a platform", yamlnode.Quote(p)), "Write it as OS/ARCHITECTURE, such as linux/arm64.")
		} else if i > 0 && platforms[i-1] >= p {
			report(where, "duplicate-name", fmt.Sprintf("the platform %s is listed twice, or the list is not sorted", yamlnode.Quote(p)), "")
		}
	}
}

// lacksDockerfile returns "" if a component has its Dockerfile or its Go program in its folder of fsys, or needs none because
// b is nil.
func lacksDockerfile(fsys fs.FS, folder string, b *ImageBuild) (message, hint string) {
	if b == nil {
		return "", ""
	}
	if b.Go != nil {
		return lacksGoProgram(fsys, folder, b.Go)
	}
	real, err := follow(fsys, path.Join(folder, b.Dockerfile))
	if err == nil {
		var info fs.FileInfo
		if info, err = fs.Stat(fsys, real); err == nil && info.Mode().IsRegular() {
			return "", ""
		}
	}
	return fmt.Sprintf("holds no file %s", yamlnode.Quote(b.Dockerfile)), "A component of type " + component.DockerBuild + " is a folder with a Dockerfile. Write its path in the folder under build.dockerfile."
}

// lacksGoProgram returns "" if the component's folder has the Go module and the folder of the program.
func lacksGoProgram(fsys fs.FS, folder string, g *GoProgram) (message, hint string) {
	for _, want := range []struct {
		name   string
		folder bool
		hint   string
	}{
		{"go.mod", false, "A Go program is in a Go module, whose top is the component's folder."},
		{g.Package, true, "Write the folder of the main package under build.go.package."},
	} {
		real, err := follow(fsys, path.Join(folder, want.name))
		var info fs.FileInfo
		if err == nil {
			info, err = fs.Stat(fsys, real)
		}
		switch {
		case err == nil && info.IsDir() == want.folder:
		case want.folder:
			return fmt.Sprintf("holds no folder %s", yamlnode.Quote(want.name)), want.hint
		default:
			return fmt.Sprintf("holds no file %s", yamlnode.Quote(want.name)), want.hint
		}
	}
	return "", ""
}
