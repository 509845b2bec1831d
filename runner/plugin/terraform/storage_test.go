package terraform

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/runner/plugin"
)

const theState = `{"version":4,"outputs":{"a":{"value":1,"type":"number"}}}`

// jobOn returns a job whose state is in the control plane that c calls.
func jobOn(t *testing.T, c *client.Client) *job {
	t.Helper()
	j := &job{p: New(Config{Data: t.TempDir()}), env: plugin.Env{Control: c, StateToken: "flt_state", Workspace: t.TempDir()}, spec: plugin.Spec{Job: "job_1"}}
	var err error
	if j.state, err = j.p.openStorage(j, events.StateRef{Storage: storageHTTP, Key: "ins_1/web", Path: "/runner/v1/state/i/c"}, "state"); err != nil {
		t.Fatal(err)
	}
	return j
}

// A tool reads its environment, and can send it to anyone. The lease would let it report for its job.
func TestToolGetsNoLeaseForItsState(t *testing.T) {
	c, err := client.New("http://127.0.0.1:1", "flj_lease", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	env := jobOn(t, c).state.env()
	if env["TF_HTTP_PASSWORD"] != "flt_state" {
		t.Errorf("the tool's password for the state is %q", env["TF_HTTP_PASSWORD"])
	}
	for name, value := range env {
		if strings.Contains(value, "flj_") {
			t.Errorf("the tool's variable %s has the lease", name)
		}
	}
}

// A restart of the control plane or a proxy's answer, such as 404, must not fail a succeeded apply or lose its outputs.
func TestShortOutageDoesNotFailAFinishedApply(t *testing.T) {
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	answering := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			io.WriteString(w, body) //nolint:errcheck // the client may have closed the connection
		}
	}
	good := answering(http.StatusOK, "application/json", theState)
	stale := answering(http.StatusConflict, "application/problem+json", `{"type":"urn:fairlead:problem:stale-epoch","title":"x"}`)
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		refused bool
	}{
		"resets, a bad gateway, then an answer": {[]http.HandlerFunc{cut, cut, cut, cut, cut, cut, answering(502, "text/html", "<html>"), good}, false},
		"an ingress without a backend":          {[]http.HandlerFunc{answering(404, "text/plain", "default backend - 404"), good}, false},
		"a firewall":                            {[]http.HandlerFunc{answering(403, "text/html", "<html>"), good}, false},
		"a page with status 200":                {[]http.HandlerFunc{answering(200, "text/html", "<html>"), good}, false},
		"an empty answer with status 200":       {[]http.HandlerFunc{answering(200, "", ""), good}, false},
		"a portal":                              {[]http.HandlerFunc{answering(302, "text/html", ""), good}, false},
		"another attempt owns the lease":        {[]http.HandlerFunc{stale, good}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				user, password, _ := r.BasicAuth()
				if r.URL.Path != "/runner/v1/state/i/c" || user != "job_1" || password != "lease" {
					t.Errorf("request for %s by user %s", r.URL, user)
				}
				tt.answers[min(int(n.Add(1)), len(tt.answers))-1](w, r)
			}))
			defer srv.Close()
			hc := srv.Client() // its idle connections end with the server
			c, err := client.New(srv.URL, "lease", client.Options{HTTP: hc, MaxWait: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			values, err := jobOn(t, c).outputs(t.Context())
			if (err != nil) != tt.refused || !tt.refused && string(values["a"].Value) != "1" {
				t.Errorf("outputs %v, %v", values, err)
			}
			if want := len(tt.answers); !tt.refused && int(n.Load()) != want || tt.refused && n.Load() != 1 {
				t.Errorf("%d requests", n.Load())
			}
		})
	}
}

