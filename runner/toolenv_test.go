package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
)

// tokenFields matches the fields of answers of the control plane that hold tokens.
var tokenFields = regexp.MustCompile(`"(launch_token|lease_token|state_token|token)":"([^"]+)"`)

// recordTokens serves the control plane at the address to, which may be set later, and returns the URL. It calls got for each JSON
// answer, with its tokens by the names of their fields.
func recordTokens(t testing.TB, to *url.URL, got func(path string, body []byte, tokens map[string][]string)) string {
	t.Helper()
	recorder := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ErrorLog: log.New(io.Discard, "", 0), // an agent that stops cancels its requests
		ModifyResponse: func(resp *http.Response) error {
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
				return nil
			}
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			resp.Body = io.NopCloser(bytes.NewReader(b))
			tokens := map[string][]string{}
			for _, m := range tokenFields.FindAllSubmatch(b, -1) {
				tokens[string(m[1])] = append(tokens[string(m[1])], string(m[2]))
			}
			got(resp.Request.URL.Path, b, tokens)
			return nil
		}})
	t.Cleanup(recorder.Close)
	return recorder.URL
}

// envModule prints the tool's environment, and waits for the file gate. It prints each character with a tilde behind it, because the
// log would mask a token. The command itself is in the log, too, so it must not contain the text that the test waits for.
func envModule(gate string) map[string]string {
	return module(`env | sed 's/./&~/g'; printf 'work%s\n' ing; while ! test -e ` + gate + `; do sleep 0.05; done`)
}

// printedEnv returns the environment that envModule printed.
func printedEnv(log string) map[string]string {
	env := map[string]string{}
	for line := range strings.Lines(log) {
		if _, spaced, ok := strings.Cut(line, "(local-exec): "); ok && strings.Contains(spaced, "~") {
			name, value, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(spaced), "~", ""), "=")
			env[name] = value
		}
	}
	return env
}

// The environment of a tool holds no credential, whatever the storage of its state: neither a token of the control plane, nor the
// agent's enrolment token, nor a credential of the machine. With storage in the control plane there is one exception: the password
// for the state. It opens the state of the tool's own component, and only while the job's lease holds.
func TestToolsEnvironmentHoldsOnlyThePasswordOfItsState(t *testing.T) {
	t.Parallel()
	b := newBucket(t, "environment-"+strings.ToLower(rand.Text()), true)
	for name, tc := range map[string]struct {
		storage string
		o       plane.Options
		keyless bool
	}{
		"local":               {"local", plane.Options{}, false},
		"http":                {"http", plane.Options{}, false}, // the tool asks a relay of its step, which encrypts the state
		"http, in parts":      {"http", plane.Options{MaxBody: 16 << 10}, true},
		"http, without a key": {"http", plane.Options{}, true},
		"s3":                  {"s3", plane.Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.o.Stack = true
			s := plane.New(t, tc.o)
			var mu sync.Mutex
			secrets := map[string]string{"AMBIENT": "must-not-reach-a-tool", "AWS": "the-runners-own-secret", "enrolment": s.EnrolmentToken()}
			states := map[string]string{} // state tokens by path of their answer
			address := recordTokens(t, &url.URL{Scheme: "http", Host: s.Registry()}, func(path string, _ []byte, tokens map[string][]string) {
				mu.Lock()
				defer mu.Unlock()
				for field, all := range tokens {
					for _, token := range all {
						if secrets[field+" of "+path] = token; field == "state_token" {
							states[path] = token
						}
					}
				}
			})
			data := t.TempDir()
			if tc.keyless {
				data = keylessFolder(t)
			}
			startAt(t, address, "", data, append(inStack(t, b.endpoint), "FAIRLEAD_MAKE_INSTALL_KEY=true", "FAIRLEAD_TOFU="+tool(t), "FAIRLEAD_ENROLMENT_TOKEN="+secrets["enrolment"])...)
			gate := filepath.Join(t.TempDir(), "gate")
			ref := s.Push(envModule(gate))
			in := places(b)[tc.storage]
			of := func(sp events.JobSpec) events.JobSpec {
				sp.Env = map[string]string{"AWS_ENDPOINT_URL_STS": b.endpoint}
				return at(in, sp)
			}
			plan := succeeded(t, s.UntilFinished(s.Queue(of(spec("plan", "", ref)))))
			job := s.Queue(of(applySpec("apply", "", ref, plan)))
			s.UntilLog(job, "working")
			env := printedEnv(string(s.Job(job).Log))
			if env["PATH"] == "" {
				t.Fatalf("the log has no environment:\n%s", s.Job(job).Log)
			}

			mu.Lock()
			secrets = maps.Clone(secrets)
			own := states[strings.Replace(wire.StartJob.Path, "{job}", job, 1)]
			mu.Unlock()
			for _, field := range []string{"launch_token", "lease_token", "state_token", "token"} {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(secrets)), func(of string) bool { return strings.HasPrefix(of, field+" ") }) {
					t.Errorf("the control plane gave no %s, so the test cannot find one", field)
				}
			}
			password := env["TF_HTTP_PASSWORD"]
			relayed := tc.storage == "http" && (tc.o.MaxBody > 0 || !tc.keyless)
			switch direct := tc.storage == "http" && !relayed; {
			case direct && (own == "" || password != own):
				t.Errorf("the password is %q, want the state token of the job", password)
			case relayed && (password == "" || password == own):
				t.Errorf("the password is %q, want one of the relay", password)
			case tc.storage != "http" && password != "":
				t.Errorf("with the storage %s the tool has a password for a state", tc.storage)
			}
			for variable, value := range env {
				for kind, secret := range secrets {
					if strings.Contains(value, secret) && !(variable == "TF_HTTP_PASSWORD" && secret == own && !relayed) {
						t.Errorf("the variable %s has the secret %s", variable, kind)
					}
				}
			}
			for _, variable := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"} {
				if _, ok := env[variable]; ok {
					t.Errorf("the tool has the variable %s", variable)
				}
			}
			if t.Failed() {
				t.Logf("the environment: %v", slices.Sorted(maps.Keys(env)))
			}

			opens := func(path string) error {
				c, err := client.New(s.URL(), password, client.Options{Retries: -1})
				if err == nil {
					_, err = c.GetState(t.Context(), job, path)
				}
				return err
			}
			const another = "/runner/v1/state/ins_1/another"
			if tc.storage == "http" && !relayed {
				if err := opens(in.Path); err != nil {
					t.Errorf("the password does not open the tool's own state: %v", err)
				}
				if err := opens(another); !client.Refused(err) {
					t.Errorf("the password opens the state of another component: %v", err)
				}
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			succeeded(t, s.UntilFinished(job))
			if tc.storage == "http" {
				if err := opens(in.Path); !client.Refused(err) {
					t.Errorf("after the job, its password opens the state: %v", err)
				}
			}
		})
	}
}
