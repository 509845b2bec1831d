// Package elasticmq gives tests a real SQS-compatible server: the one that
// FAIRLEAD_TEST_SQS_ENDPOINT names, or ElasticMQ, which Maven fetches.
//
// Where neither can be had, tests skip and say loudly why; with
// FAIRLEAD_REQUIRE_SQS=1 they fail instead.
//
// ElasticMQ differs from SQS where a test must know it: a name can be used
// again as soon as its queue is deleted (SQS: after 60 s), an old receipt is
// refused (SQS may accept it and do nothing), and it takes no message over
// 256 KiB unless its limits are relaxed, which they are here (SQS takes 1 MiB).
package elasticmq

import (
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	EndpointEnv = "FAIRLEAD_TEST_SQS_ENDPOINT" // URL of a server to use instead of starting one
	RequireEnv  = "FAIRLEAD_REQUIRE_SQS"       // "1": fail where a test would skip
)

// version is that of pom.xml.
const version = "1.6.12"

//go:embed pom.xml
var pom string

// Server is at most one running server. Keep one per test binary and stop it
// at the end of TestMain. The zero value is ready. Safe for concurrent use.
type Server struct{ server testserver.Server }

// Endpoint returns the URL of the server, which is started if need be. Without
// a server it skips the test, or fails it when RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	return s.server.Endpoint(t, Program())
}

// Program returns how ElasticMQ is installed and started.
func Program() testserver.Program {
	return testserver.Program{
		Name: "ElasticMQ", Folder: "elasticmq-" + version,
		Tested: "WHAT USES SQS", Needs: "Java 17 and Maven",
		EndpointEnv: EndpointEnv, RequireEnv: RequireEnv,
		Install: testserver.Maven(pom),
		Command: func(lib string, port int) *exec.Cmd {
			return testserver.Java("-Xmx256m",
				"-Drest-sqs.bind-hostname=127.0.0.1",
				fmt.Sprintf("-Drest-sqs.bind-port=%d", port),
				fmt.Sprintf("-Dnode-address.port=%d", port),
				"-Dnode-address.host=127.0.0.1",
				"-Drest-sqs.sqs-limits=relaxed",
				"-Drest-stats.enabled=false",
				"-cp", filepath.Join(lib, "*"), "org.elasticmq.server.Main")
		},
	}
}

// Stop kills the server, if there is one, and waits for its end.
func (s *Server) Stop() { s.server.Stop() }
