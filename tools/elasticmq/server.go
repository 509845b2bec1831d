// Package elasticmq gives tests a real SQS-compatible server: the server that
// FAIRLEAD_TEST_SQS_ENDPOINT names, or ElasticMQ, which Maven downloads.
//
// If no server is available, tests skip with a conspicuous message. With
// FAIRLEAD_REQUIRE_SQS=1 they fail instead.
//
// ElasticMQ differs from SQS in these points:
//   - The name of a deleted queue can be used again at once. SQS requires 60 s.
//   - ElasticMQ refuses an old receipt. SQS may accept an old receipt and do nothing.
//   - ElasticMQ refuses messages over 256 KiB by default. SQS accepts 1 MiB. This
//     package turns off ElasticMQ's limit.
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
	EndpointEnv = "FAIRLEAD_TEST_SQS_ENDPOINT" // URL of a running server; if unset, the package starts one
	RequireEnv  = "FAIRLEAD_REQUIRE_SQS"       // "1": fail where a test would skip
)

// version is the version of ElasticMQ in pom.xml.
const version = "1.6.12"

//go:embed pom.xml
var pom string

// Server is at most one running server. Keep one per test binary and stop it at the
// end of TestMain. The zero value is ready to use. Safe for concurrent use.
type Server struct{ server testserver.Server }

// Endpoint returns the URL of the server and starts it if necessary. Without a server
// it skips the test, or fails it if RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	return s.server.Endpoint(t, Program())
}

// Program returns how ElasticMQ is installed and started.
func Program() testserver.Program {
	return testserver.Program{
		Name: "ElasticMQ", Folder: "elasticmq-" + version,
		Tested: "CODE THAT USES SQS", Needs: "Java 17 and Maven",
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

// Stop kills the server if this Server started one, and waits until it has exited.
func (s *Server) Stop() { s.server.Stop() }
