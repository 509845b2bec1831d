// Package moto gives tests a real server compatible with S3, SQS, CloudWatch
// Logs, ECS, IAM and EC2: the one that FAIRLEAD_TEST_MOTO_ENDPOINT names, or
// moto, which pip fetches. It also answers as a proxy for the hosts of AWS,
// http://sqs.eu-central-1.amazonaws.com and the like.
//
// Where moto forgets what a client has set, serve.py mends it, and says what.
//
// Where neither can be had, tests skip and say loudly why; with
// FAIRLEAD_REQUIRE_MOTO=1 they fail instead.
package moto

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	EndpointEnv = "FAIRLEAD_TEST_MOTO_ENDPOINT" // URL of a server to use instead of starting one
	RequireEnv  = "FAIRLEAD_REQUIRE_MOTO"       // "1": fail where a test would skip
)

// version is that of requirements.txt.
const version = "5.2.5"

var (
	//go:embed requirements.txt
	requirements string
	//go:embed serve.py
	serve string
)

// Server is at most one running server. Keep one per test binary and stop it
// at the end of TestMain. The zero value is ready. Safe for concurrent use.
type Server struct {
	// Own starts a server for these tests alone, whatever the environment names:
	// for tests whose names of stacks, buckets and the like are fixed, so that two
	// of them cannot share an account.
	Own bool

	server testserver.Server
}

// Endpoint returns the URL of the server, which is started if need be. Without
// a server it skips the test, or fails it when RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	p := Program()
	p.Own = s.Own
	return s.server.Endpoint(t, p)
}

// Program returns how moto is installed and started.
func Program() testserver.Program {
	return testserver.Program{
		// Wheels are for one Python and not for the next.
		Name: "moto server", Folder: "moto-" + version + "-" + pinned() + python(),
		Tested: "WHAT USES S3 OR CLOUDWATCH LOGS, HOW SQS QUEUES ARE MADE, AND EXAMPLES/AWS-SERVICE,", Needs: "Python 3.11 with pip",
		EndpointEnv: EndpointEnv, RequireEnv: RequireEnv,
		Install: testserver.Pip(requirements),
		Command: func(lib string, port int) *exec.Cmd {
			// Without -S, what this machine's Python has besides would stand in
			// for what requirements.txt forgot.
			cmd := exec.Command("python3", "-S", "-c", serve, "-H", "127.0.0.1", "-p", strconv.Itoa(port))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "MOTO_IAM_LOAD_MANAGED_POLICIES=true")
			return cmd
		},
	}
}

// pinned tells what requirements.txt pins from what it pinned before.
func pinned() string {
	sum := sha256.Sum256([]byte(requirements))
	return hex.EncodeToString(sum[:4])
}

// python returns a suffix for the version of Python. Where there is none, pip
// is not to be had either, and says so.
func python() string {
	out, err := exec.Command("python3", "-c", "import sys; print('-py%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Stop kills the server, if there is one, and waits for its end.
func (s *Server) Stop() { s.server.Stop() }
