package terraform

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/plugin"
)

// relayed is a job with a relay before a control plane that serve plays.
func relayed(t *testing.T, serve http.HandlerFunc) (env map[string]string, log *bytes.Buffer) {
	t.Helper()
	env, log, _ = relayedWith(t, serve, installkey.Ring{}, opPlan)
	return env, log
}

// relayedWith is relayed for a runner with keys and a job of an operation.
func relayedWith(t *testing.T, serve http.HandlerFunc, keys installkey.Ring, operation string) (env map[string]string, log *bytes.Buffer, j *job) {
	t.Helper()
	srv := httptest.NewServer(serve)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, "lease", client.Options{HTTP: srv.Client(), Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	if keys.IsZero() {
		c = c.WithMaxBody(10)
	}
	j = &job{p: New(Config{Data: t.TempDir()}), env: plugin.Env{Control: c, Workspace: t.TempDir(), Log: log, Keys: keys, StateToken: "state"}, spec: plugin.Spec{Job: "job_1", Operation: operation}}
	t.Cleanup(j.close)
	if j.state, err = j.p.openStorage(j, events.StateRef{Storage: storageHTTP, Key: "ins_1/web", Path: "/runner/v1/state/i/c"}, "state"); err != nil {
		t.Fatal(err)
	}
	j.relays[0].within = time.Millisecond
	return j.state.env(), log, j
}

// ask sends a request as the tool does, and returns the answer.
func ask(t *testing.T, method, url, password, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("job_1", password)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// The tool gets each answer of the control plane as it is. An answer of another server becomes 502, which the tool repeats:
// it would take 404 for a missing state, and create everything again.
func TestRelayPassesOnlyTheControlPlanesAnswers(t *testing.T) {
	answering := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != "lease" {
				t.Errorf("%s with the password %q", r.URL, password)
			}
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			io.WriteString(w, body) //nolint:errcheck // the client may have closed the connection
		}
	}
	const stale = `{"type":"urn:fairlead:problem:stale-epoch","detail":"another attempt has the lease"}`
	for name, tt := range map[string]struct {
		serve        http.HandlerFunc
		method, path string
		status       int
		body, log    string
	}{
		"a state":                    {answering(200, "application/json", theState), "GET", "", 200, theState, ""},
		"no state":                   {answering(204, "", ""), "GET", "", 204, "", ""},
		"the lock info of a holder":  {answering(423, "application/json", `{"ID":"other"}`), "PUT", "/lock", 423, `{"ID":"other"}`, ""},
		"a stale epoch":              {answering(409, "application/problem+json", stale), "DELETE", "/lock", 409, stale, "another attempt has the lease"},
		"an ingress without backend": {answering(404, "text/plain", "default backend - 404"), "GET", "", 502, "", "404"},
		"a store that is down":       {answering(503, "application/problem+json", `{"type":"urn:fairlead:problem:store-unavailable","detail":"no table"}`), "GET", "", 502, "", "no table"},
		"a firewall":                 {answering(403, "text/html", "<html>"), "GET", "", 502, "", "403"},
	} {
		t.Run(name, func(t *testing.T) {
			env, log := relayed(t, tt.serve)
			status, body := ask(t, tt.method, env["TF_HTTP_ADDRESS"]+tt.path, env["TF_HTTP_PASSWORD"], "")
			if status != tt.status || tt.body != "" && body != tt.body || !strings.Contains(log.String(), tt.log) || tt.log == "" && log.Len() > 0 {
				t.Errorf("the tool gets %d %q, the job's log %q", status, body, log)
			}
		})
	}
}

func TestRelayServesOnlyItsJobsState(t *testing.T) {
	env, _ := relayed(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the control plane gets %s %s", r.Method, r.URL)
	})
	address, password := env["TF_HTTP_ADDRESS"], env["TF_HTTP_PASSWORD"]
	if password == "lease" || password == "" || !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("the tool's environment is %v", env)
	}
	for _, wrong := range []string{"", "lease", password + "x"} {
		if status, _ := ask(t, "GET", address, wrong, ""); status != http.StatusUnauthorized {
			t.Errorf("with the password %q: %d", wrong, status)
		}
	}
	for _, path := range []string{"/runner/v1/state/i/other", "/runner/v1/jobs/job_1/finish", "/v1/apps", "/runner/v1/state/i/c/../d"} {
		if status, _ := ask(t, "POST", strings.TrimSuffix(address, "/runner/v1/state/i/c")+path, password, "{}"); status != http.StatusForbidden {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// The control plane loses a part, as after an attempt of another request. The relay's client sends all parts again.
func TestLostPartsAreSentAgain(t *testing.T) {
	var mu sync.Mutex
	parts, commits := 0, 0
	env, _ := relayed(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.Contains(r.URL.Path, "/parts/"):
			parts++
			w.WriteHeader(http.StatusNoContent)
		case r.Header.Get(wire.HeaderBodyDigest) == "" || r.Header.Get(wire.HeaderBodySize) != "25" || r.ContentLength > 0 || r.URL.Query().Get("ID") != "lock-1":
			t.Errorf("the commit is %s %s with %v", r.Method, r.URL, r.Header)
		default:
			if commits++; commits == 1 {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusUnprocessableEntity)
				io.WriteString(w, `{"type":"urn:fairlead:problem:body-not-staged"}`) //nolint:errcheck // the client may have closed the connection
			}
		}
	})
	if status, _ := ask(t, "POST", env["TF_HTTP_ADDRESS"]+"?ID=lock-1", env["TF_HTTP_PASSWORD"], strings.Repeat("x", 25)); status != 200 || parts != 6 || commits != 2 {
		t.Errorf("the tool gets %d after %d parts and %d commits", status, parts, commits)
	}
}
