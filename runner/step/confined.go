package step

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/confine"
)

// fileVariables are the variables whose values name files that every tool must read. confined adds the variables that the
// operator passes on.
var fileVariables = []string{"PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// confined returns the function that confines the step's tools, or nil if the step is not confined.
func confined(in attempt.Input, env []string) func(confine.Own, func() error) error {
	if in.Confined == nil {
		return nil
	}
	r := confine.Reach{Read: slices.Concat(confine.System(), in.Confined.Readable), Write: in.Confined.Writable, Private: in.Confined.Private}
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(fileVariables, name) || slices.Contains(in.PassEnv, name) {
			r.Read = append(r.Read, pathsIn(value)...)
		}
	}
	return func(own confine.Own, f func() error) error {
		r := r // a copy for each call
		r.Own = own
		return confine.Run(r, f)
	}
}

// pathsIn returns the absolute paths in a variable's value, which is a path or a list of paths. For a symbolic link to a
// file it adds the link's folder: Kubernetes replaces a token or certificate by changing the link.
func pathsIn(value string) []string {
	var paths []string
	for _, p := range filepath.SplitList(value) {
		if !filepath.IsAbs(p) || strings.HasPrefix(p, "//") || filepath.Clean(p) == "/" { // a URL's host is no path
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
