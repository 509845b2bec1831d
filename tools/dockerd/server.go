// Package dockerd gives tests a real Docker Engine: the engine that
// FAIRLEAD_TEST_DOCKER_HOST names, or a separate dockerd with its own socket and data.
// The separate dockerd needs an installed dockerd and root.
//
// If no engine is available, tests skip with a conspicuous message. With
// FAIRLEAD_REQUIRE_DOCKER=1 they fail instead.
package dockerd

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	HostEnv    = "FAIRLEAD_TEST_DOCKER_HOST" // address of a running engine on this machine
	RequireEnv = "FAIRLEAD_REQUIRE_DOCKER"   // "1": fail where a test would skip
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// Server is at most one running engine. Keep one per test binary and stop it at the end
// of TestMain. The zero value is ready to use. Safe for concurrent use.
type Server struct {
	Within []string // begin of the command line that runs the engine in another network; nil: this one

	once    sync.Once
	host    string
	err     error
	dir     string
	process *testserver.Process
}

// Host returns the address of the engine and starts it if necessary. Without an engine
// it skips the test, or fails it if RequireEnv is "1". Containers can use only the host
// network or no network.
func (s *Server) Host(t testing.TB) string {
	t.Helper()
	s.once.Do(func() { s.host, s.err = s.start() })
	if s.err == nil {
		return s.host
	}
	testserver.Missing(t, "CODE THAT USES A DOCKER ENGINE IS NOT TESTED", RequireEnv, "Install dockerd and run as root, set "+HostEnv+" to the address of an engine", s.err)
	return ""
}

func (s *Server) start() (string, error) {
	if h := os.Getenv(HostEnv); h != "" && s.Within == nil {
		return h, nil
	}
	path, err := exec.LookPath("dockerd")
	if err != nil {
		return "", errors.New("dockerd is not on PATH")
	}
	if os.Getuid() != 0 {
		return "", errors.New("dockerd is installed but needs root")
	}
	if s.dir, err = os.MkdirTemp("", "fairlead-dockerd-"); err != nil {
		return "", err
	}
	socket := filepath.Join(s.dir, "docker.sock")
	// The engine must not change the machine's network and must not read the machine's
	// dockerd configuration.
	config := filepath.Join(s.dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		return "", err
	}
	line := append(slices.Clone(s.Within), path, "--config-file", config, "--host", "unix://"+socket, "--data-root", filepath.Join(s.dir, "data"),
		"--exec-root", filepath.Join(s.dir, "exec"), "--pidfile", filepath.Join(s.dir, "pid"),
		"--iptables=false", "--ip6tables=false", "--bridge=none")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must reach only the tests, which stop the engine
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	s.process, err = testserver.Start(cmd, startLimit, func() error {
		resp, err := c.Get("http://docker/_ping")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	if err != nil {
		s.Stop()
		return "", err
	}
	return "unix://" + socket, nil
}

// Stop stops the engine with its containers and removes its data, if this Server started
// the engine.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.Stop(stopLimit)
	}
	if s.dir != "" {
		// The engine leaves the network namespace of --network=host mounted.
		_ = unix.Unmount(filepath.Join(s.dir, "exec", "netns", "default"), 0)
		_ = os.RemoveAll(s.dir)
	}
}
