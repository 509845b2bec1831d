package step

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// An attacker with write access to the table puts another app's artifact into a version's record. A control plane that
// trusts the record signs a spec with it.
func TestArtifactOfAnotherVersionStartsNoTool(t *testing.T) {
	artifacts := map[string]string{"web": "sha256:aa"}
	id, err := events.VersionID("default", []byte("{}"), artifacts)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		digest  string
		version *events.VersionRef
		started bool
		reason  string
	}{
		"its own artifact":                       {"sha256:aa", &events.VersionRef{ID: id, Org: "default", Config: []byte("{}"), Artifacts: artifacts}, true, ""},
		"another artifact, in the version too":   {"sha256:ee", &events.VersionRef{ID: id, Org: "default", Config: []byte("{}"), Artifacts: map[string]string{"web": "sha256:ee"}}, false, string(fairlead.ReasonSpecArtifact)},
		"another artifact, not in the version":   {"sha256:ee", &events.VersionRef{ID: id, Org: "default", Config: []byte("{}"), Artifacts: artifacts}, false, string(fairlead.ReasonSpecArtifact)},
		"a control plane that sends no versions": {"sha256:aa", nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &tool{}
			report, fields := runSpec(t, p, events.JobSpec{Component: "web", Operation: "apply", Artifact: &events.ArtifactRef{Digest: tc.digest}, Version: tc.version})
			if p.started != tc.started || report.Reason != tc.reason {
				t.Errorf("started %t, reported %+v", p.started, report)
			}
			if fields != events.FieldVersion+","+events.FieldProvenance+","+events.FieldApprovals+","+events.FieldAudit+","+events.FieldMove+","+events.FieldKeySets {
				t.Errorf("the step says that it supports the fields %q", fields)
			}
		})
	}
}

// runSpec runs a step of the spec, which the pinned key signs. It returns the step's report, and the optional fields that the
// step knows.
func runSpec(t *testing.T, p plugin.Plugin, spec events.JobSpec) (report wire.FinishRequest, fields string) {
	t.Helper()
	key := testKey()
	spec.Runner, spec.Job, spec.Epoch, spec.Plugin, spec.IssuedAt, spec.ExpiresAt = "run_1", "job_1", 1, "tool", time.Now(), time.Now().Add(time.Hour)
	envelope, err := events.NewSigner(key).Sign(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		out := any(map[string]any{})
		switch {
		case strings.HasSuffix(r.URL.Path, "/start"):
			fields = r.Header.Get(wire.HeaderSpecFields)
			out = wire.Started{Envelope: envelope, LeaseToken: "lease", RenewSeconds: 15}
		case strings.HasSuffix(r.URL.Path, "/heartbeat"):
			out = wire.Lease{RenewSeconds: 15}
		case strings.HasSuffix(r.URL.Path, "/finish"):
			if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
				return nil, err
			}
		}
		b, err := json.Marshal(out)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
	})
	a := &execution{dir: attempt.Dir(t.TempDir()), in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Component: spec.Component, Plugin: "tool", Operation: spec.Operation, Data: t.TempDir(),
		Keys: []wire.VerificationKey{{ID: events.KeyID(key.Public().(ed25519.PublicKey)), PublicKey: key.Public().(ed25519.PublicKey)}}},
		Env: Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport, Version: "v1.2.3",
			Plugins: plugin.Registry{"tool": p}, NewID: func() string { return "step-1" }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}}
	if code := a.run(t.Context(), "launch"); code != attempt.ExitFinished {
		t.Errorf("exit code %d", code)
	}
	return report, fields
}

// The control plane refuses the start of a job whose version was altered in the table. The step must not repeat the request
// until its time is over: the agent would then report it as dead.
func TestRefusedStartIsNotRepeated(t *testing.T) {
	for name, tt := range map[string]struct {
		details map[string]string
		code    int
	}{
		"the control plane has ended the job":     {map[string]string{wire.DetailJobEnded: "true"}, attempt.ExitFinished},
		"the control plane has not ended the job": {nil, attempt.ExitNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			starts := 0
			transport := roundTripper(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/start") {
					t.Errorf("unexpected request for %s", r.URL.Path)
				}
				starts++
				b, err := json.Marshal(wire.Problem{Type: wire.ProblemType + "version-altered", Status: http.StatusConflict, Details: tt.details})
				return cannedAnswer{status: http.StatusConflict, contentType: "application/problem+json", body: string(b)}.response(r), err
			})
			dir := attempt.Dir(t.TempDir())
			p := &tool{}
			a := &execution{dir: dir, in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Component: "web", Plugin: "tool", Operation: "apply", Data: t.TempDir()},
				Env: Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
					Plugins: plugin.Registry{"tool": p}, NewID: func() string { return "step-1" }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}}
			if code := a.run(t.Context(), "launch"); code != tt.code || starts != 1 || p.started {
				t.Errorf("exit code %d after %d requests, tool started: %t", code, starts, p.started)
			}
			if ended := tt.code == attempt.ExitFinished; dir.Finished() != ended || ended && dir.Tally().Outcome != "failed" {
				t.Errorf("finished: %t, with %+v", dir.Finished(), dir.Tally())
			}
		})
	}
}
