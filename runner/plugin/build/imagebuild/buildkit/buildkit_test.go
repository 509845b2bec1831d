package buildkit_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/buildkit"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
)

var server daemon.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

// newBuilder returns the builder of a job.
func newBuilder(t *testing.T, address string, environ []string) *buildkit.Builder {
	t.Helper()
	_, bin := server.Host(t)
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	workspace := t.TempDir()
	return &buildkit.Builder{Address: address, Environ: plugin.BaseEnv(plugin.Environ(append(environ, "PATH="+os.Getenv("PATH"))), nil, workspace),
		Workspace: workspace, Grace: 5 * time.Second}
}

func TestBuildKit(t *testing.T) {
	imagebuildtest.Subject{
		New: func(t *testing.T, environ []string) imagebuild.Builder {
			address, _ := server.Host(t)
			return newBuilder(t, address, environ)
		},
		Platforms: [2]string{"linux/amd64", "linux/arm64"},
		Unreachable: func(t *testing.T) imagebuild.Builder {
			return newBuilder(t, "unix://"+filepath.Join(t.TempDir(), "none.sock"), nil)
		},
	}.Run(t)
}
