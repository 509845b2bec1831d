package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/tools/testserver"
)

// stsOver serves an STS over TLS and returns a transport that sends requests for every host name to it.
func stsOver(t *testing.T, h http.Handler) http.RoundTripper {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com"} // the name in the server's certificate
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// taskRole serves a task's credentials like ECS and returns the environment by which the SDK finds them.
func taskRole(t *testing.T, sts *ststest.Server, role, roleID string) []string {
	t.Helper()
	const secret = "task-secret"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		c := sts.AssumeRole("aws", "123456789012", role, roleID, "0123456789abcdef")
		json.NewEncoder(w).Encode(map[string]any{"RoleArn": "arn:aws:iam::123456789012:role/" + role, "AccessKeyId": c.AccessKeyID,
			"SecretAccessKey": c.SecretAccessKey, "Token": c.SessionToken, "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}))
	t.Cleanup(srv.Close)
	return []string{"AWS_REGION=eu-central-1", "AWS_CONTAINER_CREDENTIALS_FULL_URI=" + srv.URL + "/v2/credentials/x",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN=" + secret, "AWS_EC2_METADATA_DISABLED=true"}
}

// A real agent that has only a task's role, without token and key, can run jobs of a real control plane. An agent with a
// different role of the same name cannot run jobs.
func TestAgentProvesItsTaskRole(t *testing.T) {
	t.Parallel()
	sts := ststest.New(time.Now)
	s, err := local.Start(t.Context(), local.Options{Data: t.TempDir(), Listen: "127.0.0.1:0", STS: stsOver(t, sts)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.CreateRunner(t.Context(), wire.CreateRunnerRequest{Name: "acme", AWSRole: "arn:aws:iam::123456789012:role/fairlead/acme-runner"})
	if err != nil {
		t.Fatal(err)
	}
	if r.AWS == nil || r.AWS.RoleID != "" || r.AWS.WaitsUntil == nil || r.AWS.RoleARN != "arn:aws:iam::123456789012:role/fairlead/acme-runner" {
		t.Fatalf("the runner's AWS identity before the first proof is %+v", r.AWS)
	}
	meta, err := c.Meta(t.Context())
	if err != nil || len(meta.Keys) != 2 {
		t.Fatalf("keys to pin: %+v, %v", meta, err)
	}
	start := func(roleID string) *agentProcess {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		a := &agentProcess{t: t, Data: t.TempDir(), out: &lockedBuffer{}, done: make(chan struct{})}
		a.cmd = exec.Command(self, "agent", "--url", s.URL(), "--data", a.Data, "--log-level", "debug")
		a.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
			"FAIRLEAD_PASS_ENV=GORACE", "FAIRLEAD_IDENTITY=aws-iam", "FAIRLEAD_RUNNER_ID=" + r.ID,
			"FAIRLEAD_TRUSTED_KEYS=" + base64.StdEncoding.EncodeToString(meta.Keys[0].PublicKey)}, taskRole(t, sts, "acme-runner", roleID)...)
		a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
		if err := a.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { a.err = a.cmd.Wait(); close(a.done) }()
		t.Cleanup(func() {
			a.signal(syscall.SIGKILL)
			<-a.done
			a.killSteps()
			if t.Failed() {
				t.Logf("the agent's log:\n%s", a.out)
			}
		})
		return a
	}
	a := start("AROAEXAMPLEEXAMPLE001")
	j, err := c.CheckRunner(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	testserver.Until(t, "the end of the check", func() bool {
		j, err = c.GetJob(t.Context(), j.ID)
		return err == nil && j.State == "succeeded"
	})
	if r, err = c.GetRunner(t.Context(), "acme"); err != nil || r.State != "online" || r.AWS.RoleID != "AROAEXAMPLEEXAMPLE001" || r.AWS.WaitsUntil != nil {
		t.Errorf("after its first proof the runner is %s with %+v, %v", r.State, r.AWS, err)
	}
	if found := a.glob("identity*"); len(found) > 0 {
		t.Errorf("the agent wrote the identity files %q", found)
	}
	if strings.Contains(a.out.String(), "token/") || strings.Contains(a.out.String(), "secret/") {
		t.Error("the agent's log has its credentials")
	}
	b := start("AROAEXAMPLEEXAMPLE002")
	testserver.Until(t, "the refusal of a role that was created again", func() bool { return strings.Contains(b.out.String(), "created again") })
	if r, err = c.GetRunner(t.Context(), "acme"); err != nil || len(r.Sessions) != 1 {
		t.Errorf("the runner has %d sessions, %v", len(r.Sessions), err)
	}
}
