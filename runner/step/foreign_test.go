package step

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/attempt"
)

// cannedAnswer is a fixed HTTP answer.
type cannedAnswer struct {
	name        string
	status      int
	contentType string
	body        string
}

func (s cannedAnswer) response(r *http.Request) *http.Response {
	return &http.Response{StatusCode: s.status, Status: strconv.Itoa(s.status) + " " + http.StatusText(s.status), Header: http.Header{"Content-Type": {s.contentType}},
		Body: io.NopCloser(strings.NewReader(s.body)), ContentLength: int64(len(s.body)), Request: r}
}

func problem(status int, code string) cannedAnswer {
	b, err := json.Marshal(wire.Problem{Type: wire.ProblemType + code, Title: code, Status: status})
	if err != nil {
		panic(err)
	}
	return cannedAnswer{code, status, "application/problem+json", string(b)}
}

// foreignAnswers are the answers of proxies, gateways and firewalls between a runner and its control plane.
func foreignAnswers() []cannedAnswer {
	const page = "<html><head><title>%</title></head></html>"
	return []cannedAnswer{
		{"an ingress has no backend", http.StatusNotFound, "text/plain; charset=utf-8", "default backend - 404"},
		{"a firewall forbids it", http.StatusForbidden, "text/html", page},
		{"a proxy wants a login", http.StatusUnauthorized, "text/html", page},
		{"a proxy reports a conflict", http.StatusConflict, "text/html", page},
		{"a load balancer has no backend", http.StatusGone, "", ""},
		{"a portal redirects", http.StatusFound, "text/html", page},
		{"a proxy cannot reach the control plane", http.StatusBadGateway, "text/html", page},
		{"API Gateway forbids it", http.StatusForbidden, "application/json", `{"message":"Forbidden"}`},
		{"API Gateway has no such route", http.StatusNotFound, "application/json", `{"message":"Not Found"}`},
		{"API Gateway throttles", http.StatusTooManyRequests, "application/json", `{"message":"Too Many Requests"}`},
		{"another server's problem", http.StatusForbidden, "application/problem+json", `{"type":"about:blank","title":"Forbidden","status":403}`},
		{"half of a problem", http.StatusConflict, "application/problem+json", `{"type":"urn:fairlead:problem:sta`},
		{"a control plane without the route", http.StatusNotFound, "application/problem+json", problem(http.StatusNotFound, "no-route").body},
	}
}

func okAnswer(r *http.Request, v any) (*http.Response, error) {
	b, err := json.Marshal(v)
	return cannedAnswer{status: http.StatusOK, contentType: "application/json", body: string(b)}.response(r), err
}

func clientOf(t *testing.T, rt roundTripper, retries int) *client.Client {
	t.Helper()
	c, err := client.New("https://control.example", "token", client.Options{HTTP: &http.Client{Transport: rt}, Retries: retries})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A proxy's answer to a renewal must not end the lease. Otherwise, if an ingress without a backend answers 404 for a second,
// the step kills an apply before the apply can save its state.
func TestOnlyTheControlPlaneEndsALease(t *testing.T) {
	const renew = 15 * time.Second
	type row struct {
		cannedAnswer
		lasts         time.Duration
		lost, expired bool
	}
	var rows []row
	for _, s := range foreignAnswers() {
		rows = append(rows, row{s, 20 * time.Second, false, false})
	}
	rows = append(rows, row{foreignAnswers()[0], time.Minute, false, true})
	for _, s := range []cannedAnswer{problem(http.StatusConflict, "stale-epoch"), problem(http.StatusConflict, "job-state"), problem(http.StatusNotFound, "job-not-found"),
		problem(http.StatusUnauthorized, "unauthenticated"), problem(http.StatusForbidden, "other-job"), problem(http.StatusConflict, "a-code-of-tomorrow")} {
		rows = append(rows, row{s, 20 * time.Second, true, false})
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c := clientOf(t, func(r *http.Request) (*http.Response, error) {
					if at := time.Since(began); at > 30*time.Second && at < 30*time.Second+tt.lasts {
						return tt.response(r), nil
					}
					return okAnswer(r, wire.Lease{RenewSeconds: int(renew / time.Second)})
				}, -1)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var lost, expired atomic.Bool
				l := &lease{client: c, job: "job_1", renew: renew, log: slog.New(slog.DiscardHandler), canceled: func(string) { t.Error("canceled") },
					lost: func() { lost.Store(true) }, expired: func() { expired.Store(true) }}
				l.keep(ctx)
				if lost.Load() != tt.lost || expired.Load() != tt.expired {
					t.Errorf("the tool was killed: %v, interrupted: %v; want %v, %v", lost.Load(), expired.Load(), tt.lost, tt.expired)
				}
			})
		})
	}
}

