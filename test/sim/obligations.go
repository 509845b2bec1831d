package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Invariants that a planted mistake has asked for: what an answer, a write or a
// word of the control plane's obliges somebody to.

// acknowledged holds an answer against the table: what it says has happened, and
// a request that is repeated makes nothing new.
func (w *world) acknowledged(req *http.Request, out *answer, here site) {
	switch {
	case strings.HasSuffix(req.URL.Path, "/finish"):
		w.mu.Lock()
		j, ok := w.jobs[here.by.job]
		w.mu.Unlock()
		if ok && here.stale == "" && j.Lease.Epoch == here.by.epoch && !j.State.Final() {
			w.violate("accepted-is-stored", "the report of %s was accepted, and its job is %s", here.by, j.State)
		}
	case req.Header.Get("Idempotency-Key") != "":
		var made struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(out.body, &made) != nil || made.ID == "" {
			return
		}
		key := route(req) + " " + req.Header.Get("Idempotency-Key")
		w.mu.Lock()
		before := w.made[key]
		w.made[key] = made.ID
		w.mu.Unlock()
		if before != "" && before != made.ID {
			w.violate("requests-count-once", "%s made %s, and when it was repeated %s", route(req), before, made.ID)
		}
	}
}

// refused is told that the report of a step was refused: only one whose lease is
// gone has it coming.
func (w *world) refused(out *answer, here site) {
	w.mu.Lock()
	current := w.leased(here.by)
	unplugged := w.faults["power-lost"]+w.faults["power-lost-at-write"] > 0
	w.mu.Unlock()
	if unplugged && bytes.Contains(out.body, []byte("urn:fairlead:problem:log-")) {
		return // the log has lost its end, and has to be sent again first
	}
	if current {
		w.violate("reports-are-heard", "the report of %s, which has its lease, is refused: %d %.200s", here.by, out.status, out.body)
	}
}

// mourned returns the attempt whose death an agent reports; the zero holder if
// the request is another.
func mourned(req *http.Request, body []byte) (h holder) {
	path, ok := strings.CutSuffix(req.URL.Path, "/died")
	var died wire.DiedRequest
	if ok && json.Unmarshal(body, &died) == nil {
		h = holder{fairlead.JobID(path[strings.LastIndex(path, "/")+1:]), died.Epoch}
	}
	return h
}

// accepted is told which deployment a person was promised.
func (w *world) accepted(id string) {
	w.mu.Lock()
	_, ok := w.deployments[fairlead.DeploymentID(id)]
	w.mu.Unlock()
	if !ok {
		w.violate("accepted-is-stored", "deployment %s was accepted, and is not there", id)
	}
}

// sent looks at a wake-up that goes out: its job is there.
func (w *world) sent(body []byte) {
	wake, err := events.DecodeWake(body)
	w.must("decode a wake-up", err)
	w.mu.Lock()
	_, ok := w.jobs[wake.Job]
	w.mu.Unlock()
	if !ok {
		w.violate("wake-ups-follow-commits", "a wake-up is sent for job %s, which is not there", wake.Job)
	}
}

// delivered notes the receipt of a delivery.
func (w *world) delivered(queue, receipt string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receipts[queue+" "+receipt] = false
}

// deletes looks at the receipt with which a message is about to be deleted: a
// delivery has gone before, and it deletes once.
func (w *world) deletes(queue, receipt string) {
	w.mu.Lock()
	used, known := w.receipts[queue+" "+receipt]
	w.receipts[queue+" "+receipt] = true
	w.mu.Unlock()
	if !known || used {
		w.violate("receipts-are-used-once", "a wake-up is deleted by the receipt %s; it is one of a delivery: %v, and was used before: %v", receipt, known, used)
	}
}

// claimWithin is how long a queued job may wait for a machine that is idle, once
// faults have ended: the sweep sends a lost wake-up again after half a minute,
// and an agent that could not claim tries again within another. If wake-ups were
// lost again and again, the next is sent when the job is twice as old.
const claimWithin = 75 * time.Second

// checkQueued is called every second after the faults have ended.
func (w *world) checkQueued() {
	w.mu.Lock()
	hosts := slices.Clone(w.hosts)
	w.mu.Unlock()
	idle := map[string]bool{} // runners with a machine that could take a job
	for _, h := range hosts {
		if p := h.agentNow(); p != nil && p.paused() == nil {
			steps, _ := h.living()
			h.mu.Lock()
			if len(steps) < h.runner.capacity && !h.drains && h.cut == open {
				idle[h.runner.name] = true
			}
			h.mu.Unlock()
		}
	}
	now := w.since()
	var late []string
	w.mu.Lock()
	within := claimWithin
	if w.faults["server-clock-jumps"] > 0 {
		within += 6 * time.Minute // the moment to look again was reckoned on a clock that was two minutes ahead
	}
	for id, j := range w.jobs {
		if j.State != job.Queued || !idle[j.RunnerName] || time.Now().Before(j.NotBefore) {
			delete(w.idle, id)
			continue
		}
		since, waits := w.idle[id]
		switch {
		case !waits:
			w.idle[id] = now
		case now-since > within+(time.Since(j.QueuedAt())-(now-since)).Abs():
			late = append(late, string(id))
			w.idle[id] = now // say it once
		}
	}
	w.mu.Unlock()
	slices.Sort(late)
	for _, id := range late {
		w.violate("queued-jobs-are-claimed", "job %s has been queued for %s while a machine of its runner was idle", id, within)
	}
}

