package step

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/confine"
)

// namesFiles are the variables, beside those that the operator passes on, whose
// values name what every tool needs to read.
var namesFiles = []string{"PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// confined returns what confines the tools of the step; nil if nothing is to.
func confined(in attempt.Input, env []string) func(confine.Own, func() error) error {
	if in.Confined == nil {
		return nil
	}
	r := confine.Reach{Read: slices.Concat(confine.System(), in.Confined.Readable), Write: in.Confined.Writable, Private: in.Confined.Private}
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(namesFiles, name) || slices.Contains(in.PassEnv, name) {
			r.Read = append(r.Read, filesNamed(value)...)
		}
	}
	return func(own confine.Own, f func() error) error {
		r := r // each job's own
		r.Own = own
		return confine.Run(r, f)
	}
}

// filesNamed returns the paths that the value of a variable is, or is a list of.
// Of a file that a link leads to it is the folder with the link, too: where a token
// or a certificate is replaced by another, as Kubernetes does, the link changes.
func filesNamed(value string) []string {
	var paths []string
	for _, p := range filepath.SplitList(value) {
		if !filepath.IsAbs(p) || strings.HasPrefix(p, "//") || filepath.Clean(p) == "/" { // of a URL it is no path
			continue
		}
		paths = append(paths, p)
		link, err := os.Lstat(p)
		if err != nil || link.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if file, err := os.Stat(p); err == nil && file.Mode().IsRegular() && filepath.Dir(p) != "/" {
			paths = append(paths, filepath.Dir(p))
		}
	}
	return paths
}
