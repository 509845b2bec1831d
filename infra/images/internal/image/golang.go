package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Paths in the image of a build runner that builds Go programs.
const (
	goFolder = "/usr/local/go"
	KoPath   = "/usr/local/bin/ko"
)

// goVersion is the version of Go in the image. It is that of this repository's tools.
const goVersion = "1.26.8"

// goSums pins the content of the distribution of Go by architecture, as a line of go.sum does.
var goSums = map[string]string{
	"amd64": "h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM=",
	"arm64": "h1:sYL/O6MqS68ML0kjsQ36WoYIpJqkw60TxizWUYUKQMc=",
}

const koPackage = "github.com/google/ko"

// BuildKo builds the ko that the module in the folder pins, for arch, into the file.
func BuildKo(ctx context.Context, folder, arch, file string) error {
	return compile(ctx, folder, arch, file, "-s -w -buildid=", "-tags=", koPackage)
}

// Go returns a layer with the distribution of Go for arch. The Go project publishes it as a module, which the go command
// fetches and keeps.
func Go(ctx context.Context, arch string) (Layer, error) {
	l := Layer{What: "Go " + goVersion}
	dir, err := goDistribution(ctx, arch)
	if err != nil {
		return l, err
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		below = filepath.ToSlash(below)
		e := Entry{Path: path.Join(goFolder, below), Mode: 0o644, Local: file}
		switch {
		case d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir():
			e.Path, e.Mode, e.Local = e.Path+"/", 0o755, ""
		case d.Name() == "_go.mod": // a module cannot contain another module
			e.Path = path.Join(path.Dir(e.Path), "go.mod")
		case strings.HasPrefix(below, "bin/"), strings.HasPrefix(below, "pkg/tool/"): // files of a module have no mode
			e.Mode = 0o755
		}
		l.Entries = append(l.Entries, e)
		return nil
	})
	return l, err
}

// goDistribution returns the folder with the distribution of Go.
func goDistribution(ctx context.Context, arch string) (string, error) {
	module := "golang.org/toolchain@v0.0.1-go" + goVersion + ".linux-" + arch
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Stdout, cmd.Stderr = os.TempDir(), &stdout, &stderr
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	err := cmd.Run()
	var found struct{ Dir, Sum, Error string }
	if jerr := json.Unmarshal(stdout.Bytes(), &found); err != nil || jerr != nil {
		return "", fmt.Errorf("download %s: %w: %s%s", module, err, found.Error, stderr.Bytes())
	}
	if found.Sum != goSums[arch] {
		return "", fmt.Errorf("%s has the sum %s, and %s is pinned", module, found.Sum, goSums[arch])
	}
	return found.Dir, nil
}

// WithGo returns the image of s, which has a shell and git, with a layer of Go and the program ko: for a build runner that
// builds images of Go programs.
func WithGo(s Spec, distribution Layer, ko string) Spec {
	s.Env = slices.Clone(s.Env)
	s.Env[slices.IndexFunc(s.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") })] += ":" + goFolder + "/bin"
	s.Layers = slices.Insert(slices.Clone(s.Layers), 2, distribution, Program("ko", KoPath, ko)) // they change less often than the programs
	return s
}