// A proxy's answer to the report must not end its delivery as if the lease were lost.
func TestReportIsRetriedAfterForeignAnswers(t *testing.T) {
	type row struct {
		cannedAnswer
		code    int
		outcome string
	}
	var rows []row
	for _, s := range foreignAnswers() {
		rows = append(rows, row{s, attempt.ExitFinished, "succeeded"})
	}
	rows = append(rows, row{problem(http.StatusConflict, "stale-epoch"), attempt.ExitStale, ""},
		row{problem(http.StatusRequestEntityTooLarge, "record-too-large"), attempt.ExitFinished, "failed"},
		// The request would have the same size if the step sent it again.
		row{cannedAnswer{"a proxy refuses the report as too large", http.StatusRequestEntityTooLarge, "text/html", "<html>"}, attempt.ExitFinished, "failed"})
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var reported wire.FinishRequest
				c := clientOf(t, func(r *http.Request) (*http.Response, error) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					if tt.status == http.StatusRequestEntityTooLarge && len(b) > 2000 || tt.status != http.StatusRequestEntityTooLarge && time.Since(began) < 2*time.Minute {
						return tt.response(r), nil
					}
					if err := json.Unmarshal(b, &reported); err != nil {
						return nil, err
					}
					return okAnswer(r, struct{}{})
				}, 0)
				a := &execution{in: attempt.Input{Job: "job_1", Epoch: 1}, dir: attempt.Dir(t.TempDir()), Env: Env{
					Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }}}
				large := json.RawMessage(`"` + strings.Repeat("x", 4000) + `"`)
				code := a.finish(t.Context(), c, wire.FinishRequest{Outcome: "succeeded", Outputs: map[string]wire.FullOutput{"a": {Value: large}}})
				if code != tt.code || reported.Outcome != tt.outcome {
					t.Errorf("exit code %d, reported outcome %q; want %d, %q", code, reported.Outcome, tt.code, tt.outcome)
				}
			})
		})
	}
}

