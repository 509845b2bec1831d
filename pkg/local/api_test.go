package local_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/local"
)

// started starts a server. It returns a client with the admin's token, and the token.
func started(t *testing.T, data string) (*local.Server, *client.Client, string) {
	t.Helper()
	s, err := local.Start(t.Context(), local.Options{Data: data, Listen: "127.0.0.1:0", Version: "0.0.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s, c, strings.TrimSpace(string(token))
}

func stop(t *testing.T, s *local.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestOnePortServesAPIsAndRegistry(t *testing.T) {
	s, c, token := started(t, t.TempDir())
	defer stop(t, s)
	meta, err := c.Meta(t.Context())
	if err != nil || meta.Version != "0.0.0-test" || "http://"+meta.Registry != s.URL() {
		t.Errorf("Meta: %+v, %v", meta, err)
	}
	if _, err := c.Challenge(t.Context()); err != nil {
		t.Errorf("runner API: %v", err)
	}
	r, err := c.GetRunner(t.Context(), "local")
	if err != nil || r.Storage != "local" || r.State != "never-seen" {
		t.Errorf("runner local: %+v, %v", r, err)
	}
	for _, test := range []struct {
		path, token string
		status      int
	}{
		{"/v2/", token, 200}, {"/v2/", "", 401}, {"/v2/_catalog", "", 401},
		{"/v2/" + control.Repository(fairlead.DefaultOrg, "x", "y") + "/manifests/z", token, 404}, {"/v2/x/manifests/y", token, 403},
		{"/v1/openapi.yaml", "", 200}, {"/runner/v1/openapi.yaml", "", 200},
		{"/nothing", token, 404}, {"/runner/nothing", token, 404}, {"/v1/apps", "", 401},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.token != "" {
			req.SetBasicAuth("x", test.token)
			if !strings.HasPrefix(test.path, "/v2/") {
				req.Header.Set("Authorization", "Bearer "+test.token)
			}
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close() //nolint:errcheck // the body was read
		if res.StatusCode != test.status || res.Header.Get(wire.HeaderRequestID) == "" {
			t.Errorf("GET %s: status %d with request ID %q: %.200s", test.path, res.StatusCode, res.Header.Get(wire.HeaderRequestID), body)
		}
	}
}

func TestRestartKeepsTokenAndData(t *testing.T) {
	data := t.TempDir()
	s, c, token := started(t, data)
	if _, err := c.CreateRunner(t.Context(), wire.CreateRunnerRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	s, c, again := started(t, data)
	defer stop(t, s)
	if token != again {
		t.Error("the admin's token changed")
	}
	if _, err := c.GetRunner(t.Context(), "kept"); err != nil {
		t.Errorf("get the runner after a restart: %v", err)
	}
}

func TestStoppingServerAnswersWaitingRequests(t *testing.T) {
	s, c, token := started(t, t.TempDir())
	job, err := c.CheckRunner(t.Context(), "local")
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		status int
		code   string
		err    error
	}
	asked, ended := make(chan struct{}), make(chan answer, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, s.URL()+"/v1/jobs/"+job.ID+"/log?wait_seconds=20", nil)
		if err != nil {
			ended <- answer{err: err}
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		close(asked)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			ended <- answer{err: err}
			return
		}
		defer res.Body.Close() //nolint:errcheck // the body is read
		var p wire.Problem
		err = json.NewDecoder(res.Body).Decode(&p)
		ended <- answer{res.StatusCode, p.Type, err}
	}()
	<-asked
	// If the server stops before it has received the request, the network refuses the
	// request, and a client repeats such a request too. The test first waits for the
	// answer to another request, so this is unlikely.
	if _, err := c.GetJob(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	h := <-ended
	if h.err == nil && (h.status != 503 || h.code != wire.ProblemType+"interrupted") {
		t.Errorf("answer %+v, want 503 interrupted", h)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
}
