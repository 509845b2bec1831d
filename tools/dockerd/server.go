// Package dockerd gives tests a real Docker Engine: the one that
// FAIRLEAD_TEST_DOCKER_HOST names, or a dockerd of their own, with its own
// socket and data, where the program is installed and the tests run as root.
//
// Where neither can be had, tests skip and say loudly why; with
// FAIRLEAD_REQUIRE_DOCKER=1 they fail instead.
package dockerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	once   sync.Once
	host   string
	err    error
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
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
	if os.Getenv(RequireEnv) == "1" {
		t.Fatalf("no Docker Engine: %v", s.err)
	}
	t.Skipf("WHAT USES A DOCKER ENGINE IS NOT TESTED: %v.\nInstall dockerd and run as root, name an engine in %s, or set %s=1 to fail here.", s.err, HostEnv, RequireEnv)
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
	var output bytes.Buffer
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
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the keyboard is the tests' to handle
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start dockerd: %w", err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended shows in the output
		close(s.exited)
	}()
	if err := s.await(socket); err != nil {
		s.Stop() // after which nobody writes to output
		return "", fmt.Errorf("start dockerd: %w\n%s", err, output.Bytes())
	}
	return "unix://" + socket, nil
}

func (s *Server) await(socket string) error {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	deadline := time.NewTimer(startLimit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := c.Get("http://docker/_ping")
		if err == nil {
			return resp.Body.Close()
		}
		select {
		case <-s.exited:
			return errors.New("it ended at once")
		case <-deadline.C:
			return fmt.Errorf("no answer within %s: %w", startLimit, err)
		case <-tick.C:
		}
	}
}

// Stop ends the engine with its containers, if it is ours, and removes its data.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.exited:
		case <-time.After(stopLimit):
			_ = s.cmd.Process.Kill()
			<-s.exited
		}
	}
	if s.dir != "" {
		// The engine leaves the network namespace of --network=host mounted.
		_ = unix.Unmount(filepath.Join(s.dir, "exec", "netns", "default"), 0)
		_ = os.RemoveAll(s.dir)
	}
}