// planMissing is told that an attempt was refused the plan that it is to carry
// out.
func (w *world) planMissing(h holder) {
	w.mu.Lock()
	d := w.deployments[w.jobs[h.job].Deployment]
	wanted := w.leased(h) && !d.State.Final()
	w.mu.Unlock()
	if wanted {
		w.violate("plans-are-kept", "the plan that %s is to carry out is not there", h)
	}
}

// jobEnded holds the end of a job that changes something against its tool: a
// report says that it has ended.
func (w *world) jobEnded(was, j store.Job) {
	if was.State.Final() || !j.State.Final() || j.State == job.Lost || !j.Operation.Mutates() {
		return
	}
	w.mu.Lock()
	var alive []string
	for r := range w.tools {
		if r.spec.Job == j.ID && r.p.alive() {
			alive = append(alive, r.p.name)
		}
	}
	w.mu.Unlock()
	if alive != nil {
		w.violate("ended-jobs-have-no-tool", "job %s (%s) is %s while %s is at work", j.ID, j.Operation, j.State, strings.Join(alive, ", "))
	}
}

// headWritten looks at the head of a state: only who holds the lock writes the
// state, and a lock whose job has its lease is taken off by its holder alone.
func (w *world) headWritten(k engine.Key, head store.StateHead, by holder) {
	w.mu.Lock()
	was := w.heads[k]
	w.heads[k] = head
	var of holder
	if was.Lock != nil {
		of = holder{was.Lock.Job, was.Lock.Epoch}
	}
	current := w.leased(of)
	w.mu.Unlock()
	if head.Blob != was.Blob && (was.Lock == nil || of != by) {
		w.violate("states-have-one-writer", "%s writes the state of %s, whose lock is %s's", by, head.Component, of)
	}
	if was.Lock != nil && current && of != by && (head.Lock == nil || head.Lock.ID != was.Lock.ID) {
		w.violate("states-have-one-writer", "%s takes the lock of the state of %s off %s, which has its lease", by, head.Component, of)
	}
}

// agree looks at what is true of jobs and deployments together after each
// commit: an install is deployed once at a time, and a cancel of a deployment
// reaches its jobs.
func (w *world) agree() {
	w.mu.Lock()
	under := map[fairlead.InstallID]fairlead.DeploymentID{}
	var both []string
	for id, d := range w.deployments {
		if d.State == deployment.Queued || d.State.Final() {
			continue
		}
		if other := under[d.Install]; other != "" {
			both = append(both, fmt.Sprintf("%s and %s of %s", min(id, other), max(id, other), d.InstallName))
		}
		under[d.Install] = id
	}
	var deaf []string
	for id, j := range w.jobs {
		if d := w.deployments[j.Deployment]; d.Stop != "" && !j.State.Final() && j.State != job.Canceling {
			deaf = append(deaf, fmt.Sprintf("%s is %s", id, j.State))
		}
	}
	slices.Sort(deaf)
	w.mu.Unlock()
	if deaf != nil {
		w.violate("cancels-reach-jobs", "job %s, and its deployment is being stopped", deaf[0])
	}
	if both != nil {
		w.violate("one-deployment-at-a-time", "%s are both under way", both[0])
	}
}

// succeeded holds the success of a deployment against the states and the cloud:
// what it was to apply is there, and what it was to remove is not.
func (w *world) succeeded(d store.Deployment) {
	if d.PlanOnly {
		return
	}
	i := slices.IndexFunc(w.plan.installs, func(in installPlan) bool { return in.name == d.InstallName })
	var wrong []string
	for _, c := range w.plan.app {
		st, err := w.readState(w.plan.installs[i], c.name)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("the state of %s cannot be read: %v", c.name, err))
			continue
		}
		key, want, have := d.InstallName+"/"+c.name, c.resources, 0
		if d.Kind == deployment.Teardown {
			want = 0
		}
		for _, o := range st.Resources {
			// A tool that woke without its lease asked nobody before it took one.
			if _, there := w.ledger.look(key, o); there || w.ledger.wasTaken(o) {
				have++
			}
		}
		if have != want {
			wrong = append(wrong, fmt.Sprintf("%s has %d things and not %d", c.name, have, want))
		}
	}
	w.mu.Lock()
	unruly := w.stats.Sleepwalkers > 0 // they ask nobody
	for r := range w.tools {
		unruly = unruly || strings.HasPrefix(r.key, d.InstallName+"/") && r.p.alive()
	}
	w.mu.Unlock()
	if wrong != nil && !unruly {
		w.violate("success-means-done", "deployment %s (%s of %s) succeeded, and %s", d.ID, d.Kind, d.InstallName, strings.Join(wrong, ", "))
	}
}

// killWithin is how long a step may take to end its tool once it has heard that
// its lease is somebody else's.
const killWithin = 15 * time.Second

// refusesLease reports whether the answer tells a step that its lease is gone.
func refusesLease(req *http.Request, status int) bool {
	return strings.HasSuffix(req.URL.Path, "/heartbeat") && (status == http.StatusConflict || status == http.StatusGone)
}

// fenced is called when the step has heard that its lease is gone: it must not
// let its tool go on.
func (s *stepProcess) fenced() {
	w := s.h.w
	began := w.since()
	time.AfterFunc(killWithin, func() {
		if w.over() || !s.p.alive() || s.p.slept {
			return
		}
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		for _, t := range s.tools {
			if t.alive() && !t.slept {
				w.violate("fenced-tools-are-killed", "%s has heard at %s that its lease is gone, and %s is at work", s.p.name, began, t.name)
			}
		}
	})
}
