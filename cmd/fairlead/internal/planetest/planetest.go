// Package planetest is a control plane for tests of what a real one cannot be
// made to do on request: to answer with faults, to cut connections, to hand
// out logs that attack the terminal. It speaks the real API over real HTTP, and
// a test sets what it says, step by step.
package planetest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Plane is the control plane. Its methods are safe for concurrent use.
type Plane struct {
	*httptest.Server
	Token string // that it wants; "" wants none

	mu          sync.Mutex
	changed     chan struct{} // closed at the next change
	deployments map[string]wire.Deployment
	jobs        map[string]wire.Job
	logs        map[string][]attempt // by job
	outputs     wire.Outputs
	runners     map[string]wire.Runner
	approved    []wire.ApproveRequest
	requests    map[string]int // by operation id
	faults      []Fault
}

type attempt struct {
	epoch int64
	data  []byte
	ended bool
}

// Fault answers a request in place of the plane.
type Fault func(http.ResponseWriter, *http.Request)

// New starts a plane that stops with the test.
func New(t testing.TB) *Plane {
	p := &Plane{
		changed: make(chan struct{}), deployments: map[string]wire.Deployment{}, jobs: map[string]wire.Job{},
		logs: map[string][]attempt{}, runners: map[string]wire.Runner{}, requests: map[string]int{},
		outputs: wire.Outputs{Components: map[string]map[string]wire.Output{}},
	}
	p.Server = httptest.NewServer(p.handler())
	t.Cleanup(p.Server.Close)
	return p
}

func (p *Plane) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// SetDeployment makes d what the plane says of the deployment, as a new revision.
func (p *Plane) SetDeployment(d wire.Deployment) {
	p.change(func() {
		d.Revision = p.deployments[d.ID].Revision + 1
		p.deployments[d.ID] = d
	})
}

// Deployment returns what the plane says of a deployment.
func (p *Plane) Deployment(id string) wire.Deployment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deployments[id]
}

// SetJob makes j what the plane says of the job.
func (p *Plane) SetJob(j wire.Job) { p.change(func() { p.jobs[j.ID] = j }) }

// SetRunner makes r what the plane says of the runner.
func (p *Plane) SetRunner(r wire.Runner) { p.change(func() { p.runners[r.Name] = r }) }

// SetOutputs makes o the outputs of every install.
func (p *Plane) SetOutputs(o wire.Outputs) { p.change(func() { p.outputs = o }) }

// Log appends to the log of a job's attempt.
func (p *Plane) Log(job string, epoch int64, text string) {
	p.change(func() {
		as := p.logs[job]
		if len(as) == 0 || as[len(as)-1].epoch != epoch {
			as = append(as, attempt{epoch: epoch})
		}
		last := &as[len(as)-1]
		last.data = append(last.data, text...)
		p.logs[job] = as
	})
}

// EndLog says that a job is over and its log complete.
func (p *Plane) EndLog(job string) {
	p.change(func() {
		if as := p.logs[job]; len(as) > 0 {
			as[len(as)-1].ended = true
			return
		}
		p.logs[job] = []attempt{{epoch: 1, ended: true}}
	})
}

// Fail answers the next requests, whatever they are, with the faults.
func (p *Plane) Fail(faults ...Fault) {
	p.change(func() { p.faults = append(p.faults, faults...) })
}

// Unavailable answers 503, as a gateway does while what is behind it restarts.
func Unavailable(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "try later", http.StatusServiceUnavailable)
}

// Internal answers 500 with a problem.
func Internal(w http.ResponseWriter, _ *http.Request) {
	refuse(w, wire.Problem{Type: wire.ProblemType + "internal", Title: "Internal error", Status: 500, Detail: "something broke", RequestID: "req_1"})
}

// Cut closes the connection in the middle of an answer.
func Cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusOK)
	w.Write([]byte(`{"id":`))
	panic(http.ErrAbortHandler)
}

// Approved returns the approvals so far.
func (p *Plane) Approved() []wire.ApproveRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]wire.ApproveRequest(nil), p.approved...)
}

// Await returns when the operation has been asked for n times.
func (p *Plane) Await(t testing.TB, route wire.Route, n int) {
	t.Helper()
	p.await(t, route.ID+" being asked for", func() bool { return p.requests[route.ID] >= n })
}

// AwaitApproval returns when something has been approved.
func (p *Plane) AwaitApproval(t testing.TB) {
	t.Helper()
	p.await(t, "an approval", func() bool { return len(p.approved) > 0 })
}

