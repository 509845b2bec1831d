// Package kube gives tests a real Kubernetes API server with its controllers
// for Jobs and garbage, and no node: a test that needs pods to run brings what
// runs them. It is the one whose kubeconfig FAIRLEAD_TEST_KUBECONFIG names, or
// one that is started from the programs that `make kubernetes` has built.
//
// Where neither can be had, tests skip and say loudly why; with
// FAIRLEAD_REQUIRE_KUBERNETES=1 they fail instead.
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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tools/testserver"
)

// The environment of the tests.
const (
	KubeconfigEnv = "FAIRLEAD_TEST_KUBECONFIG"    // kubeconfig of a cluster without nodes to use instead of starting one; tests wait until it is there
	RequireEnv    = "FAIRLEAD_REQUIRE_KUBERNETES" // "1": fail where a test would skip
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 20 * time.Second
)

// token is the administrator's; the server listens on loopback, for one test.
const token = "administrator"

// Server is at most one running cluster. Keep one per test binary and stop it
// at the end of TestMain. The zero value is ready. Safe for concurrent use.
type Server struct {
	once       sync.Once
	kubeconfig string
	err        error
	dir        string
	running    []*testserver.Process // in the order of their start
}

// Kubeconfig returns the path of the administrator's kubeconfig of the cluster,
// which is started if need be. Without one it skips the test, or fails it when
// RequireEnv is "1".
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	s.once.Do(func() {
		if f := os.Getenv(KubeconfigEnv); f != "" {
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
	testserver.Missing(t, "WHAT USES A KUBERNETES CLUSTER IS NOT TESTED", RequireEnv, "Run `make kubernetes` once, name a kubeconfig in "+KubeconfigEnv, s.err)
	return ""
}

// Prepare makes the folder of a cluster and returns where its kubeconfig will
// be once Start has returned. It fails if `make kubernetes` has not run.
func (s *Server) Prepare() (kubeconfig string, err error) {
	if _, err := Programs().Built(); err != nil {
		return "", err
	}
	if s.dir, err = os.MkdirTemp("", "fairlead-kubernetes-"); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, "kubeconfig"), nil
}

// Start starts the cluster that Prepare has prepared, and writes its kubeconfig
// when it is ready. After an error the cluster is stopped.
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
	// Tests of other processes wait for the name.
	return os.Link(file("kubeconfig.new"), file("kubeconfig"))
}

// run starts a program and waits until url answers well, if it is not "".
func (s *Server) run(path, url string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the keyboard is the tests' to handle
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

// Stop ends the cluster, if it is ours: etcd last, as the API server would wait
// for it.
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
