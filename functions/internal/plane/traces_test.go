package plane_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/tools/program"
)

// collected returns the URL of a collector and the requests that it got.
func collected(t *testing.T) (url string, got func() string) {
	var mu sync.Mutex
	var all strings.Builder
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		all.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

// The real programs send traces to the collector that their environment names: a function before
// it answers, and an agent at its end at the latest. The function continues the agent's trace.
func TestFunctionSendsItsTraces(t *testing.T) {
	url, got := collected(t)
	c := newCloud(t)
	cfg := c.sessionAPI()
	cfg.Traces = url
	cmd := function(t, "sessionapi") // runtimetest names it test
	cmd.Env = c.environ(cfg)
	f := runtimetest.Start(t, cmd, runtimetest.Timeout)

	var parent string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parent = r.Header.Get("Traceparent")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		event := fmt.Sprintf(`{"version":"2.0","routeKey":"ANY /runner/v1/enrol","rawPath":%q,"headers":{"content-type":"application/json","traceparent":%q},"body":%q,
			"requestContext":{"domainName":"x","requestId":"r1","http":{"method":%q,"path":%q}}}`, r.URL.Path, parent, body, r.Method, r.URL.Path)
		answer, err := f.Invoke(r.Context(), json.RawMessage(event))
		if err != nil {
			t.Error(err)
		}
		if text := got(); !strings.Contains(text, `"name":"POST /runner/v1/enrol"`) || !strings.Contains(text, `"stringValue":"test"`) {
			t.Errorf("the function answered before it sent its trace; the collector has %s", text)
		}
		var a struct {
			StatusCode int
			Body       string
		}
		if err := json.Unmarshal(answer, &a); err != nil || a.StatusCode != http.StatusUnauthorized {
			t.Errorf("the function answered %s, %v", answer, err)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(a.StatusCode)
		_, _ = io.WriteString(w, a.Body)
	}))
	defer api.Close()
	agent := exec.Command(program.Build(t, "runner"), "agent", "--url", api.URL, "--data", t.TempDir())
	agent.Env = []string{"PATH=" + os.Getenv("PATH"), "FAIRLEAD_ENROLMENT_TOKEN=fle_" + strings.Repeat("0", 52), "OTEL_EXPORTER_OTLP_ENDPOINT=" + url}
	output, err := agent.CombinedOutput()
	if err == nil || parent == "" {
		t.Fatalf("the agent with a wrong token sent the traceparent %q and ended with %v:\n%s", parent, err, output)
	}
	trace := strings.Split(parent, "-")[1]
	if text := got(); strings.Count(text, `"traceId":"`+trace+`"`) != 2 || !strings.Contains(text, "fairlead-runner") {
		t.Errorf("the trace %s does not have the spans of agent and function: %s", trace, text)
	}
}
