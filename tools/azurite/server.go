// Package azurite gives tests a real server compatible with Azure Blob Storage:
// Azurite, which npm fetches, with one storage account.
//
// Where it cannot be had, tests skip and say loudly why; with
// FAIRLEAD_REQUIRE_AZURITE=1 they fail instead.
//
// It serves TLS, without which it takes no tokens of Entra ID. Of a token it looks at
// issuer, audience and times, and not at the signature. A request names the account
// in its header Host (ACCOUNT.blob.core.windows.net). A request of a newer version of
// the API than it knows is answered as one of its own.
package azurite

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	EndpointEnv = "FAIRLEAD_TEST_AZURITE_ENDPOINT" // URL of a server with the same account to use instead of starting one
	RequireEnv  = "FAIRLEAD_REQUIRE_AZURITE"       // "1": fail where a test would skip
)

// Account is the one storage account.
const Account = "acmestates"

// version is that of package.json.
const version = "3.35.0"

var (
	//go:embed package.json
	manifest string
	//go:embed package-lock.json
	lock string
)

// Key is the account's key, in base64.
func Key() string {
	return base64.StdEncoding.EncodeToString([]byte("the key of the account of a test"))
}

// Server is at most one running server. Stop it at the end of the test. The zero value
// is ready. Safe for concurrent use.
type Server struct{ server testserver.Server }

// Endpoint returns the URL of the server, which is started if need be. Without a server
// it skips the test, or fails it when RequireEnv is "1".
func (s *Server) Endpoint(t testing.TB) string {
	t.Helper()
	return s.server.Endpoint(t, testserver.Program{
		Name: "Azurite", Folder: "azurite-" + version,
		Tested: "STATE STORAGE azurerm", Needs: "Node with npm",
		EndpointEnv: EndpointEnv, RequireEnv: RequireEnv, TLS: true,
		Install: func(ctx context.Context, dir, part string) error {
			if err := testserver.Npm(manifest, lock)(ctx, dir, part); err != nil {
				return err
			}
			return certify(part)
		},
		Command: func(lib string, port int) *exec.Cmd {
			cmd := exec.Command("node", filepath.Join(lib, "node_modules", "azurite", "dist", "src", "blob", "main.js"),
				"--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry",
				"--oauth", "basic", "--cert", filepath.Join(lib, "cert.pem"), "--key", filepath.Join(lib, "key.pem"))
			cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+Account+":"+Key())
			return cmd
		},
	})
}

// Stop kills the server, if there is one, and waits for its end.
func (s *Server) Stop() { s.server.Stop() }

// certify writes a certificate and its key to the folder. Nobody is to trust it: what a
// test's tools trust ends before the server.
func certify(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	write := func(name, kind string, bytes []byte) error {
		return os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
	}
	return errors.Join(write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private))
}
