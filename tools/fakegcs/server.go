// Package fakegcs gives tests a real server compatible with Google Cloud Storage: the
// server that FAIRLEAD_TEST_GCS_ENDPOINT names, or fake-gcs-server, built from a Go
// module.
//
// If no server is available, tests skip with a conspicuous message. With
// FAIRLEAD_REQUIRE_GCS=1 they fail instead.
//
// The server ignores credentials. A request must have storage.googleapis.com in its
// Host header.
package fakegcs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/tools/pinned"
	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	EndpointEnv = "FAIRLEAD_TEST_GCS_ENDPOINT" // URL of a running server; if unset, the package starts one
	RequireEnv  = "FAIRLEAD_REQUIRE_GCS"       // "1": fail where a test would skip
)

// version is the version of fake-gcs-server in module/go.mod.
const version = "v1.56.1"

// Server is at most one running server. Stop it at the end of the test. The zero value
// is ready to use. Safe for concurrent use.
type Server struct{ server testserver.Server }

// Endpoint returns the URL of the server and starts it if necessary. Without a server
// it skips the test, or fails it if RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	return s.server.Endpoint(t, testserver.Program{
		Name: "fake-gcs-server", Folder: "fake-gcs-server-" + version,
		Tested: "STATE STORAGE gcs", Needs: "Go modules",
		EndpointEnv: EndpointEnv, RequireEnv: RequireEnv,
		Install: func(ctx context.Context, _, part string) error {
			if err := os.Mkdir(part, 0o755); err != nil {
				return err
			}
			return pinned.Compile(ctx, "fakegcs/module", "", "github.com/fsouza/fake-gcs-server", filepath.Join(part, "fake-gcs-server"))
		},
		Command: func(lib string, port int) *exec.Cmd {
			return exec.Command(filepath.Join(lib, "fake-gcs-server"), "-backend", "memory", "-scheme", "http",
				"-host", "127.0.0.1", "-port", strconv.Itoa(port), "-log-level", "error")
		},
	})
}

// Stop kills the server if this Server started one, and waits until it has exited.
func (s *Server) Stop() { s.server.Stop() }
