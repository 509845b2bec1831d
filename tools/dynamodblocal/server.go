// Package dynamodblocal gives tests a real DynamoDB-compatible server: the server that
// FAIRLEAD_TEST_DYNAMODB_ENDPOINT names, or DynamoDB Local, which Maven downloads.
//
// If no server is available, tests skip with a conspicuous message. With
// FAIRLEAD_REQUIRE_DYNAMODB=1 they fail instead.
package dynamodblocal

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	EndpointEnv = "FAIRLEAD_TEST_DYNAMODB_ENDPOINT" // URL of a running server; if unset, the package starts one
	RequireEnv  = "FAIRLEAD_REQUIRE_DYNAMODB"       // "1": fail where a test would skip
)

// version is the version of DynamoDB Local in pom.xml.
const version = "2.6.1"

//go:embed pom.xml
var pom string

// Server is at most one running server. Keep one per test binary and stop it at the
// end of TestMain. The zero value is ready to use. Safe for concurrent use.
type Server struct {
	// Own starts a separate server and ignores EndpointEnv.
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

// Program returns how DynamoDB Local is installed and started.
func Program() testserver.Program {
	return testserver.Program{
		Name: "DynamoDB Local", Folder: "dynamodb-local-" + version,
		Tested: "CODE THAT USES DYNAMODB", Needs: "Java 17 and Maven",
		EndpointEnv: EndpointEnv, RequireEnv: RequireEnv,
		Install: testserver.Maven(pom),
		Command: func(lib string, port int) *exec.Cmd {
			return testserver.Java("-Xmx512m", "-Djava.library.path="+lib, "-cp", filepath.Join(lib, "*"),
				"com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
				"-inMemory", "-disableTelemetry", "-port", strconv.Itoa(port))
		},
	}
}

// Stop kills the server if this Server started one, and waits until it has exited.
func (s *Server) Stop() { s.server.Stop() }
