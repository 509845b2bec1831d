package step

import (
	"bytes"
	"context"
	"encoding/json"
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
