package step

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
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
	"github.com/fairlead/fairlead/pkg/installkey"
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
	return plugin.Result{Outputs: map[string]wire.FullOutput{"token": {Value: json.RawMessage(`"s3cret-token"`), Sensitive: true}, "id": {Value: json.RawMessage("7")}}}, nil
}

// ringOfTests returns the keys of the install ins_1.
func ringOfTests(t *testing.T) installkey.Ring {
	t.Helper()
	ring, err := installkey.NewRing(seedOfTests, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// encryptedURL returns an answer with a value that a step encrypted for a place.
func encryptedURL(t *testing.T, place string) string {
	t.Helper()
	sealed, err := ringOfTests(t).Seal(place, []byte(`"s3cret-of-db"`))
	if err != nil {
		t.Fatal(err)
	}
	return `{"url":"` + base64.StdEncoding.EncodeToString(sealed) + `"}`
}

// publicURL is like encryptedURL, but made with the public key alone.
func publicURL(t *testing.T, place string) string {
	t.Helper()
	sealed, err := ringOfTests(t).Current().Public().Seal(place, []byte(`"s3cret-of-thief"`))
	if err != nil {
		t.Fatal(err)
	}
	return `{"url":"` + base64.StdEncoding.EncodeToString(sealed) + `"}`
}

// The tool gets its secrets only if they are those that the signed spec names, and the log shows none of them.
func TestStepResolvesOnlyWhatItsSpecNames(t *testing.T) {
	const values = `{"url":"s3cret-of-db"}`
	for name, tc := range map[string]struct {
		answer string
		status int
		reason fairlead.Reason // "": the tool starts
		refs   string          // of the sensitive variable; "": those of the first case
		seed   string          // of the runner; the value url is then encrypted
	}{
		"the values that the spec names":             {values, http.StatusOK, "", "", ""},
		"other values":                               {`{"url":"s3cret-of-thief"}`, http.StatusOK, fairlead.ReasonValuesAltered, "", ""},
		"a part that the value has not":              {values, http.StatusOK, fairlead.ReasonReferenceInvalid, `"${components.db.outputs.url.host}"`, ""},
		"no values":                                  {``, http.StatusOK, fairlead.ReasonValuesAltered, "", ""},
		"values that the control plane has not":      {`{"type":"urn:fairlead:problem:values-not-found","title":"Not found","status":404,"detail":"the spec names no such values"}`, http.StatusNotFound, fairlead.ReasonValuesMissing, "", ""},
		"values that the step may not read":          {`{"type":"urn:fairlead:problem:other-job","title":"Forbidden","status":403,"detail":"the token is for another job"}`, http.StatusForbidden, fairlead.ReasonValuesUnavailable, "", ""},
		"an encrypted value":                         {encryptedURL(t, "output/db/url"), http.StatusOK, "", "", seedOfTests},
		"an encrypted value of another output":       {encryptedURL(t, "output/cache/url"), http.StatusOK, fairlead.ReasonValuesEncrypted, "", seedOfTests},
		"an encrypted value, and another seed":       {encryptedURL(t, "output/db/url"), http.StatusOK, fairlead.ReasonValuesEncrypted, "", strings.Repeat("Other", 10)},
		"an output that the vendor has encrypted":    {publicURL(t, "output/db/url"), http.StatusOK, fairlead.ReasonValuesEncrypted, "", seedOfTests},
		"a clear value in place of an encrypted one": {values, http.StatusOK, fairlead.ReasonValuesAltered, "", seedOfTests},
	} {
		t.Run(name, func(t *testing.T) {
			key := testKey()
			named, encrypted := []byte(values), []string(nil)
			if tc.seed != "" {
				named, encrypted = []byte(tc.answer), []string{"url"}
			}
			envelope, err := events.NewSigner(key).Sign(t.Context(), events.JobSpec{Runner: "run_1", Job: "job_1", Epoch: 1, Install: "ins_1", Component: "web", Plugin: "tool", Operation: "apply",
				IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
				Vars:   map[string]events.SpecVar{"size": {Value: json.RawMessage("2")}, "db": {Sensitive: true, Refs: json.RawMessage(cmp.Or(tc.refs, `"db://${components.db.outputs.url}"`))}},
				Values: []events.ValuesRef{{Name: "components.db", Digest: events.ValuesDigest("lease", "components.db", named), Encrypted: encrypted}}})
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
			a := &execution{dir: attempt.Dir(t.TempDir()), in: attempt.Input{URL: "https://control.example", Runner: "run_1", Job: "job_1", Epoch: 1, Component: "web", Plugin: "tool", Operation: "apply", Data: t.TempDir(), InstallID: "ins_1",
				Keys: []wire.VerificationKey{{ID: events.KeyID(key.Public().(ed25519.PublicKey)), PublicKey: key.Public().(ed25519.PublicKey)}}},
				Env: Env{Seed: tc.seed, Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }, Now: time.Now, Transport: transport,
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
				token := report.Outputs["token"]
				if tc.seed == "" && string(token.Value) != `"s3cret-token"` || string(report.Outputs["id"].Value) != "7" {
					t.Errorf("the report has the outputs %+v", report.Outputs)
				}
				if tc.seed != "" {
					if token.Value != nil || token.Encrypted == nil || token.Encrypted.Type != "string" || token.Encrypted.Fingerprint == "" {
						t.Fatalf("the report has the output %+v", token)
					}
					if clear, err := ringOfTests(t).OpenOwn("output/web/token", token.Encrypted.Bytes); err != nil || string(clear) != `"s3cret-token"` {
						t.Errorf("the output opens as %s, %v", clear, err)
					}
				}
				return
			}
			if p.got != nil || report.Outcome != "failed" || report.Reason != string(tc.reason) {
				t.Errorf("the tool got %+v, the report is %+v", p.got, report)
			}
		})
	}
}
