package appspec

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// ImageBuild is how a build makes the image of a component. All of it is the same for every install, and none of it is
// secret. The folder of the component is the build context.
type ImageBuild struct {
	Dockerfile string            `json:"dockerfile,omitempty" alias:"file" doc:"The path of the Dockerfile in the component's folder. Default: Dockerfile."`
	Target     string            `json:"target,omitempty" alias:"stage" doc:"The stage of the Dockerfile that becomes the image. Default: the last one."`
	Platforms  []string          `json:"platforms,omitempty" check:"buildplatform" alias:"platform" doc:"The platforms of the image, such as linux/arm64. Default: that of the image builder."`
	Args       map[string]string `json:"args,omitempty" check:"buildargs" alias:"arguments build_args" doc:"The values of the Dockerfile's ARG instructions, by name: constant texts."`
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
	platformPattern = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?$`)
	buildArgPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	targetPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
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
	if b.Dockerfile == "" {
		b.Dockerfile = defaultDockerfile
	}
	b.Dockerfile = path.Clean(b.Dockerfile)
	slices.Sort(b.Platforms)
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
	checkDockerfile(report, where, b)
	checkPlatforms(report, where+".platforms", b.Platforms)
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

// lacksDockerfile returns "" if a component has its Dockerfile in its folder of fsys, or needs none because b is nil.
func lacksDockerfile(fsys fs.FS, folder string, b *ImageBuild) (message, hint string) {
	if b == nil {
		return "", ""
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
