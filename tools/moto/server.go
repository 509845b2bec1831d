// Package moto gives tests a real server compatible with S3, SQS, CloudWatch Logs,
// ECS, IAM and EC2. It is the server that FAIRLEAD_TEST_MOTO_ENDPOINT names, or moto,
// which pip downloads. It also serves as an HTTP proxy for the hosts of AWS, such as
// http://sqs.eu-central-1.amazonaws.com.
//
// serve.py fixes places where moto loses a client's settings.
//
// If no server is available, tests skip with a conspicuous message. With
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
	EndpointEnv = "FAIRLEAD_TEST_MOTO_ENDPOINT" // URL of a running server; if unset, the package starts one
	RequireEnv  = "FAIRLEAD_REQUIRE_MOTO"       // "1": fail where a test would skip
)

// version is the version of moto in requirements.txt.
const version = "5.2.5"

var (
	//go:embed requirements.txt
	requirements string
	//go:embed serve.py
	serve string
)

// Server is at most one running server. Keep one per test binary and stop it at the
// end of TestMain. The zero value is ready to use. Safe for concurrent use.
type Server struct {
	// Own starts a separate server and ignores EndpointEnv. Use it for tests with fixed
	// names of stacks or buckets, because two such tests cannot share an account.
	Own bool

	server testserver.Server
}

// Endpoint returns the URL of the server and starts it if necessary. Without a server
// it skips the test, or fails it if RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	p := Program()
	p.Own = s.Own
	return s.server.Endpoint(t, p)
}

// Program returns how moto is installed and started.
func Program() testserver.Program { return Extended("") }

// Extended returns Program with Python code that runs before the server starts. The code
// can replace functions of moto.
func Extended(code string) testserver.Program {
	return testserver.Program{
		// The folder's name contains the version of Python, because a wheel works only with
		// the Python version for which it was built.
		Name: "moto server", Folder: "moto-" + version + "-" + pinned() + python(),
		Tested: "CODE THAT USES S3 OR CLOUDWATCH LOGS, THE CREATION OF SQS QUEUES, OR EXAMPLES/AWS-SERVICE", Needs: "Python 3.11 with pip",
		EndpointEnv: EndpointEnv, RequireEnv: RequireEnv,
		Install: testserver.Pip(requirements),
		Command: func(lib string, port int) *exec.Cmd {
			// -S hides this machine's own Python packages. They could hide that a package is
			// missing in requirements.txt.
			cmd := exec.Command("python3", "-S", "-c", code+"\n"+serve, "-H", "127.0.0.1", "-p", strconv.Itoa(port))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "MOTO_IAM_LOAD_MANAGED_POLICIES=true")
			return cmd
		},
	}
}

// pinned returns a short hash of requirements.txt, so that a changed requirements.txt is
// installed into a new folder.
func pinned() string {
	sum := sha256.Sum256([]byte(requirements))
	return hex.EncodeToString(sum[:4])
}

// python returns a suffix with the version of Python. Without Python it returns "";
// the installation by pip then fails with a clear error.
func python() string {
	out, err := exec.Command("python3", "-c", "import sys; print('-py%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Stop kills the server if this Server started one, and waits until it has exited.
func (s *Server) Stop() { s.server.Stop() }