func (p *Plane) await(t testing.TB, what string, come func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		ok, changed := come(), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (p *Plane) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(r wire.Route, h http.HandlerFunc) {
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, req *http.Request) {
			var fault Fault
			p.change(func() {
				p.requests[r.ID]++
				if len(p.faults) > 0 {
					fault, p.faults = p.faults[0], p.faults[1:]
				}
			})
			switch {
			case fault != nil:
				fault(w, req)
			case p.Token != "" && r.ID != wire.GetMeta.ID && req.Header.Get("Authorization") != "Bearer "+p.Token:
				refuse(w, wire.Problem{Type: wire.ProblemType + "unauthenticated", Title: "Unauthenticated", Status: 401, Detail: "nobody knows this token"})
			default:
				h(w, req)
			}
		})
	}
	handle(wire.GetMeta, func(w http.ResponseWriter, r *http.Request) { answer(w, wire.Meta{Version: "1.2.3", Registry: r.Host}) })
	handle(wire.ListApps, func(w http.ResponseWriter, _ *http.Request) { answer(w, wire.Page[wire.App]{Items: []wire.App{}}) })
	handle(wire.ListDeployments, p.listDeployments)
	handle(wire.GetDeployment, p.getDeployment)
	handle(wire.ApproveDeployment, p.approve)
	handle(wire.CreateDeployment, func(w http.ResponseWriter, r *http.Request) { p.first(w, r) })
	handle(wire.GetJob, func(w http.ResponseWriter, r *http.Request) { find(w, p, p.jobs, "job", r.PathValue("job")) })
	handle(wire.GetRunner, func(w http.ResponseWriter, r *http.Request) { find(w, p, p.runners, "runner", r.PathValue("runner")) })
	handle(wire.ReadJobLog, p.readLog)
	handle(wire.GetOutputs, func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer(w, p.outputs)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	return mux
}

func find[T any](w http.ResponseWriter, p *Plane, in map[string]T, noun, name string) {
	p.mu.Lock()
	v, ok := in[name]
	p.mu.Unlock()
	if !ok {
		missing(w, noun, name)
		return
	}
	answer(w, v)
}

// first answers the creation of a deployment with the one that the test set.
func (p *Plane) first(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.deployments {
		if d.Install == r.PathValue("install") {
			answer(w, d)
			return
		}
	}
	missing(w, "install", r.PathValue("install"))
}

// listDeployments gives pages of one, so that every reader has to turn them.
func (p *Plane) listDeployments(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	page := wire.Page[wire.Deployment]{Items: []wire.Deployment{}}
	for i := 1; ; i++ {
		d, ok := p.deployments["dep_"+strconv.Itoa(i)]
		if !ok {
			answer(w, page)
			return
		}
		if cursor := r.FormValue("cursor"); cursor != "" && d.ID <= cursor {
			continue
		}
		if len(page.Items) == 1 {
			page.Next = page.Items[0].ID
			answer(w, page)
			return
		}
		page.Items = append(page.Items, d)
	}
}

// wait calls ready until it says yes or the request's wait is over.
func (p *Plane) wait(r *http.Request, ready func() bool) {
	seconds, _ := strconv.Atoi(r.FormValue("wait_seconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	for {
		p.mu.Lock()
		ok, changed := ready(), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Plane) getDeployment(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("deployment")
	after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
	p.wait(r, func() bool { d, ok := p.deployments[id]; return !ok || d.Revision > after })
	find(w, p, p.deployments, "deployment", id)
}

func (p *Plane) approve(w http.ResponseWriter, r *http.Request) {
	var in wire.ApproveRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, wire.Problem{Title: "Invalid", Status: 400, Detail: err.Error()})
		return
	}
	p.change(func() {
		p.approved = append(p.approved, in)
		d := p.deployments[r.PathValue("deployment")]
		d.State = "running"
		d.Revision++
		p.deployments[d.ID] = d
	})
	find(w, p, p.deployments, "deployment", r.PathValue("deployment"))
}

func (p *Plane) readLog(w http.ResponseWriter, r *http.Request) {
	epoch, _ := strconv.ParseInt(r.FormValue("epoch"), 10, 64)
	offset, _ := strconv.ParseInt(r.FormValue("offset"), 10, 64)
	var chunk wire.LogChunk
	p.wait(r, func() bool {
		as := p.logs[r.PathValue("job")]
		chunk = wire.LogChunk{Epoch: epoch, Offset: offset, Next: offset}
		for i, a := range as {
			if a.epoch < epoch {
				continue
			}
			from := int64(0)
			if a.epoch == epoch {
				from = offset
			}
			last := i == len(as)-1
			if from == int64(len(a.data)) && !last {
				continue
			}
			chunk = wire.LogChunk{Epoch: a.epoch, Offset: from, Data: a.data[from:], Next: int64(len(a.data)), Done: a.ended && last}
			return len(chunk.Data) > 0 || chunk.Done
		}
		return false
	})
	answer(w, chunk)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, p wire.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

func missing(w http.ResponseWriter, noun, name string) {
	refuse(w, wire.Problem{Type: wire.ProblemType + noun + "-not-found", Title: "Not found", Status: 404,
		Detail: "there is no " + noun + " \"" + name + "\"", Hint: "`fairlead " + noun + " list` shows what exists."})
}
