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
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/plugin"
)

// This file has additional invariants. Each was added because the other invariants did not
// find a certain planted mistake.

// acknowledged compares a successful answer with the table. It checks that an accepted report
// is stored, and that a repeated request creates no second object.
func (w *world) acknowledged(req *http.Request, out *answer, here site) {
	switch {
	case strings.HasSuffix(req.URL.Path, "/finish"):
		w.mu.Lock()
		j, ok := w.jobs[here.by.job]
		w.mu.Unlock()
		if ok && here.stale == "" && j.Lease.Epoch == here.by.epoch && !j.State.Final() {
			w.violate("accepted-is-stored", "the report of %s was accepted, but its job is %s", here.by, j.State)
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
			w.violate("requests-count-once", "%s created %s, and the repeated request created %s", route(req), before, made.ID)
		}
	}
}

// refused checks a refused report of a step. The control plane may refuse the report only if
// the step has lost its lease.
func (w *world) refused(out *answer, here site) {
	w.mu.Lock()
	current := w.leased(here.by)
	unplugged := w.faults["power-lost"]+w.faults["power-lost-at-write"] > 0
	w.mu.Unlock()
	if unplugged && bytes.Contains(out.body, []byte("urn:fairlead:problem:log-")) {
		return // the power loss removed the end of the log, so the step must first send this end again
	}
	if current {
		w.violate("reports-are-accepted", "the report of %s, which has its lease, is refused: %d %.200s", here.by, out.status, out.body)
	}
}

// reportedDead returns the attempt whose death an agent reports, or the zero holder for other
// requests.
func reportedDead(req *http.Request, body []byte) (h holder) {
	path, ok := strings.CutSuffix(req.URL.Path, "/died")
	var died wire.DiedRequest
	if ok && json.Unmarshal(body, &died) == nil {
		h = holder{fairlead.JobID(path[strings.LastIndex(path, "/")+1:]), died.Epoch}
	}
	return h
}

// accepted checks that a deployment whose creation was acknowledged is stored.
func (w *world) accepted(id string) {
	w.mu.Lock()
	_, ok := w.deployments[fairlead.DeploymentID(id)]
	w.mu.Unlock()
	if !ok {
		w.violate("accepted-is-stored", "deployment %s was accepted, but is not stored", id)
	}
}

// sent checks that the job of a wake-up is stored before the wake-up is sent.
func (w *world) sent(body []byte) {
	wake, err := events.DecodeWake(body)
	w.must("decode a wake-up", err)
	w.mu.Lock()
	_, ok := w.jobs[wake.Job]
	w.mu.Unlock()
	if !ok {
		w.violate("wake-ups-follow-commits", "a wake-up is sent for job %s, which is not stored", wake.Job)
	}
}

// delivered records the receipt of a delivery.
func (w *world) delivered(queue, receipt string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receipts[queue+" "+receipt] = false
}

// deletes checks the receipt before a message is deleted: the receipt is from a delivery and is
// used only once.
func (w *world) deletes(queue, receipt string) {
	w.mu.Lock()
	used, known := w.receipts[queue+" "+receipt]
	w.receipts[queue+" "+receipt] = true
	w.mu.Unlock()
	if !known || used {
		w.violate("receipts-are-used-once", "a wake-up is deleted with the receipt %s; from a delivery: %v, used before: %v", receipt, known, used)
	}
}

// claimWithin is the longest time that a queued job waits while a host is idle, after the end
// of the faults. The sweep sends a lost wake-up again after 15 s, and an agent that could not
// claim tries again within another 30 s. After several lost wake-ups, the sweep sends the next
// wake-up when the job is twice as old.
const claimWithin = 75 * time.Second

// checkQueued checks that idle hosts claim queued jobs. The run calls it every second after the
// end of the faults.
func (w *world) checkQueued() {
	w.mu.Lock()
	hosts := slices.Clone(w.hosts)
	w.mu.Unlock()
	idle := map[string]bool{} // runners with a host that can claim a job
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
		within += 6 * time.Minute // a server could compute the time of the next check with a clock that was two minutes ahead
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
			w.idle[id] = now // so that the job is not reported again each second
		}
	}
	w.mu.Unlock()
	slices.Sort(late)
	for _, id := range late {
		w.violate("queued-jobs-are-claimed", "job %s was queued for %s while a host of its runner was idle", id, within)
	}
}

// planMissing checks an attempt that did not get the plan of its apply.
func (w *world) planMissing(h holder) {
	w.mu.Lock()
	d := w.deployments[w.jobs[h.job].Deployment]
	wanted := w.leased(h) && !d.State.Final()
	w.mu.Unlock()
	if wanted {
		w.violate("plans-are-kept", "the plan that %s must apply is not stored", h)
	}
}

// jobEnded checks that the tool of a mutating job has ended when the job ends, unless the job
// is lost.
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
		w.violate("ended-jobs-have-no-tool", "job %s (%s) is %s while %s runs", j.ID, j.Operation, j.State, strings.Join(alive, ", "))
	}
}

// headWritten checks a written state head. Only the holder of the state lock writes the state.
// While the holder has its lease, only the holder releases the lock.
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
		w.violate("states-have-one-writer", "%s writes the state of %s, but %s has the lock", by, head.Component, of)
	}
	if was.Lock != nil && current && of != by && (head.Lock == nil || head.Lock.ID != was.Lock.ID) {
		w.violate("states-have-one-writer", "%s releases the lock of the state of %s, but %s holds it and has its lease", by, head.Component, of)
	}
}

