package runnerspec

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// imagePattern matches an image's name with a host and without tag and digest, and such a name that ends in /*.
var imagePattern = pattern.New(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(/[a-z0-9]+([._-]+[a-z0-9]+)*|/\*)$`)

// imageByDigest matches an image's name with a host and with a digest, without a tag.
var imageByDigest = pattern.New(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+@sha256:[0-9a-f]{64}$`)

// imageID matches the ID of an image that a Docker daemon has, such as one that was built on the machine.
var imageID = pattern.New(`^sha256:[0-9a-f]{64}$`)

func isImagePattern(text string) bool { return imagePattern.MatchString(text) }

// Images returns the patterns of the images in which scripts may run, of the runner's jobs; none: every image.
func Images(c Configuration) []string {
	switch r := c.(type) {
	case *DockerRunner:
		return r.Job.Images
	case *KubernetesRunner:
		return r.Job.Images
	case *EKSRunner:
		return r.Job.Images
	case *AKSRunner:
		return r.Job.Images
	case *GKERunner:
		return r.Job.Images
	}
	return nil
}

// PermitsImage reports whether one of the patterns permits an image by digest. No pattern permits every image.
func PermitsImage(patterns []string, image string) bool {
	name, _, _ := strings.Cut(image, "@")
	for _, p := range patterns {
		folder, below := strings.CutSuffix(p, "*")
		if p == name || below && strings.HasPrefix(name, folder) {
			return true
		}
	}
	return len(patterns) == 0
}
