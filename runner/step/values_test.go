package step

import (
	"bytes"
	"cmp"
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

// shouting is a tool that writes its variables to the log.
type shouting struct{ got map[string]events.SpecVar }

func (*shouting) Operations() []string { return []string{"apply"} }

func (p *shouting) Run(_ context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	p.got = spec.Inputs()
	for name, v := range p.got {
		if _, err := io.WriteString(env.Log, name+"="+string(v.Value)+"\n"); err != nil {
			return plugin.Result{}, err
		}
	}
	return plugin.Result{}, nil
}

// The tool gets its secrets only if they are those that the signed spec names, and the log shows none of them.
func TestStepResolvesOnlyWhatItsSpecNames(t *testing.T) {
	const values = `{"url":"s3cret-of-db"}`
	for name, tc := range map[string]struct {
		answer string
		status int
		reason fairlead.Reason // "": the tool starts
		refs   string          // of the sensitive variable; "": those of the first case
	}{
		"the values that the spec names":        {values, http.StatusOK, "", ""},
		"other values":                          {`{"url":"s3cret-of-thief"}`, http.StatusOK, fairlead.ReasonValuesAltered, ""},
		"a part that the value has not":         {values, http.StatusOK, fairlead.ReasonReferenceInvalid, `"${components.db.outputs.url.host}"`},
		"no values":                             {``, http.StatusOK, fairlead.ReasonValuesAltered, ""},
		"values that the control plane has not": {`{"type":"urn:fairlead:problem:values-not-found","title":"Not found","status":404,"detail":"the spec names no such values"}`, http.StatusNotFound, fairlead.ReasonValuesMissing, ""},
		"values that the step may not read":     {`{"type":"urn:fairlead:problem:other-job","title":"Forbidden","status":403,"detail":"the token is for another job"}`, http.StatusForbidden, fairlead.ReasonValuesUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			key := testKey()
			envelope, err := events.NewSigner(key).Sign(t.Context(), events.JobSpec{Runner: "run_1", Job: "job_1", Epoch: 1, Component: "web", Plugin: "tool", Operation: "apply",
				IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
				Vars:   map[string]events.SpecVar{"size": {Value: json.RawMessage("2")}, "db": {Sensitive: true, Refs: json.RawMessage(cmp.Or(tc.refs, `"db://${components.db.outputs.url}"`))}},
				Values: []events.ValuesRef{{Name: "components.db", Digest: events.ValuesDigest("lease", "components.db", []byte(values))}}})
			if err != nil {
				t.Fatal(err)
			}
			var report wire.FinishRequest
			var log, asked bytes.Buffer
			p := &shouting{}
			transport := roundTripper(func(r *http.Request) (*http.Response, error) {
				answer := func(status int, contentType string, body []byte) (*http.Response, error) {
					return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
				}
				out := any(map[string]any{})
				switch path := r.URL.Path; {
				case strings.HasSuffix(path, "/start"):
					out = wire.Started{Envelope: envelope, LeaseToken: "lease", RenewSeconds: 15}
				case strings.Contains(path, "/values/"):
					asked.WriteString(r.Method + " " + path + " " + r.Header.Get("Authorization"))
					if tc.status == http.StatusOK {
						return answer(tc.status, "application/octet-stream", []byte(tc.answer))
					}
					return answer(tc.status, "application/problem+json", []byte(tc.answer))
				case strings.HasSuffix(path, "/heartbeat"):
					out = wire.Lease{RenewSeconds: 15}
				case strings.HasSuffix(path, "/log"):
					if _, err := io.Copy(&log, r.Body); err != nil {
						return nil, err
					}
					out = wire.LogAppended{Next: int64(log.Len())}
				case strings.HasSuffix(path, "/finish"):
					if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
						return nil, err
					}
				}
				b, err := json.Marshal(out)
				if err != nil {
					return nil, err
				}
				return answer(http.StatusOK, "application/json", b)
			})
			a := &execution{dir: attempt.Dir(t.TempDir()), in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Component: "web", Plugin: "tool", Operation: "apply", Data: t.TempDir(),
				Keys: []wire.VerificationKey{{ID: events.KeyID(key.Public().(ed25519.PublicKey)), PublicKey: key.Public().(ed25519.PublicKey)}}},
				Env: Env{Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
					Plugins: plugin.Registry{"tool": p}, NewID: func() string { return "step-1" }, Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}}
			if code := a.run(t.Context(), "launch"); code != attempt.ExitFinished {
				t.Errorf("exit code %d", code)
			}
			if want := "GET /runner/v1/jobs/job_1/values/components.db Bearer lease"; asked.String() != want {
				t.Errorf("the step asked %q, want %q", asked.String(), want)
			}
			if strings.Contains(log.String(), "s3cret") || strings.Contains(report.Message, "s3cret") {
				t.Errorf("the log or the report holds a secret: %s%s", log.String(), report.Message)
			}
			if tc.reason == "" {
				if got := p.got["db"]; string(got.Value) != `"db://s3cret-of-db"` || !got.Sensitive || string(p.got["size"].Value) != "2" || !strings.Contains(log.String(), "db=") {
					t.Errorf("the tool got %+v, the log is %q, the report %+v", p.got, log.String(), report)
				}
				return
			}
			if p.got != nil || report.Outcome != "failed" || report.Reason != string(tc.reason) {
				t.Errorf("the tool got %+v, the report is %+v", p.got, report)
			}
		})
	}
}
