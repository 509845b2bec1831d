// Package azurite gives tests a real server compatible with Azure Blob Storage:
// Azurite, which npm downloads, with one storage account.
//
// If no server is available, tests skip with a conspicuous message. With
// FAIRLEAD_REQUIRE_AZURITE=1 they fail instead.
//
// Azurite serves TLS, because it accepts tokens of Entra ID only over TLS. It checks a
// token's issuer, audience and times, but not its signature. A request names the account
// in its Host header (ACCOUNT.blob.core.windows.net). If a request asks for a newer API
// version, Azurite answers with its own version.
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
	EndpointEnv = "FAIRLEAD_TEST_AZURITE_ENDPOINT" // URL of a running server with the same account
	RequireEnv  = "FAIRLEAD_REQUIRE_AZURITE"       // "1": fail where a test would skip
)

// Account is the name of the only storage account.
const Account = "acmestates"

// version is the version of Azurite in package.json.
const version = "3.35.0"

var (
	//go:embed package.json
	manifest string
	//go:embed package-lock.json
	lock string
)

// Key returns the account's key, in base64.
func Key() string {
	return base64.StdEncoding.EncodeToString([]byte("the key of the account of a test"))
}

// Server is at most one running server. Stop it at the end of the test. The zero value
// is ready to use. Safe for concurrent use.
type Server struct{ server testserver.Server }

// Endpoint returns the URL of the server and starts it if necessary. Without a server
// it skips the test, or fails it if RequireEnv is "1".
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

// Stop kills the server if this Server started one, and waits until it has exited.
func (s *Server) Stop() { s.server.Stop() }

// certify writes a self-signed certificate and its key to the folder. No client verifies
// the certificate. The tools in a test connect through a proxy and trust its certificate.
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