// A restart of the control plane must not fail saving or fetching a plan.
func TestRestartDoesNotLoseAPlan(t *testing.T) {
	const plan = "PK a plan"
	unreachable := answer{status: http.StatusBadGateway, body: "<html>"}
	foreign := answer{status: http.StatusNotFound, body: "default backend - 404"}
	stale := answer{http.StatusConflict, "application/problem+json", `{"type":"urn:fairlead:problem:stale-epoch","title":"x"}`}
	for name, tt := range map[string]struct {
		first answer
		since time.Duration // how long first is the answer
		good  bool
		asked int // requests, at most
	}{
		"the control plane restarts":                 {unreachable, 20 * time.Second, true, 100},
		"an ingress has no backend for five minutes": {foreign, 5 * time.Minute, true, 1000},
		"the control plane never comes back":         {unreachable, 24 * time.Hour, false, 5000},
		"another attempt owns the lease":             {stale, 24 * time.Hour, false, 1},
		"the plan is too large for a gateway":        {answer{status: http.StatusRequestEntityTooLarge, body: "<html>"}, 24 * time.Hour, false, 1},
	} {
		for _, op := range []string{"save", "fetch"} {
			t.Run(op+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began, asked := time.Now(), 0
					c, err := client.New("https://control.example", "lease", client.Options{HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						asked++
						a := answer{status: http.StatusOK, contentType: "application/octet-stream", body: plan}
						if time.Since(began) < tt.since {
							a = tt.first
						} else if r.Method == http.MethodPut {
							if b, err := io.ReadAll(r.Body); err != nil || string(b) != plan {
								t.Errorf("sent %q, %v", b, err)
							}
							a = answer{status: http.StatusNoContent}
						}
						return a.to(r), nil
					})}})
					if err != nil {
						t.Fatal(err)
					}
					var got []byte
					if st := jobOn(t, c).state; op == "save" {
						err = st.saved().Put(t.Context(), "job_1", []byte(plan))
					} else if got, err = st.saved().Get(t.Context(), "job_1"); err == nil && string(got) != plan {
						t.Errorf("fetched %q", got)
					}
					if (err == nil) != tt.good || asked > tt.asked || time.Since(began) > transferTimeout+time.Second {
						t.Errorf("after %s and %d requests: %v", time.Since(began), asked, err)
					}
				})
			})
		}
	}
}

// answer is the answer of a server or of a proxy before it.
type answer struct {
	status            int
	contentType, body string
}

func (a answer) to(r *http.Request) *http.Response {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {a.contentType}}, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A control plane that accepts the request and never answers must not block a succeeded apply forever.
func TestWaitForOutputsIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name    string
		silent  time.Duration // no answer for this long after the end of the apply
		stopped time.Duration // when the job is stopped; 0: never
		took    time.Duration // at most
		good    bool
	}{
		{"silent for one request", 10 * time.Second, 0, time.Minute, true},
		{"silent for minutes", 5 * time.Minute, 0, 6 * time.Minute, true},
		{"silent forever", 24 * time.Hour, 0, transferTimeout + time.Second, false},
		{"the job is stopped and gets its grace period", time.Minute, 50 * time.Second, 90 * time.Second, true},
		{"the job is stopped and no answer comes", 24 * time.Hour, time.Minute, 2*time.Minute + time.Second, false},
		{"the job was stopped as the tool ended", 20 * time.Second, time.Nanosecond, time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c, err := client.New("https://control.example", "lease", client.Options{HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if time.Since(began) < tt.silent {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(theState)), Request: r}, nil
				})}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if tt.stopped > 0 {
					defer time.AfterFunc(tt.stopped, stop).Stop()
				}
				after, done := continueAfter(ctx, transferTimeout, time.Minute)
				defer done()
				values, err := jobOn(t, c).outputs(after)
				if (err == nil) != tt.good || tt.good && string(values["a"].Value) != "1" {
					t.Errorf("outputs %v, %v", values, err)
				}
				if took := time.Since(began); took > tt.took {
					t.Errorf("it took %v", took)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Errorf("failed with %v", err)
				}
			})
		})
	}
}
