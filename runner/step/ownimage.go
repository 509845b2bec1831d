package step

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/runner/executor"
)

// imageEnviron is the environment variable with the variables of the image, as a list in JSON. The step sets it for itself.
const imageEnviron = "FAIRLEAD_STEP_IMAGE_ENVIRONMENT"

// maxImageEnviron is the largest size of the image's variables. Linux passes no longer variable to a program.
const maxImageEnviron = 120 << 10

// rootsVariables make this program trust only the certificate authorities that the executor gave it.
var rootsVariables = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// noFolder is a path that no image can have.
const noFolder = "/dev/null/none"

// stepEnviron is the environment of a step.
type stepEnviron struct {
	image     string   // in which the step runs, as its executor states; "": the runner's image
	environ   []string // the step's variables
	variables []string // those of the image; only its tool gets them
}

// ownImage separates the step's variables from those of the image in which it runs. The image belongs to the vendor. Its
// variables could lead the step to another proxy, to other certificate authorities or to other credentials, and some change
// the runtime of Go before the first line of this program. So the step starts this program again with its own variables.
// Then ownImage returns. The variables of a step in the runner's image are all its own.
func ownImage(environ []string) (stepEnviron, error) {
	all := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		all[name] = value
	}
	if names, first := all[executor.OwnVariable]; first {
		return stepEnviron{}, again(environ, strings.Split(names, ","))
	}
	own := stepEnviron{image: all[executor.ImageVariable], environ: environ}
	given, separated := all[imageEnviron]
	if !separated {
		return own, nil
	}
	if err := json.Unmarshal([]byte(given), &own.variables); err != nil {
		return stepEnviron{}, fmt.Errorf("%s: %w", imageEnviron, err)
	}
	hidden := append([]string{imageEnviron, executor.ImageVariable}, rootsVariables...)
	own.environ = without(environ, func(name string) bool { return slices.Contains(hidden, name) })
	for _, name := range []string{imageEnviron, executor.ImageVariable} {
		os.Unsetenv(name) // no child inherits it
	}
	return own, nil
}

// again replaces this process by the same program with the variables in names, and those of the image as a list. It returns
// only an error.
func again(environ, names []string) error {
	own := without(environ, func(name string) bool {
		return !slices.Contains(names, name) || name == imageEnviron || slices.Contains(rootsVariables, name)
	})
	images := without(environ, func(name string) bool {
		return slices.Contains(names, name) || strings.HasPrefix(strings.ToUpper(name), "FAIRLEAD_")
	})
	b, err := json.Marshal(images)
	if err != nil {
		return err
	}
	if len(b) > maxImageEnviron {
		return fmt.Errorf("the variables of the image have %d bytes, and %d are allowed", len(b), maxImageEnviron)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	roots := filepath.Join(filepath.Dir(self), filepath.Base(executor.ImageRoots)) // the executor put both into one folder
	own = append(own, imageEnviron+"="+string(b), "SSL_CERT_FILE="+roots, "SSL_CERT_DIR="+noFolder)
	return fmt.Errorf("start this program with the step's own variables: %w", syscall.Exec(self, os.Args, own))
}

// stopSignals returns the signals that ask a step to stop. A Kubernetes node sends the signal that the image declares, which
// would otherwise end the step at once, and its tool without an interrupt.
func stopSignals(image string) []os.Signal {
	all := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if image != "" {
		all = append(all, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, firstRealTime+3)
	}
	return all
}

// firstRealTime is SIGRTMIN of glibc. Images with systemd declare the third signal after it.
const firstRealTime = syscall.Signal(34)

// without returns the variables whose names are not dropped.
func without(environ []string, drop func(name string) bool) []string {
	var kept []string
	for _, v := range environ {
		if name, _, _ := strings.Cut(v, "="); !drop(name) {
			kept = append(kept, v)
		}
	}
	return kept
}
