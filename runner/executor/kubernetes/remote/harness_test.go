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

// region is that of AWS, wherever it is.
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

// whoami is what the cluster answers.
func whoami(w http.ResponseWriter, _ *http.Request, user string) { fmt.Fprint(w, user) }

// ask returns what the API server answers.
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

// through is a client of the API server that is reached that way.
func through(t *testing.T, way *rest.Config) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(way)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lastsAnHour asserts that the cluster takes who asks for the user, by a cloud's
// token that lasts an hour and is replaced before that; and that the cloud is
// asked for no more of them than that takes, beside some for itself, and once
// where the cluster is.
func lastsAnHour(t *testing.T, way *rest.Config, clock *clock, door *cloudtest.Front, user string, asked func() (exchanged, described int), beside int) {
	t.Helper()
	c := through(t, way)
	for _, step := range []struct {
		name   string
		pass   time.Duration
		tokens int // so far
	}{
		{"at first", 0, 1},
		{"for most of an hour nobody is asked again", 54 * time.Minute, 1},
		{"a token is replaced while it is good", 2 * time.Minute, 2},
		{"one that has grown old while the machine slept is replaced", 3 * time.Hour, 3},
	} {
		clock.pass(step.pass)
		if said, err := ask(t, c); err != nil || said != user {
			t.Fatalf("%s: the cluster says %q, %v", step.name, said, err)
		}
		if exchanged, described := asked(); exchanged != step.tokens+beside || described != 1 || len(door.Tokens()) != step.tokens {
			t.Errorf("%s: %d tokens were asked for, %d were shown, and the cluster was described %d times", step.name, exchanged, len(door.Tokens()), described)
		}
	}
	if refused := door.Refused(); len(refused) > 0 {
		t.Errorf("it was refused: %q", refused)
	}
}

// shut asserts that no step can be started that way, that the reason says so much
// and no secret, and that it is one to wait for, or one to do something about.
func shut(t *testing.T, way *rest.Config, passes bool, says []string) {
	t.Helper()
	e, err := kubernetes.New(kubernetes.Options{Cluster: way, Runner: "run_1",
		Job: runnerspec.KubernetesJob{Namespace: "jobs", Image: "registry.example/runner:1", ServiceAccount: "jobs"}})
	if err != nil {
		t.Fatal(err)
	}
	if passes {
		err = e.Check(t.Context()) // a launch would try again, for as long as it may
	} else {
		_, err = e.Start(t.Context(), executor.Step{ID: "job_1-1"})
	}
	if err == nil {
		t.Fatal("nothing does")
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it says nothing of %q: %v", text, err)
		}
	}
	why, ok := errors.AsType[*executor.LaunchError](err)
	if ok == passes || ok && why.Cause != fairlead.CauseMisconfigured {
		t.Errorf("it is a refusal: %t, %v", ok, err)
	}
	for _, secret := range []string{"k8s-aws-v1", "secret/of+key", "FwoGZXIv", "ya29.", "eyJ"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("it tells a secret: %v", err)
		}
	}
}