// agree compares jobs and deployments after each commit. It checks that an install has at most
// one active deployment at a time, and that a cancel of a deployment cancels its jobs.
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
	var uncanceled []string
	for id, j := range w.jobs {
		if d := w.deployments[j.Deployment]; d.Stop != "" && !j.State.Final() && j.State != job.Canceling {
			uncanceled = append(uncanceled, fmt.Sprintf("%s is %s", id, j.State))
		}
	}
	slices.Sort(uncanceled)
	w.mu.Unlock()
	if uncanceled != nil {
		w.violate("cancels-reach-jobs", "job %s, but its deployment is being stopped", uncanceled[0])
	}
	if both != nil {
		w.violate("one-deployment-at-a-time", "%s are both active", both[0])
	}
}

// succeeded compares a successful deployment with the states and the cloud. It checks that the
// resources of the app exist, and that no resource exists after a teardown.
func (w *world) succeeded(d store.Deployment) {
	if d.PlanOnly {
		return
	}
	if d.Kind == deployment.Action {
		w.mu.Lock()
		ran := w.runs[string(d.ID)+" "+appspec.ActionPrefix+d.Action]
		w.mu.Unlock()
		if ran == "" {
			w.violate("success-means-done", "deployment %s succeeded, but its action %s of %s did not run", d.ID, d.Action, d.InstallName)
		}
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
			// A tool without a lease may have removed a resource.
			if _, there := w.ledger.look(key, o); there || w.ledger.wasTaken(o) {
				have++
			}
		}
		if have != want {
			wrong = append(wrong, fmt.Sprintf("%s has %d resources, want %d", c.name, have, want))
		}
	}
	w.mu.Lock()
	excused := w.stats.Unleased > 0 // tools without a lease can change anything
	for r := range w.tools {
		excused = excused || strings.HasPrefix(r.key, d.InstallName+"/") && r.p.alive()
	}
	w.mu.Unlock()
	if wrong != nil && !excused {
		w.violate("success-means-done", "deployment %s (%s of %s) succeeded, but %s", d.ID, d.Kind, d.InstallName, strings.Join(wrong, ", "))
	}
}

// killWithin is the longest time that a step needs to end its tool after it receives the answer
// that its lease is lost.
const killWithin = 15 * time.Second

// refusesLease reports whether the answer means that the step has lost its lease.
func refusesLease(req *http.Request, status int) bool {
	return strings.HasSuffix(req.URL.Path, "/heartbeat") && (status == http.StatusConflict || status == http.StatusGone)
}

// fenced is called when the step receives the answer that its lease is lost. It checks that the
// step ends its tools within killWithin.
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
				w.violate("fenced-tools-are-killed", "%s received at %s that its lease is lost, but %s still runs", s.p.name, began, t.name)
			}
		}
	})
}

// claimedInTime checks that the plan of a claimed apply or destroy has not expired. It computes the age from the plan's
// job and from what the person asked for, and not from the deployment's record.
func (w *world) claimedInTime(j store.Job) {
	w.mu.Lock()
	plan := w.jobs[j.PlanJob]
	limit := w.expires[j.Deployment]
	w.mu.Unlock()
	if age := j.Claimed.Sub(plan.Finished); limit > 0 && age >= limit {
		w.violate("expired-plans-are-not-applied", "job %s (%s %s/%s) was claimed %s after its plan, and plans expire after %s", j.ID, j.Operation, j.InstallName, j.Component, age, limit)
	}
}

// inOrder checks a tool, when it begins to plan or to change a component, against what exists in the cloud. The components that it
// stands on, among them the sandbox, exist before its plan and its apply, and no other tool changes them. Its destroy begins when
// nothing is left that stands on it. It does not use the order that the control plane has computed.
func (w *world) inOrder(r *run) {
	w.mu.Lock()
	d := w.deployments[r.spec.Deployment]
	checked := w.leased(holder{r.spec.Job, r.spec.Epoch}) && w.stats.Unleased == 0 // tools without a lease can change anything
	var missing, standing []string
	switch r.spec.Operation {
	case "plan", "apply":
		if d.PlanOnly {
			break // its plans are made before anything exists
		}
		for _, need := range w.plan.standsOn(r.spec.Component) {
			key, changed := r.spec.InstallName+"/"+need, false
			for other := range w.tools {
				changed = changed || other.key == key && other.began && other.p.alive()
			}
			if len(w.cloud[key]) == 0 || changed {
				missing = append(missing, need)
			}
		}
	case "destroy":
		for _, c := range w.plan.app {
			if !slices.Contains(w.plan.standsOn(c.name), r.spec.Component) {
				continue
			}
			for _, t := range w.cloud[r.spec.InstallName+"/"+c.name] {
				if t.known && t.orphan == "" {
					standing = append(standing, c.name+" of "+t.maker)
				}
			}
		}
	}
	w.mu.Unlock()
	if checked && missing != nil {
		w.violate("what-is-needed-comes-first", "%s starts the %s of %s, but %v does not exist, or a tool changes it", r.p.name, r.spec.Operation, r.key, missing)
	}
	if slices.Sort(standing); checked && standing != nil {
		w.violate("what-is-needed-goes-last", "%s starts to destroy %s, but resources of %s stand on it", r.p.name, r.key, standing[0])
	}
}

// actionRuns records that an action begins to run, and checks that one request runs it at most once.
func (w *world) actionRuns(spec plugin.Spec) {
	key, by := string(spec.Deployment)+" "+spec.Component, attempt.ID(spec.Job, spec.Epoch)
	w.mu.Lock()
	before := w.runs[key]
	w.runs[key] = by
	w.mu.Unlock()
	w.note("%s of %s runs as %s", spec.Component, spec.InstallName, by)
	if before != "" {
		w.violate("actions-run-once", "%s runs %s of %s for deployment %s, which %s ran before", by, spec.Component, spec.InstallName, spec.Deployment, before)
	}
}
