package alltypes

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/proxy"
)

// Moment is the first request of a step to one of these routes, at which a test kills a program.
type Moment struct {
	Name   string
	Routes []wire.Route
	After  bool // the control plane has received the request, and the step has no answer
}

// The moments of a job.
var (
	AtTheStart = Moment{"at the start", []wire.Route{wire.StartJob}, false}
	// The first lines of the log: the component's plugin works, or has just ended. The report brings the log of a short job.
	InTheMiddle    = Moment{"in the middle", []wire.Route{wire.AppendJobLog, wire.FinishJob}, false}
	AtTheEnd       = Moment{"at the end", []wire.Route{wire.FinishJob}, false}
	AfterTheReport = Moment{"after the report", []wire.Route{wire.FinishJob}, true}
)

// Killer kills a program at a moment of each job of a story: once for each operation on each component in each phase. A job that
// repeats a killed one, and the plan and the apply after it, are spared. Set the exported fields before Join. Hold is safe for
// concurrent use; the story calls the other methods.
type Killer struct {
	At     Moment
	Kill   func(wire.Job)
	Drop   bool            // the connection of the request ends with the program; otherwise the request goes on after Kill
	Spared map[string]bool // operations in which nothing is killed, as COMPONENT OPERATION

	t     testing.TB
	story *Story
	held  chan held
	ended chan struct{} // closed after the test: no request waits, so that the server of the proxy can end
	mu    sync.Mutex
	seen  map[string]bool // jobs that reached the moment
	done  map[string]bool // COMPONENT OPERATION of the killed jobs of this phase
}

// held is a job whose request waits for the killer.
type held struct {
	job     string
	goes    chan struct{} // closed: the request goes on
	dropped chan struct{} // closed: its connection ends
}

// Join adds the killer to the story, whose steps reach the control plane through the proxy.
func (k *Killer) Join(s *Story, p *proxy.Proxy) {
	k.t, k.story, k.held, k.ended, k.seen, k.done = s.T, s, make(chan held, 100), make(chan struct{}), map[string]bool{}, map[string]bool{}
	s.T.Cleanup(func() { close(k.ended) })
	for _, route := range k.At.Routes {
		p.Fail(proxy.Route(route), -1, k.hold)
	}
	s.Meanwhile, s.Settled = k.work, k.settle
}

// hold lets each job's first request of the route wait until the killer has decided. A request that the control plane did not get,
// because it did not run, does not count as the first.
func (k *Killer) hold(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass := func() { next.ServeHTTP(w, r) }
		if k.At.After {
			answer := proxy.Record(w)
			next.ServeHTTP(answer, r)
			pass = answer.Send
		}
		if job := strings.Split(r.URL.Path, "/")[4]; k.first(job) { // /runner/v1/jobs/{job}/…
			h := held{job, make(chan struct{}), make(chan struct{})}
			k.held <- h
			select {
			case <-h.goes:
			case <-h.dropped:
				panic(http.ErrAbortHandler)
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			case <-k.ended:
				panic(http.ErrAbortHandler)
			}
		}
		pass()
	})
}

// first reports whether a job reaches the moment for the first time.
func (k *Killer) first(job string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.seen[job]
	k.seen[job] = true
	return first
}

// work kills for each job that waits, unless its operation was killed before.
func (k *Killer) work() {
	k.t.Helper()
	for {
		select {
		case h := <-k.held:
			j, err := k.story.API.GetJob(k.t.Context(), h.job)
			if err != nil {
				k.t.Fatal(err)
			}
			name := j.Component + " " + j.Operation
			if k.done[name] {
				close(h.goes)
				continue
			}
			k.done[name] = true
			if k.Spared[name] {
				close(h.goes)
				continue
			}
			k.Kill(j)
			if k.Drop {
				close(h.dropped)
			} else {
				close(h.goes)
			}
		default:
			return
		}
	}
}

// settle waits until a program was killed for each operation of the phase. The control plane can have the last report before the
// killer sees its request.
func (k *Killer) settle(phase string) {
	k.t.Helper()
	want := k.story.Operations(phase)
	for deadline := time.Now().Add(patience); ; {
		k.work()
		missing := ""
		for _, name := range want {
			if !k.done[name] {
				missing = name
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("in the phase %s no program was killed in the job %s", phase, missing)
		}
		select {
		case <-k.t.Context().Done():
			k.t.Fatal("the test ended")
		case <-time.After(pause):
		}
	}
	if len(k.done) != len(want) {
		k.t.Errorf("in the phase %s the killer saw the jobs %v, want %q", phase, k.done, want)
	}
	clear(k.done)
}

// Operations returns the operations of a phase of the story, as COMPONENT OPERATION.
func (s *Story) Operations(phase string) (names []string) {
	of := map[string][]string{"create": {"plan", "apply"}, "change": {"plan", "apply"}, "teardown": {"plan-destroy", "destroy"}}
	for _, c := range s.components() {
		for _, op := range of[phase] {
			names = append(names, c+" "+op)
		}
	}
	if phase == "run" {
		names = []string{"actions.report plan-run", "actions.report run"}
	}
	return names
}
