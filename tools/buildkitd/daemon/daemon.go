// Package daemon gives tests a real BuildKit: the one that FAIRLEAD_TEST_BUILDKIT_HOST names, or a separate buildkitd with
// its own socket and data. The separate buildkitd needs root, runc, and the programs that `make buildkit` built.
//
// If no BuildKit is available, tests skip with a conspicuous message. With FAIRLEAD_REQUIRE_BUILDKIT=1 they fail instead.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tools/pinned"
	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	HostEnv    = "FAIRLEAD_TEST_BUILDKIT_HOST" // address of a running BuildKit on this machine, whose programs have the host's network
	RequireEnv = "FAIRLEAD_REQUIRE_BUILDKIT"   // "1": fail where a test would skip
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// version is the version of BuildKit in tools/buildkit/go.mod.
const version = "v0.34.2"

// Programs returns the programs of BuildKit.
func Programs() pinned.Programs {
	return pinned.Programs{Folder: "buildkit-" + version, Module: "buildkit",
		LDFlags: "-X github.com/moby/buildkit/version.Version=" + version,
		Packages: map[string]string{
			"buildctl":  "github.com/moby/buildkit/cmd/buildctl",
			"buildkitd": "github.com/moby/buildkit/cmd/buildkitd",
		}}
}

// Server is at most one running BuildKit. Keep one per test binary and stop it at the end of TestMain. The zero value is
// ready to use. Safe for concurrent use.
type Server struct {
	once    sync.Once
	host    string
	bin     string
	err     error
	dir     string
	process *testserver.Process
}

// Host returns the address of BuildKit and the folder of the program buildctl. It starts BuildKit if necessary. Without a
// BuildKit it skips the test, or fails it if RequireEnv is "1".
func (s *Server) Host(t testing.TB) (address, bin string) {
	t.Helper()
	s.once.Do(func() { s.host, s.bin, s.err = s.start() })
	if s.err != nil {
		testserver.Missing(t, "CODE THAT BUILDS IMAGES IS NOT TESTED", RequireEnv, "Run `make test-tools` as root, or set "+HostEnv+" to the address of a BuildKit", s.err)
	}
	return s.host, s.bin
}

func (s *Server) start() (host, bin string, err error) {
	if bin, err = Programs().Built(); err != nil {
		return "", "", err
	}
	if h := os.Getenv(HostEnv); h != "" {
		return h, bin, nil
	}
	if os.Getuid() != 0 {
		return "", "", errors.New("buildkitd needs root")
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		if runc, err = exec.LookPath("/usr/sbin/runc"); err != nil {
			return "", "", errors.New("runc is not on PATH")
		}
	}
	if s.dir, err = os.MkdirTemp("", "fairlead-buildkitd-"); err != nil {
		return "", "", err
	}
	config := filepath.Join(s.dir, "buildkitd.toml")
	if err := os.WriteFile(config, nil, 0o600); err != nil { // it must not read the machine's configuration
		return "", "", err
	}
	host = "unix://" + filepath.Join(s.dir, "buildkitd.sock")
	cmd := exec.Command(filepath.Join(bin, "buildkitd"), "--config", config, "--addr", host, "--root", filepath.Join(s.dir, "data"),
		"--containerd-worker=false", "--oci-worker=true", "--oci-worker-binary="+runc, "--oci-worker-net=host", "--oci-worker-snapshotter=native", "--cdi-disabled")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must reach only the tests, which stop BuildKit
	s.process, err = testserver.Start(cmd, startLimit, func() error {
		out, err := exec.CommandContext(context.Background(), filepath.Join(bin, "buildctl"), "--addr", host, "debug", "workers").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		s.Stop()
		return "", "", err
	}
	return host, bin, nil
}

// Stop stops BuildKit with its builds and removes its data, if this Server started it.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.Stop(stopLimit)
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
