// Package dynamodblocal gives tests a real DynamoDB-compatible server: the one
// that FAIRLEAD_TEST_DYNAMODB_ENDPOINT names, or DynamoDB Local, fetched once
// with Maven into the user's cache folder and started on a free loopback port.
//
// Where neither can be had, tests skip and say loudly why; with
// FAIRLEAD_REQUIRE_DYNAMODB=1 they fail instead.
package dynamodblocal

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
	"strconv"
	"sync"
	"testing"
	"time"
)

// The environment of the tests.
const (
	EndpointEnv = "FAIRLEAD_TEST_DYNAMODB_ENDPOINT" // URL of a server to use instead of starting one
	RequireEnv  = "FAIRLEAD_REQUIRE_DYNAMODB"       // "1": fail where a test would skip
)

// startLimit is how long the server may take to answer. A JVM on a busy
// machine of two cores was seen to take 10 s.
const startLimit = 90 * time.Second

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

// Endpoint returns the URL of the server, which is started if need be. Without
// a server it skips the test, or fails it when RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	s.once.Do(func() { s.endpoint, s.err = s.start() })
	if s.err == nil {
		return s.endpoint
	}
	if os.Getenv(RequireEnv) == "1" {
		t.Fatalf("%s=1, and there is no DynamoDB to test against: %v", RequireEnv, s.err)
	}
	t.Skipf("SKIPPED: THE DYNAMODB ENGINE IS NOT TESTED: %v\n"+
		"Install Java 17 and Maven, or set %s to the URL of a DynamoDB Local.", s.err, EndpointEnv)
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

func (s *Server) start() (string, error) {
	if e := os.Getenv(EndpointEnv); e != "" {
		return e, nil
	}
	lib, err := fetch(context.Background())
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	// It writes files beside itself, so it gets a folder of its own.
	if s.dir, err = os.MkdirTemp("", "dynamodb-local-"); err != nil {
		return "", err
	}
	var output bytes.Buffer
	cmd := exec.Command("java", "-Xmx512m", "-Djava.library.path="+lib, "-cp", filepath.Join(lib, "*"),
		"com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
		"-inMemory", "-disableTelemetry", "-port", strconv.Itoa(port))
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = &output, &output
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start DynamoDB Local: %w", err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended shows in the output
		close(s.exited)
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := s.awaitReady(url); err != nil {
		s.Stop() // after which nobody writes to output
		return "", fmt.Errorf("start DynamoDB Local: %w\n%s", err, output.Bytes())
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
