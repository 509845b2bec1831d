// Package dockerd gives tests a real Docker Engine: the one that
// FAIRLEAD_TEST_DOCKER_HOST names, or a dockerd of their own, with its own
// socket and data, where the program is installed and the tests run as root.
//
// Where neither can be had, tests skip and say loudly why; with
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
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	HostEnv    = "FAIRLEAD_TEST_DOCKER_HOST" // address of an engine on this machine to use instead of starting one
	RequireEnv = "FAIRLEAD_REQUIRE_DOCKER"   // "1": fail where a test would skip
)

const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// Server is at most one running engine. Keep one per test binary and stop it at
// the end of TestMain. The zero value is ready. Safe for concurrent use.
type Server struct {
	once    sync.Once
	host    string
	err     error
	dir     string
	process *testserver.Process
}

// Host returns the address of the engine, which is started if need be. Without
// one it skips the test, or fails it when RequireEnv is "1". Its containers have
// no network but the machine's own, or none.
func (s *Server) Host(t testing.TB) string {
	t.Helper()
	s.once.Do(func() { s.host, s.err = s.start() })
	if s.err == nil {
		return s.host
	}
	testserver.Missing(t, "WHAT USES A DOCKER ENGINE IS NOT TESTED", RequireEnv, "Install dockerd and run as root, name an engine in "+HostEnv, s.err)
	return ""
}

func (s *Server) start() (string, error) {
	if h := os.Getenv(HostEnv); h != "" {
		return h, nil
	}
	path, err := exec.LookPath("dockerd")
	if err != nil {
		return "", errors.New("there is no dockerd on PATH")
	}
	if os.Getuid() != 0 {
		return "", errors.New("dockerd is there, but takes root")
	}
	if s.dir, err = os.MkdirTemp("", "fairlead-dockerd-"); err != nil {
		return "", err
	}
	socket := filepath.Join(s.dir, "docker.sock")
	// Nothing of the machine's network is changed, and the engine's own
	// configuration, if there is one, is left aside.
	config := filepath.Join(s.dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(path, "--config-file", config, "--host", "unix://"+socket, "--data-root", filepath.Join(s.dir, "data"),
		"--exec-root", filepath.Join(s.dir, "exec"), "--pidfile", filepath.Join(s.dir, "pid"),
		"--iptables=false", "--ip6tables=false", "--bridge=none")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the keyboard is the tests' to handle
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

// Stop ends the engine with its containers, if it is ours, and removes its data.
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
