package remote_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
	"github.com/fairlead/fairlead/tools/moto"
)

var aMoto moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	aMoto.Stop()
	os.Exit(code)
}

// region is the AWS region of all tests.
const region = "eu-west-1"

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

// whoami answers with the user's name, in place of an API server.
func whoami(w http.ResponseWriter, _ *http.Request, user string) { fmt.Fprint(w, user) }

// ask sends a request and returns the API server's answer.
func ask(t *testing.T, c *http.Client) (string, error) {
	t.Helper()
	resp, err := c.Post("https://cluster/api/v1/namespaces/jobs/secrets", "application/json", strings.NewReader(`{"kind":"Secret"}`))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// through returns a client that uses the connection cfg.
func through(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lastsAnHour asserts that the cluster maps the requests to the user, with a one-hour token of the cloud that is replaced
// before it expires. It also asserts that the cloud is asked for the needed tokens only, plus extra tokens for its own API,
// and once for the cluster's address.
func lastsAnHour(t *testing.T, cfg *rest.Config, clock *clock, front *cloudtest.Front, user string, requests func() (exchanged, described int), extra int) {
	t.Helper()
	c := through(t, cfg)
	for _, step := range []struct {
		name   string
		pass   time.Duration
		tokens int // so far
	}{
		{"at first", 0, 1},
		{"for most of an hour nothing is requested again", 54 * time.Minute, 1},
		{"a token is replaced before it expires", 2 * time.Minute, 2},
		{"a token that expired during a sleep is replaced", 3 * time.Hour, 3},
	} {
		clock.pass(step.pass)
		if got, err := ask(t, c); err != nil || got != user {
			t.Fatalf("%s: the cluster answered %q, %v", step.name, got, err)
		}
		if exchanged, described := requests(); exchanged != step.tokens+extra || described != 1 || len(front.Tokens()) != step.tokens {
			t.Errorf("%s: %d tokens requested, %d used, the cluster described %d times", step.name, exchanged, len(front.Tokens()), described)
		}
	}
	if refused := front.Refused(); len(refused) > 0 {
		t.Errorf("refused requests: %q", refused)
	}
}

// refuses asserts that no step can be started over the connection cfg. The error has all texts of want and no secret. If
// temporary is set, a retry may succeed. Otherwise the error is a LaunchError, because a person must change something.
func refuses(t *testing.T, cfg *rest.Config, temporary bool, want []string) {
	t.Helper()
	e, err := kubernetes.New(kubernetes.Options{Cluster: cfg, Runner: "run_1",
		Job: runnerspec.KubernetesJob{Namespace: "jobs", Image: "registry.example/runner:1", ServiceAccount: "jobs"}})
	if err != nil {
		t.Fatal(err)
	}
	if temporary {
		err = e.Check(t.Context()) // Start would retry for all of LaunchTime
	} else {
		_, err = e.Start(t.Context(), executor.Step{ID: "job_1-1"})
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error lacks %q: %v", text, err)
		}
	}
	why, ok := errors.AsType[*executor.LaunchError](err)
	if ok == temporary || ok && why.Cause != fairlead.CauseMisconfigured {
		t.Errorf("LaunchError: %t, %v", ok, err)
	}
	for _, secret := range []string{"k8s-aws-v1", "secret/of+key", "FwoGZXIv", "ya29.", "eyJ"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error has a secret: %v", err)
		}
	}
}