// A succeeded apply with too large outputs reports what it did. Its result must not become unknown.
func TestOversizedReportKeepsItsOutcome(t *testing.T) {
	noop, change := &wire.Plan{Digest: "sha256:1", NoOp: true}, &wire.Plan{Digest: "sha256:2"}
	for name, tt := range map[string]struct {
		report  wire.FinishRequest
		size    int // of the outputs
		takes   int // bytes that the front end lets through
		want    wire.FinishRequest
		outputs bool
	}{
		"a report that fits": {wire.FinishRequest{Outcome: "succeeded", Mutated: true}, 4000, 5000, wire.FinishRequest{Outcome: "succeeded", Mutated: true}, true},
		"an apply with outputs above the front end's limit": {wire.FinishRequest{Outcome: "succeeded", Mutated: true, ExitCode: new(int)}, 9000, 5000,
			wire.FinishRequest{Outcome: "failed", Reason: "outputs-too-large", Mutated: true, ExitCode: new(int)}, false},
		"outputs above the bound are not sent": {wire.FinishRequest{Outcome: "succeeded", Mutated: true, ExitCode: new(int)}, job.MaxOutputs, job.MaxOutputs * 2,
			wire.FinishRequest{Outcome: "failed", Reason: "outputs-too-large", Mutated: true, ExitCode: new(int)}, false},
		"a failed apply keeps its own reason": {wire.FinishRequest{Outcome: "failed", Reason: "state-unsaved", Mutated: true, Salvaged: &wire.Salvaged{Path: "salvage/job_1-1/errored.tfstate"}}, 9000, 5000,
			wire.FinishRequest{Outcome: "failed", Reason: "state-unsaved", Mutated: true, Salvaged: &wire.Salvaged{Path: "salvage/job_1-1/errored.tfstate"}}, false},
		"a plan without changes needs its outputs": {wire.FinishRequest{Outcome: "succeeded", Plan: noop}, 9000, 5000,
			wire.FinishRequest{Outcome: "failed", Reason: "outputs-too-large"}, false},
		"a plan with changes needs no outputs": {wire.FinishRequest{Outcome: "succeeded", Plan: change}, 9000, 5000,
			wire.FinishRequest{Outcome: "succeeded", Plan: change}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got wire.FinishRequest
				sent := 0
				c := clientOf(t, func(r *http.Request) (*http.Response, error) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					sent = max(sent, len(b))
					if len(b) > tt.takes {
						return cannedAnswer{"a front end refuses it as too large", http.StatusRequestEntityTooLarge, "text/html", "<html>"}.response(r), nil
					}
					if err := json.Unmarshal(b, &got); err != nil {
						return nil, err
					}
					return okAnswer(r, struct{}{})
				}, 0)
				a := &execution{in: attempt.Input{Job: "job_1", Epoch: 1}, dir: attempt.Dir(t.TempDir()), Env: Env{
					Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }}}
				tt.report.Outputs = map[string]wire.FullOutput{"a": {Value: json.RawMessage(`"` + strings.Repeat("x", tt.size-2) + `"`)}}
				if code := a.finish(t.Context(), c, tt.report); code != attempt.ExitFinished {
					t.Fatalf("exit code %d", code)
				}
				if (got.Outputs != nil) != tt.outputs || tt.size >= job.MaxOutputs && sent > 5000 {
					t.Errorf("outputs arrived: %v; at most %d bytes were sent", got.Outputs != nil, sent)
				}
				if got.Reason == string(fairlead.ReasonOutputsTooLarge) && !strings.Contains(got.Message, fmt.Sprint(tt.size+1)) {
					t.Errorf("the message lacks the outputs' size: %s", got.Message)
				}
				got.Outputs, got.Message = nil, ""
				if !reflect.DeepEqual(got, tt.want) {
					t.Errorf("reported %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// A proxy's answer to an append must not end the log of a job that continues.
func TestLogContinuesAfterAProxysAnswer(t *testing.T) {
	for _, tt := range append(foreignAnswers(), problem(http.StatusConflict, "log-fenced")) {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c := clientOf(t, func(r *http.Request) (*http.Response, error) {
					if time.Since(began) < time.Minute {
						return tt.response(r), nil
					}
					return okAnswer(r, wire.LogAppended{Next: 4})
				}, 0)
				a := &execution{in: attempt.Input{Job: "job_1", Epoch: 1}, Env: Env{Random: func() float64 { return 0 }}}
				next, err := a.append(c)(t.Context(), 0, []byte("made"))
				if own := tt.name == "log-fenced"; (err != nil) != own || !own && next != 4 {
					t.Errorf("the next offset is %d, error %v", next, err)
				}
			})
		})
	}
}

// Log appends that are refused for their content must not keep the report from being delivered.
func TestLogRescueLeavesTimeForTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported wire.FinishRequest
		c := clientOf(t, func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/log") {
				return foreignAnswers()[1].response(r), nil
			}
			var in wire.FinishRequest
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				return nil, err
			}
			if in.Log.Size > 0 {
				p := problem(http.StatusConflict, "log-offset")
				p.body = `{"type":"` + wire.ProblemType + `log-offset","details":{"want":"0"}}`
				return p.response(r), nil
			}
			reported = in
			return okAnswer(r, struct{}{})
		}, 0)
		dir := attempt.Dir(t.TempDir())
		if err := os.WriteFile(dir.Path(attempt.LogFile), []byte("made"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &execution{in: attempt.Input{Job: "job_1", Epoch: 1}, dir: dir, Env: Env{
			Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }}}
		if code := a.finish(t.Context(), c, wire.FinishRequest{Outcome: "succeeded", Log: wire.LogEnd{Size: 4}}); code != attempt.ExitFinished ||
			reported.Outcome != "succeeded" || !reported.Log.Truncated {
			t.Errorf("exit code %d, reported %+v", code, reported)
		}
	})
}
