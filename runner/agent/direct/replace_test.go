package direct_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/shortrun"
	"github.com/fairlead/fairlead/tools/testserver"
)

// gate is the control plane's address for steps. While it is closed, a step that has ended its work waits with its report.
type gate struct {
	*httptest.Server
	open func() // lets all reports through
	mu   sync.Mutex
	held map[string]bool // jobs whose report waits or has waited
}

func newGate(t *testing.T, plane string) *gate {
	t.Helper()
	to, err := url.Parse(plane)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	g := &gate{open: sync.OnceFunc(func() { close(opened) }), held: map[string]bool{}}
	forward := httputil.NewSingleHostReverseProxy(to)
	prefix, suffix, _ := strings.Cut(wire.FinishJob.Path, "{job}")
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if job, ok := strings.CutPrefix(r.URL.Path, prefix); ok && strings.HasSuffix(job, suffix) {
			g.mu.Lock()
			g.held[strings.TrimSuffix(job, suffix)] = true
			g.mu.Unlock()
			select {
			case <-opened:
			case <-r.Context().Done():
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { g.open(); g.Close() })
	return g
}

func (g *gate) holds(job string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[job]
}

// places are the clouds of the tests below: each gives the file of a runner, and a function that kills the step of an attempt.
func places(t *testing.T) map[string]func(t *testing.T) (environ, file string, kill func(attempt string)) {
	k, a := newPods(t), newAccount(t)
	return map[string]func(t *testing.T) (string, string, func(string)){
		"pods": func(t *testing.T) (string, string, func(string)) {
			return file("kubernetes", ""), fmt.Sprintf(`
runner_configuration:
  type: kubernetes
  cluster: {server: %q, certificate_authority_data: %s, auth: {service_account_token: %s}}
  job: {namespace: %s, service_account: jobs, image: %s}
state_storage_configuration: {type: http}
`, k.cfg.Host, base64.StdEncoding.EncodeToString(k.authority), k.token, k.ns, image), k.kill(t)
		},
		"tasks": func(t *testing.T) (string, string, func(string)) {
			cloud := a.cloud(t)
			return file("aws-ecs", ""), a.runner(managerRole, "runner"), cloud.Kill
		},
	}
}

// gated returns a control plane without a service of direct launch, with a runner "near" in the place, and the gate for its
// steps.
func gated(t *testing.T, environ, file string) (*plane, *gate) {
	t.Helper()
	p := newPlane(t, environ)
	p.stop()
	p.make("near", file)
	return p, newGate(t, p.server.URL())
}

// check starts a check job on the runner and returns its ID.
func (p *plane) check(runner string) string {
	p.t.Helper()
	j, err := p.c.CheckRunner(p.t.Context(), runner)
	if err != nil {
		p.t.Fatal(err)
	}
	return j.ID
}

// job waits until the job has ended.
func (p *plane) job(id string) (j wire.Job) {
	p.t.Helper()
	testserver.Until(p.t, "the end of job "+id, func() (over bool) {
		var err error
		j, err = p.c.GetJob(p.t.Context(), id)
		return err == nil && (j.State == "succeeded" || j.State == "failed" || j.State == "lost")
	})
	return j
}

// online waits until the runner has n agents that are online.
func (p *plane) online(runner string, n int) {
	p.t.Helper()
	p.agents(runner, fmt.Sprintf("%d agents online", n), func(online []wire.RunnerSession) bool { return len(online) == n })
}

// runs waits until one agent of the runner is online and reports that it runs the jobs.
func (p *plane) runs(runner string, jobs ...string) {
	p.t.Helper()
	p.agents(runner, fmt.Sprintf("an agent that runs %q", jobs), func(online []wire.RunnerSession) bool {
		if len(online) != 1 {
			return false
		}
		missing := func(job string) bool { return !slices.Contains(online[0].Running, job) }
		return !slices.ContainsFunc(jobs, missing)
	})
}

// agents waits until the agents of the runner that are online and do not drain satisfy ok.
func (p *plane) agents(runner, what string, ok func(online []wire.RunnerSession) bool) {
	p.t.Helper()
	testserver.Until(p.t, what, func() bool {
		r, err := p.c.GetRunner(p.t.Context(), runner)
		return err == nil && ok(slices.DeleteFunc(r.Sessions, func(s wire.RunnerSession) bool { return s.State != "online" || s.Draining }))
	})
}

// A step runs while the service of direct launch is replaced by one with an empty disk. The step ends once, at its first
// attempt. If it dies after the replacement, the next service reports it.
func TestReplacedServiceTouchesNoStep(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) {
			environ, text, kill := place(t)
			p, g := gated(t, environ, text)
			stop := p.serveIn("first", g.URL)
			ends, dies := p.check("near"), p.check("near")
			testserver.Until(t, "both steps run", func() bool { return g.holds(ends) && g.holds(dies) })
			stop()
			p.serveIn("second", g.URL)
			p.runs("near", ends, dies)
			kill(dies + "-1")
			testserver.Until(t, "the next service reports the dead step", func() bool {
				j, err := p.c.GetJob(t.Context(), dies)
				return err == nil && len(j.Deaths) == 1
			})
			// Without a report, the reason would be lease-expired.
			if j, err := p.c.GetJob(t.Context(), dies); err != nil || j.Deaths[0].Reason != string(fairlead.CauseKilled.Reason()) {
				t.Errorf("the dead step is %+v, %v; want it reported as killed", j.Deaths, err)
			}
			g.open()
			if j := p.job(ends); j.State != "succeeded" || j.Epoch != 1 || len(j.Deaths) != 0 {
				t.Errorf("the step that ran meanwhile ended as %s, attempt %d, deaths %+v: %s", j.State, j.Epoch, j.Deaths, j.Message)
			}
		})
	}
}

// For a while two services run: ECS starts the next one before it stops the last one. Each job starts once, and the
// service that remains touches no step of the other.
func TestTwoServicesStartEachJobOnce(t *testing.T) {
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) {
			environ, text, _ := place(t)
			p, g := gated(t, environ, text)
			stop := p.serveIn("first", g.URL)
			p.serveIn("second", g.URL)
			p.online("near", 2)
			var jobs []string
			for range 6 {
				jobs = append(jobs, p.check("near"))
			}
			testserver.Until(t, "all steps run", func() bool {
				for _, id := range jobs {
					if !g.holds(id) {
						return false
					}
				}
				return true
			})
			stop()
			g.open()
			for _, id := range jobs {
				if j := p.job(id); j.State != "succeeded" || j.Epoch != 1 || len(j.Deaths) != 0 {
					t.Errorf("job %s ended as %s, attempt %d, deaths %+v: %s", id, j.State, j.Epoch, j.Deaths, j.Message)
				}
			}
		})
	}
}
