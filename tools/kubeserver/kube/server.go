// Package kube gives tests a real Kubernetes API server with the controllers for Jobs
// and garbage collection. The cluster has no node. A test that needs running pods must
// run them itself. FAIRLEAD_TEST_KUBECONFIG can name the kubeconfig of such a cluster;
// otherwise the package starts a cluster from the programs that `make kubernetes` built.
//
// If there is no such kubeconfig and no built programs, tests skip with a conspicuous
// message. With FAIRLEAD_REQUIRE_KUBERNETES=1 they fail instead.
package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	KubeconfigEnv = "FAIRLEAD_TEST_KUBECONFIG"    // kubeconfig of a running cluster without nodes; tests wait until the file exists
	RequireEnv    = "FAIRLEAD_REQUIRE_KUBERNETES" // "1": fail where a test would skip
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 20 * time.Second
)

// token is the administrator's token. It can be public: the server listens on the
// loopback interface and serves only tests.
const token = "administrator"

// Server is at most one running cluster. Keep one per test binary and stop it at the
// end of TestMain. The zero value is ready to use. Safe for concurrent use.
type Server struct {
	// Private makes Kubeconfig start a cluster also if KubeconfigEnv names one: for tests that compare, or could damage,
	// the whole cluster.
	Private bool

	once       sync.Once
	kubeconfig string
	err        error
	dir        string
	running    []*testserver.Process // in the order of their start
}

// Kubeconfig returns the path of the administrator's kubeconfig. The first call starts
// the cluster, unless KubeconfigEnv names a cluster and the Server is not private. Without a cluster Kubeconfig skips
// the test, or fails it if RequireEnv is "1".
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	s.once.Do(func() {
		if f := os.Getenv(KubeconfigEnv); f != "" && !s.Private {
			s.kubeconfig, s.err = f, testserver.Await(startLimit, func() error { _, err := os.Stat(f); return err })
			return
		}
		if s.kubeconfig, s.err = s.Prepare(); s.err == nil {
			s.err = s.Start()
		}
	})
	if s.err == nil {
		return s.kubeconfig
	}
	testserver.Missing(t, "CODE THAT USES A KUBERNETES CLUSTER IS NOT TESTED", RequireEnv, "Run `make kubernetes` once, set "+KubeconfigEnv+" to a kubeconfig", s.err)
	return ""
}

// Prepare creates the folder of a cluster and returns the path of its kubeconfig,
// which Start writes. It returns an error if `make kubernetes` was not run.
func (s *Server) Prepare() (kubeconfig string, err error) {
	if _, err := Programs().Built(); err != nil {
		return "", err
	}
	if s.dir, err = os.MkdirTemp("", "fairlead-kubernetes-"); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, "kubeconfig"), nil
}

// Start starts the cluster after Prepare and writes its kubeconfig when it is ready.
// On an error it stops the cluster.
func (s *Server) Start() error {
	err := s.start()
	if err != nil {
		s.Stop()
	}
	return err
}

func (s *Server) start() error {
	bin, err := Programs().Built()
	if err != nil {
		return err
	}
	var ports [3]int
	for i := range ports {
		if ports[i], err = testserver.FreePort(); err != nil {
			return err
		}
	}
	file := func(name string) string { return filepath.Join(s.dir, name) }
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:%d", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, ports[2], token)
	key, err := signingKey()
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"tokens.csv": token + `,admin,1,"system:masters"` + "\n", "kubeconfig.new": kubeconfig, "sa.key": key} {
		if err := os.WriteFile(file(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	api := fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	if err := s.run(filepath.Join(bin, "etcd"), etcd+"/health", "--data-dir", file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer); err != nil {
		return err
	}
	if err := s.run(filepath.Join(bin, "kube-apiserver"), api+"/readyz", "--etcd-servers", etcd, "--secure-port", strconv.Itoa(ports[2]), "--bind-address=127.0.0.1",
		"--cert-dir", file("certificates"), "--token-auth-file", file("tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer", api, "--service-account-jwks-uri", api+"/openid/v1/jwks", "--service-account-key-file", file("sa.key"), "--service-account-signing-key-file", file("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--kubelet-preferred-address-types=InternalIP", "--v=0"); err != nil {
		return err
	}
	if err := s.run(filepath.Join(bin, "kube-controller-manager"), "", "--kubeconfig", file("kubeconfig.new"), "--secure-port=0", "--leader-elect=false",
		"--controllers=job-controller,deployment-controller,replicaset-controller,garbage-collector-controller,ttl-after-finished-controller,serviceaccount-controller,namespace-controller",
		"--service-account-private-key-file", file("sa.key"), "--v=0"); err != nil {
		return err
	}
	// Tests of other processes wait for this file.
	return os.Link(file("kubeconfig.new"), file("kubeconfig"))
}

// run starts a program and waits until url answers with status 200. If url is "", run
// does not wait.
func (s *Server) run(path, url string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must reach only the tests, which stop the program
	var ready func() error
	if url != "" {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		ready = func() error {
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}
	}
	p, err := testserver.Start(cmd, startLimit, ready)
	if err != nil {
		return err
	}
	s.running = append(s.running, p)
	return nil
}

// Stop stops the cluster if this Server started it. It stops etcd last, because the
// API server would wait for etcd.
func (s *Server) Stop() {
	for i := len(s.running) - 1; i >= 0; i-- {
		s.running[i].Stop(stopLimit)
	}
	s.running = nil
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

func signingKey() (string, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), nil
}

// Authority returns the CA certificate, in PEM, of the API server at the URL, which made its
// certificates itself.
func Authority(t testing.TB, server string) []byte {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(server, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	chain := c.ConnectionState().PeerCertificates
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain[len(chain)-1].Raw})
}
