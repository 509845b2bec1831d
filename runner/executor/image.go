package executor

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/selfcopy"
)

// The folder of the driver's program in an image of a step's own, and the files in it. No image
// should have this folder; if one has it, the driver's folder covers it.
const (
	ImageFolder  = "/.fairlead"
	ImageProgram = ImageFolder + "/" + selfcopy.Program
	// ImageRoots are the certificate authorities that the step trusts, in PEM. The file is empty if
	// the driver's own image has none. It is never missing: the image could then have one.
	ImageRoots = ImageFolder + "/" + selfcopy.Roots
)

// CopyCommand is the runner's subcommand that copies its own program to the folder in its argument. An
// executor whose containers share no file with the agent runs it in a container of the runner's image.
const CopyCommand = "copy"

// The environment variables of a step in an image of its own, which only its driver sets.
const (
	// ImageVariable has the image from which the driver started the container.
	ImageVariable = "FAIRLEAD_STEP_IMAGE"
	// OwnVariable has the names of the variables that the driver and the place set, separated by
	// commas. All others come from the image. They are for the tool, and the step ignores them.
	OwnVariable = "FAIRLEAD_STEP_VARIABLES"
)

// EnvironIn returns the variables to add to environ, the whole environment of a step, if the step
// runs in an image of its own. place names the variables that the place sets besides environ.
func EnvironIn(image string, environ, place []string) []string {
	if image == "" {
		return nil
	}
	names := append(slices.Clone(place), ImageVariable)
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return []string{ImageVariable + "=" + image, OwnVariable + "=" + strings.Join(slices.Compact(names), ",")}
}

// ImageCause returns the cause of a failure to get an image: that of the component's own image, or that
// of the runner's image.
func ImageCause(own bool) fairlead.Cause {
	if own {
		return fairlead.CauseImageUnavailable
	}
	return fairlead.CauseImagePull
}
