package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Each row names what the control plane answers to a step that was started ahead for applies of install ins_1. The step
// exchanges a launch token only for a job that it was started for.
func TestWarmStepTakesOnlyAFittingJob(t *testing.T) {
	fits := wire.Claim{Job: "job_1", Epoch: 2, Operation: "apply", Plugin: "terraform", InstallID: "ins_1", Component: "web", LaunchToken: "launch"}
	change := func(f func(*wire.Claim)) any { c := fits; f(&c); return c }
	over := func(code string, status int) any {
		return wire.Problem{Type: wire.ProblemType + code, Title: "x", Status: status, Detail: "x"}
	}
	for name, tc := range map[string]struct {
		answer any // nil: no job yet
		signal os.Signal
		starts bool
	}{
		"a job of its role and install":       {answer: fits, starts: true},
		"a job of another role":               {answer: change(func(c *wire.Claim) { c.Operation = "destroy" })},
		"a job of another install":            {answer: change(func(c *wire.Claim) { c.InstallID = "ins_2" })},
		"a job of an unknown type":            {answer: change(func(c *wire.Claim) { c.Plugin = "helm" })},
		"a job whose name is a path":          {answer: change(func(c *wire.Claim) { c.Job = "../x" })},
		"a claim without a launch token":      {answer: change(func(c *wire.Claim) { c.LaunchToken = "" })},
		"its deployment has ended":            {answer: over("warm-step-over", http.StatusConflict)},
		"another step uses its token":         {answer: over("warm-token-used", http.StatusForbidden)},
		"no job comes, and its time is over":  {},
		"no job comes, and the agent ends it": {signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started, polls := "", 0
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					status, out := http.StatusOK, tc.answer
					header := http.Header{"Content-Type": {"application/json"}}
					switch {
					case strings.HasSuffix(r.URL.Path, "/start"):
						started = r.URL.Path + " " + r.Header.Get("Authorization")
						out, status = wire.Problem{Type: wire.ProblemType + "stale-epoch", Title: "x", Status: http.StatusConflict, Detail: "x"}, http.StatusConflict
					case strings.HasSuffix(r.URL.Path, "/marker"): // as an older control plane
						out = wire.Problem{Type: "about:blank", Title: "x", Status: http.StatusNotFound, Detail: "x"}
					case r.URL.Path != "/runner/v1/warm-steps/wrm_1/job" || r.Header.Get("Authorization") != "Bearer warm":
						t.Errorf("the step sends %s with %q", r.URL.Path, r.Header.Get("Authorization"))
					default:
						polls++
					}
					if p, ok := out.(wire.Problem); ok {
						status = p.Status
						header.Set("Content-Type", "application/problem+json")
					}
					if out == nil {
						return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
					}
					b, err := json.Marshal(out)
					return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
				})
				signals := make(chan os.Signal, 1)
				if tc.signal != nil {
					time.AfterFunc(3*time.Second, func() { signals <- tc.signal })
				}
				begun := time.Now()
				in := attempt.Input{URL: "https://control.example", Runner: "run_1", InstallID: "ins_1", Data: t.TempDir(),
					Warm: &attempt.Warm{ID: "wrm_1", Role: component.Provision, Expires: begun.Add(5 * time.Minute)}}
				code := Run(t.Context(), attempt.Dir(t.TempDir()), in, "warm", Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
					Signals: signals, Plugins: plugin.Registry{}, NewID: func() string { return "step-1234" }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }})
				want, exit := "", attempt.ExitUnassigned
				if tc.starts {
					want, exit = "/runner/v1/jobs/job_1/start Bearer launch", attempt.ExitNotStarted
				}
				if started != want || code != exit {
					t.Errorf("exit code %d, start %q; want %d, %q", code, started, exit, want)
				}
				if took := time.Since(begun); tc.answer == nil && (polls < 3 || tc.signal == nil && took != 5*time.Minute+outlive) {
					t.Errorf("the step polled %d times and ended after %s", polls, took)
				}
			})
		})
	}
}

