package main_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/alltypes"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// A moment is a request of a step, at which a test kills a program.
type moment struct {
	name  string
	route wire.Route
	after bool // the control plane has received the request, and the step has no answer
}

var moments = []moment{
	{"at the start", wire.StartJob, false},
	{"in the middle", wire.AppendJobLog, false}, // the first lines of the log: the component's plugin works, or has just ended
	{"at the end", wire.FinishJob, false},
	{"after the report", wire.FinishJob, true},
}

// A target is a program that a test kills.
type target struct {
	name string
	// without names the folders of the control plane in which a kill can leave files for some time.
	without []string
	kill    func(*typesWorld, wire.Job)
	// drop reports whether the connection of the request ends with the program. Otherwise the request goes on after the program
	// has been started again.
	drop bool
}

var targets = []target{
	{"step", nil, func(w *typesWorld, j wire.Job) { w.KillStep(j) }, true},
	{"agent", nil, func(w *typesWorld, _ wire.Job) { w.Agent.Kill(); w.StartAgent() }, false},
	// What it wrote before a commit that it did not reach is collected after an hour.
	{"control plane", []string{"blobs"}, func(w *typesWorld, _ wire.Job) { w.Server.Kill(); w.StartServer() }, false},
}

// killer kills a program at a moment of each job of a story: once for each operation on each component in each phase. A job that
// repeats a killed one, and the plan and the apply after it, are spared.
type killer struct {
	*typesWorld
	t *testing.T
	moment
	target
	held chan held
	// spared are the operations in which nothing is killed, as COMPONENT OPERATION.
	spared map[string]bool

	mu   sync.Mutex
	seen map[string]bool // jobs that reached the moment
	done map[string]bool // COMPONENT OPERATION of the killed jobs of this phase
}

// held is a job whose request waits for the killer.
type held struct {
	job     string
	goes    chan struct{} // closed: the request goes on
	dropped chan struct{} // closed: its connection ends
}

// newKiller adds a killer to the story.
func newKiller(t *testing.T, w *typesWorld, m moment, v target) {
	k := &killer{typesWorld: w, t: t, moment: m, target: v, held: make(chan held, 100), spared: sparedOperations(t), seen: map[string]bool{}, done: map[string]bool{}}
	w.Proxy.Fail(proxy.Route(m.route), -1, k.hold)
	w.Meanwhile, w.Settled = k.work, k.settle
}

// hold lets each job's first request of the route wait until the killer has decided. A request that the control plane did not get,
// because it did not run, does not count as the first.
func (k *killer) hold(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass := func() { next.ServeHTTP(w, r) }
		if k.after {
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
			}
		}
		pass()
	})
}

// first reports whether a job reaches the moment for the first time.
func (k *killer) first(job string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.seen[job]
	k.seen[job] = true
	return first
}

// work kills for each job that waits, unless its operation was killed before.
func (k *killer) work() {
	k.t.Helper()
	for {
		select {
		case h := <-k.held:
			j := k.Job(h.job)
			name := j.Component + " " + j.Operation
			if k.done[name] {
				close(h.goes)
				continue
			}
			k.done[name] = true
			if k.spared[name] {
				close(h.goes)
				continue
			}
			k.kill(k.typesWorld, j)
			if k.drop {
				close(h.dropped)
			} else {
				close(h.goes)
			}
		default:
			return
		}
	}
}

// sparedOperations returns three of four operations in a short run, and none in a whole run. The day chooses them.
func sparedOperations(t *testing.T) map[string]bool {
	spared, n := map[string]bool{}, 0
	for _, phase := range []string{"create", "change", "run", "teardown"} {
		for _, name := range operations(phase) {
			spared[name] = !slices.Contains(shortrun.OneOf(t, n, true, false, false, false), true)
			n++
		}
	}
	return spared
}

// settle waits until a program was killed for each operation of the phase. The control plane can have the last report before the
// killer sees its request.
func (k *killer) settle(phase string) {
	k.t.Helper()
	want := operations(phase)
	e2e.Until(k.t, "a program was killed in each job of the phase "+phase, func() bool {
		k.work()
		return !slices.ContainsFunc(want, func(name string) bool { return !k.done[name] })
	})
	if len(k.done) != len(want) {
		k.t.Errorf("in the phase %s a program was killed in the jobs %q, want %q", phase, slices.Sorted(maps.Keys(k.done)), want)
	}
	clear(k.done)
}

// operations returns the operations of a phase of the story, as the killer names them.
func operations(phase string) (names []string) {
	of := map[string][]string{"create": {"plan", "apply"}, "change": {"plan", "apply"}, "teardown": {"plan-destroy", "destroy"}}
	for _, c := range alltypes.Components() {
		for _, op := range of[phase] {
			names = append(names, c+" "+op)
		}
	}
	if phase == "run" {
		names = []string{"actions.report plan-run", "actions.report run"}
	}
	return names
}

// TestStoryOfAllTypesSurvivesKills kills a program at a moment of each job in the story of an install, once for each operation on
// each component. The person follows the offered commands. The story ends as it does without a kill, and nothing is left. A short
// run has one of the cases, kills in each fourth operation, and has the next case when it runs again.
func TestStoryOfAllTypesSurvivesKills(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	server := newTypesCluster(t)
	type testCase struct {
		moment
		target
	}
	var cases []testCase
	for _, v := range targets {
		for _, m := range moments {
			cases = append(cases, testCase{m, v})
		}
	}
	for _, tc := range shortrun.OneOf(t, 0, cases...) {
		t.Run(tc.target.name+" "+tc.moment.name, func(t *testing.T) {
			w := newTypesWorld(t, server)
			w.Create()
			newKiller(t, w, tc.moment, tc.target)
			did := w.Run()
			w.checkNothingLeft(t, tc.without...)
			if want := len(alltypes.Approvals()); tc.target.name != "step" && (len(did["create"]) != want || len(did["change"]) != want || len(did["run"]) > 0 || len(did["teardown"]) != want) {
				t.Errorf("the person ran %q, want as many approvals as without a kill, because no job is lost", did)
			}
			t.Logf("the person ran %v", did)
		})
	}
}
