package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fairlead/fairlead/test/plane"
)

// statusURL waits until the agent logs the address of its status.
func statusURL(s *plane.Plane, a *agentProcess) string {
	var url string
	s.Until("the address of the agent's status", func() bool {
		m := regexp.MustCompile(`msg="serving the agent's status" address=(\S+)`).FindStringSubmatch(a.out.String())
		if m != nil {
			url = "http://" + m[1]
		}
		return m != nil
	})
	return url
}

func ask(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// scrape reads the metrics like Prometheus.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	code, body := ask(t, url+"/metrics")
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil || code != http.StatusOK {
		t.Fatalf("%d, %v:\n%s", code, err, body)
	}
	return families
}

// value returns the sum of the metrics fairlead_runner_<name> that have all labels. A label has the form "name=value".
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	sum := 0.0
	for _, m := range families["fairlead_runner_"+name].GetMetric() {
		has := map[string]bool{}
		for _, l := range m.Label {
			has[l.GetName()+"="+l.GetValue()] = true
		}
		all := true
		for _, l := range labels {
			all = all && has[l]
		}
		if all {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// The test checks the status of an agent that starts, runs a job, cannot reach its control plane, runs another job, and
// drains.
func TestAgentServesItsStatus(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	a := startAgent(t, s, "", "FAIRLEAD_STATUS_ADDRESS=127.0.0.1:0", file("{type: local, concurrency: 3}"))
	url := statusURL(s, a)
	s.Until("the agent is ready", func() bool { code, _ := ask(t, url+"/readyz"); return code == http.StatusOK })
	if code, body := ask(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d %s", code, body)
	}

	job := s.Queue(checkSpec())
	j := s.UntilFinished(job)
	s.Until("the job is counted", func() bool {
		return value(scrape(t, url), "jobs_ended_total", "plugin=check", "operation=check", "result=succeeded") == 1
	})
	m := scrape(t, url)
	for name, want := range map[string]float64{
		"jobs_claimed_total": 1, "jobs_running": 0, "capacity": 3, "sessions_total": 1, "ready": 1, "log_shipped_bytes_total": float64(len(j.Log)), "lease_renewals_late_total": 0,
	} {
		if got := value(m, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if value(m, "polls_total", "result=job") != 1 || value(m, "info", "executor=process", "runner=run_1") != 1 || m["fairlead_runner_session_age_seconds"] == nil {
		t.Errorf("metrics: %v", m)
	}
	for name, f := range m {
		if f.GetType() == dto.MetricType_UNTYPED {
			t.Errorf("%s has no type", name)
		}
	}

	s.SetDown(true)
	s.Until("failures are counted", func() bool {
		m := scrape(t, url)
		return value(m, "failures_total", "request=claim", "kind=network") > 0 && value(m, "failures_total", "request=heartbeat") > 0 && value(m, "polls_total", "result=error") > 0
	})
	s.SetDown(false)
	s.EndSessions()
	s.UntilFinished(s.Queue(checkSpec()))
	s.Until("another session is counted", func() bool { return value(scrape(t, url), "sessions_total") == 2 })

	for path, want := range map[string]int{"/": 404, "/metrics/": 404, "/debug/pprof/": 404} {
		if code, _ := ask(t, url+path); code != want {
			t.Errorf("%s answers with %d", path, code)
		}
	}
	a.signal(syscall.SIGTERM)
	if code := a.exit(s); code != 0 {
		t.Errorf("the agent exited with %d", code)
	}
}

// A job that the step refuses is counted as failed.
func TestRefusedJobIsCountedAsFailed(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_STATUS_ADDRESS=127.0.0.1:0", "FAIRLEAD_TOFU=/nowhere", file("{type: local, concurrency: 1}"))
	url := statusURL(s, a)
	spec := checkSpec()
	spec.Plugin, spec.Operation = "no-such-plugin", "check" // the step refuses the plugin and reports it
	s.UntilFinished(s.Queue(spec))
	s.Until("the refusal is counted as failed", func() bool {
		return value(scrape(t, url), "jobs_ended_total", "plugin=other", "result=failed") == 1
	})
}

// If the status address is in use, the agent does not start, because it could not be monitored without its status.
func TestTakenStatusAddressStopsTheAgent(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	taken := strings.TrimPrefix(s.URL(), "http://")
	a := startAgent(t, s, "", "FAIRLEAD_STATUS_ADDRESS="+taken)
	if code := a.exit(s); code != 1 || !strings.Contains(a.out.String(), fmt.Sprintf("FAIRLEAD_STATUS_ADDRESS: listen tcp %s", taken)) {
		t.Errorf("exit code %d, output %s", code, a.out)
	}
}