// On AWS each request of a waiting step is billed. The step looks for its marker each second, and after a minute every three, which costs
// a thirtieth, and asks once a minute: for the case that the marker is lost, and to learn that its deployment has ended.
func TestWarmStepLooksForItsMarker(t *testing.T) {
	for name, tc := range map[string]struct {
		mark   bool          // the marker is written with the assignment
		broken bool          // DynamoDB cannot be reached
		after  time.Duration // the assignment
		within time.Duration
		polls  int // at most
		looks  int // at most
	}{
		"its job comes":               {mark: true, after: 200 * time.Second, within: 3 * time.Second, polls: 5, looks: 61 + 48},
		"its job comes soon":          {mark: true, after: 50 * time.Second, within: time.Second, polls: 2, looks: 51},
		"the marker is lost":          {after: 200 * time.Second, within: time.Minute + 3*time.Second, polls: 6, looks: 61 + 68},
		"the network blocks DynamoDB": {mark: true, broken: true, after: 200 * time.Second, within: 2 * time.Second, polls: 220, looks: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				assigned := begun.Add(tc.after + time.Millisecond)
				var started time.Time
				polls, looks, markers := 0, 0, 0
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					switch {
					case r.URL.Host == "dynamodb.example":
						body, err := io.ReadAll(r.Body)
						if looks++; tc.broken || err != nil {
							return nil, errors.Join(errors.New("no route to host"), err)
						}
						if !strings.Contains(string(body), `"ins_1/wrm_1/1"`) || !strings.Contains(r.Header.Get("Authorization"), "Credential=ASIAWARM/") {
							t.Errorf("the step looks with %s, %q", body, r.Header.Get("Authorization"))
						}
						if !tc.mark || time.Now().Before(assigned) {
							return okAnswer(r, map[string]any{})
						}
						return okAnswer(r, map[string]any{"Item": map[string]any{"attempt": map[string]string{"S": "ins_1/wrm_1/1"}}})
					case strings.HasSuffix(r.URL.Path, "/marker"):
						markers++
						return okAnswer(r, wire.WarmMarker{CloudAccess: wire.CloudAccess{Region: "eu-central-1", AccessKeyID: "ASIAWARM", SecretAccessKey: "s", SessionToken: "t"},
							Marker: wire.CancelMarker{URL: "https://dynamodb.example", Table: "cancels", Key: "ins_1/wrm_1/1"}})
					case strings.HasSuffix(r.URL.Path, "/wrm_1/job"):
						if polls++; time.Now().Before(assigned) {
							return cannedAnswer{status: http.StatusNoContent}.response(r), nil
						}
						return okAnswer(r, wire.Claim{Job: "job_1", Epoch: 2, Operation: "apply", Plugin: "terraform", InstallID: "ins_1", Component: "web", LaunchToken: "launch"})
					}
					if started.IsZero() {
						started = time.Now()
					}
					return nil, context.Canceled // the start of the job is not part of this test
				})
				in := attempt.Input{URL: "https://control.example", Runner: "run_1", InstallID: "ins_1", Data: t.TempDir(),
					Warm: &attempt.Warm{ID: "wrm_1", Role: component.Provision, Expires: begun.Add(5 * time.Minute)}}
				ctx, cancel := context.WithDeadline(t.Context(), begun.Add(5*time.Minute))
				defer cancel()
				Run(ctx, attempt.Dir(t.TempDir()), in, "warm", Env{Parts: Parts{FindMarker: signedLook}, Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
					Signals: make(chan os.Signal, 1), Plugins: plugin.Registry{}, NewID: func() string { return "step-1234" }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }})
				if started.IsZero() || started.Sub(assigned) > tc.within || polls > tc.polls || looks > tc.looks || markers != 1 {
					t.Errorf("started %s after the assignment, after %d polls, %d looks and %d requests for the marker; want at most %s, %d polls, %d looks and one request", started.Sub(assigned), polls, looks, markers, tc.within, tc.polls, tc.looks)
				}
			})
		})
	}
}
