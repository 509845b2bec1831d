package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/runner/attempt"
)

// ledger records the events in the models, such as the changes of the tools to the cloud, the
// approvals of persons, and the commits. It does not rely on answers of the control plane.
type ledger struct {
	w       *world
	seq     int                         // order of the recorded events
	cloud   map[string]map[string]thing // by install/component, then uid
	uids    int
	touched map[string]bool              // uids of resources that an unleased tool changed or removed (see unleased)
	taken   map[string]bool              // uids of resources that an unleased tool removed
	plans   map[string]planned           // by digest
	wanted  map[string]map[string]string // result of the last plan, by install/component: attribute by resource
	applies map[string][]*applied        // by install/component
	tools   map[*run]bool                // the running tools
	logs    map[string]*bytes.Buffer
	runs    map[string]string         // attempt of the last run of an action, by "deployment component"
	pushed  map[string]pushed         // artifacts in the registry, by digest
	commits map[string]time.Duration  // when a version with the commit was first published, by commit
	clocks  map[engine.Key]*clockwork // schedules of actions
	ran     map[string]string         // attempt of the last run of an action that succeeded, by "deployment component"
	whole   map[string]bool           // installs of which the last whole deployment that succeeded was no teardown
	agreed  map[string]bool           // approvals of persons, as "deployment component digest"

	jobs        map[fairlead.JobID]store.Job
	deployments map[fairlead.DeploymentID]store.Deployment
	versions    map[engine.Key]int64
	starts      map[string]string // step by attempt
	heads       map[engine.Key]store.StateHead
	made        map[string]string                       // ID of the object that a request created, by its idempotency key
	receipts    map[string]bool                         // receipts of deliveries; true: the receipt was used to delete a message
	idle        map[fairlead.JobID]time.Duration        // time from which a queued job has been waiting although a host is idle
	expires     map[fairlead.DeploymentID]time.Duration // the age at which plans expire, as a person asked for it
	ahead       map[fairlead.JobID]map[string]int       // for a job that was queued after the faults: number of other installs' jobs of a later rank that were claimed before this job, by install
}

// thing is one resource in the cloud.
type thing struct {
	attr   string
	maker  string
	known  bool   // a saved state contains it
	orphan string // accepted reason why no state contains it; "": none
}

type planned struct {
	key   string
	began int
	job   fairlead.JobID
}

type applied struct {
	run   *run
	job   fairlead.JobID
	dep   fairlead.DeploymentID
	began int
	alive bool
}

func newLedger(w *world) *ledger {
	return &ledger{w: w, cloud: map[string]map[string]thing{}, touched: map[string]bool{}, taken: map[string]bool{}, plans: map[string]planned{}, wanted: map[string]map[string]string{},
		applies: map[string][]*applied{}, runs: map[string]string{}, pushed: map[string]pushed{}, commits: map[string]time.Duration{}, clocks: map[engine.Key]*clockwork{}, ran: map[string]string{}, whole: map[string]bool{}, tools: map[*run]bool{},
		logs: map[string]*bytes.Buffer{}, agreed: map[string]bool{}, jobs: map[fairlead.JobID]store.Job{},
		deployments: map[fairlead.DeploymentID]store.Deployment{}, versions: map[engine.Key]int64{}, starts: map[string]string{},
		heads: map[engine.Key]store.StateHead{}, made: map[string]string{}, receipts: map[string]bool{},
		idle: map[fairlead.JobID]time.Duration{}, expires: map[fairlead.DeploymentID]time.Duration{}, ahead: map[fairlead.JobID]map[string]int{}}
}

func (l *ledger) next() int { l.seq++; return l.seq }

// approves records an approval before the person sends it.
func (l *ledger) approves(d, component, digest string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.agreed[d+" "+component+" "+digest] = true
}

func (l *ledger) wrote(attemptID string, b []byte) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.logs[attemptID] == nil {
		l.logs[attemptID] = &bytes.Buffer{}
	}
	l.logs[attemptID].Write(b)
}

// The tools.

func (l *ledger) toolStarts(r *run) {
	l.w.mu.Lock()
	l.tools[r] = true
	attemptID := attempt.ID(r.spec.Job, r.spec.Epoch)
	other := l.starts[attemptID]
	l.starts[attemptID] = r.step.p.name
	l.w.mu.Unlock()
	if other != "" && other != r.step.p.name {
		l.w.violate("one-step-per-lease", "%s and %s both run %s", other, r.step.p.name, attemptID)
	}
	l.w.note("%s starts for %s", r.p.name, attemptID)
}

func (l *ledger) toolEnds(r *run) {
	l.w.mu.Lock()
	delete(l.tools, r)
	killed := isClosed(r.p.dead)
	for _, a := range l.applies[r.key] {
		if a.run == r {
			a.alive = false
		}
	}
	l.w.mu.Unlock()
	l.w.note("%s has ended", r.p.name)
	if killed && r.began {
		l.abandon(r, "its tool was killed")
	}
}

func (l *ledger) planStarts(r *run) int {
	l.w.inOrder(r)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.next()
}

func (l *ledger) planEnds(r *run, began int, digest string, want map[string]string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.plans[digest] = planned{r.key, began, r.spec.Job}
	l.wanted[r.key] = want
}

// applyStarts checks the invariants before a tool changes resources: a tool made the plan, a
// person or auto-approval approved it, no other apply ran since the plan, no other tool
// changes the component, and the components that it needs are applied.
func (l *ledger) applyStarts(r *run) {
	w := l.w
	w.mu.Lock()
	w.stats.Applies++
	// Two kinds of tools can change resources after their lease has expired: a tool that
	// was paused, or whose step was paused, and a tool that ignores interrupts while its
	// step cannot reach the control plane. The cloud does not check leases. Resources that
	// such a tool creates are not in the state, and the diagnosis of the lost job reports it.
	if l.unleased(r) {
		w.stats.Unleased++
		w.mu.Unlock()
		w.note("%s begins to change %s though its lease is gone", r.p.name, r.key)
		return
	}
	d := l.deployments[r.spec.Deployment]
	plan, made := l.plans[r.spec.Plan.Digest]
	before := slices.Clone(l.applies[r.key])
	agreed := l.agreed[fmt.Sprintf("%s %s %s", d.ID, r.spec.Component, r.spec.Plan.Digest)]
	l.applies[r.key] = append(l.applies[r.key], &applied{r, r.spec.Job, d.ID, l.next(), true})
	lost := slices.ContainsFunc(before, func(a *applied) bool { return a.dep == d.ID })
	var alive, notDone []string
	for _, a := range before {
		if j := l.jobs[a.job]; a.alive && a.run.p.alive() && (j.State != job.Lost || j.Reason != fairlead.ReasonLeaseExpired) {
			alive = append(alive, fmt.Sprintf("%s of %s (%s %s)", a.run.p.name, j.ID, j.State, j.Reason))
		}
	}
	if n := d.Node(r.spec.Component); n != nil {
		for _, need := range n.Needs {
			if state := d.Node(need).State; !state.Done() {
				notDone = append(notDone, need+" is "+string(state))
			}
		}
	}
	w.mu.Unlock()
	w.note("%s begins to change %s by plan %.15s", r.p.name, r.key, r.spec.Plan.Digest)
	if !made {
		w.violate("applies-are-planned", "%s applies a plan that no tool created", r.p.name)
	}
	if !agreed && (!d.AutoApprove || lost) {
		w.violate("applies-are-approved", "%s applies %s of %s; no person approved that plan, and auto-approval does not cover it", r.p.name, r.key, d.ID)
	}
	for _, a := range before {
		if made && a.began > plan.began {
			w.violate("no-apply-without-a-plan-after-the-last", "%s changes %s with a plan that is older than the start of %s", r.p.name, r.key, a.run.p.name)
		}
	}
	if alive != nil {
		w.violate("one-apply-at-a-time", "%s starts while %v changes %s", r.p.name, alive, r.key)
	}
	w.inOrder(r)
	w.hooksCameFirst(r)
	if notDone != nil {
		w.violate("graph-order", "%s starts to change %s, but %v", r.p.name, r.key, notDone)
	}
}

// unleased reports whether a tool has lost its lease and may run on: the tool or its step was
// paused, or the tool ignores interrupts. The caller holds the world's lock.
func (l *ledger) unleased(r *run) bool {
	j := l.jobs[r.spec.Job]
	return j.State == job.Lost && j.Reason == fairlead.ReasonLeaseExpired && (r.p.slept || r.step.p.slept || r.ignoresInterrupt)
}

// touch records a change of an unleased tool. The caller holds the world's lock.
func (l *ledger) touch(r *run, uid string) {
	if l.unleased(r) {
		l.touched[uid] = true
	}
}

// wasTaken reports whether an unleased tool removed the object.
func (l *ledger) wasTaken(o object) bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.taken[o.UID]
}

func (l *ledger) create(r *run, name, attr string) object {
	defer l.w.podsFollow(r.spec.InstallName, r.spec.Component)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.uids++
	uid, kept := fmt.Sprint("u", l.uids), l.w.inCluster(r.spec.Component)
	if kept { // objects of a cluster have names, by which each tool finds them
		uid = name
	}
	if l.cloud[r.key] == nil {
		l.cloud[r.key] = map[string]thing{}
	}
	l.cloud[r.key][uid] = thing{attr: attr, maker: r.p.name, known: kept}
	return object{uid, attr}
}

func (l *ledger) update(r *run, o object, attr string) object {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	t := l.cloud[r.key][o.UID]
	t.attr = attr
	l.touch(r, o.UID)
	l.cloud[r.key][o.UID] = t
	return object{o.UID, attr}
}

func (l *ledger) remove(r *run, o object) {
	defer l.w.podsFollow(r.spec.InstallName, r.spec.Component)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.touch(r, o.UID)
	if l.unleased(r) {
		l.taken[o.UID] = true
	}
	delete(l.cloud[r.key], o.UID)
}

// look returns the attribute of a resource in the cloud. The result there reports whether the
// resource exists.
func (l *ledger) look(key string, o object) (attr string, there bool) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	t, ok := l.cloud[key][o.UID]
	return t.attr, ok
}

func (l *ledger) savedState(r *run) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, o := range r.saved.Resources {
		if t, ok := l.cloud[r.key][o.UID]; ok {
			t.known = true
			l.cloud[r.key][o.UID] = t
		}
	}
}

// abandon marks the resources that a tool created but did not save in its state, because the tool
// was killed or could not save. checkCloud accepts these resources. The failed or lost job
// reports them.
func (l *ledger) abandon(r *run, why string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for uid, t := range l.cloud[r.key] {
		if t.maker == r.p.name && !t.known {
			t.orphan = why
			l.cloud[r.key][uid] = t
		}
	}
}

// Requests to the control plane.

// holder identifies an attempt. The attempt may have a lease.
type holder struct {
	job   fairlead.JobID
	epoch int64
}

func (h holder) String() string { return attempt.ID(h.job, h.epoch) }

// leased reports whether the attempt owns its job now. The caller holds w.mu.
func (w *world) leased(h holder) bool {
	j, ok := w.jobs[h.job]
	return ok && j.State.Leased() && j.Lease.Epoch == h.epoch
}

// staleness returns the attempt whose token the request has, or the zero holder if the token is
// not of an attempt. The result stale is the reason why the control plane must refuse the request,
// or "" if there is no such reason.
func (w *world) staleness(req *http.Request) (by holder, stale string) {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, token, _ = req.BasicAuth()
	}
	c, err := identity.NewMinter(w.tokenKey).Read(token, w.serverTime(), identity.Lease, identity.Launch)
	if err != nil {
		return holder{}, ""
	}
	by = holder{fairlead.JobID(c.Subject), c.Epoch}
	w.mu.Lock()
	defer w.mu.Unlock()
	j, known := w.jobs[by.job]
	if known && j.Lease.Epoch > c.Epoch {
		return by, fmt.Sprintf("job %s has epoch %d, and the token has epoch %d", j.ID, j.Lease.Epoch, c.Epoch)
	}
	if known && j.State == job.Lost {
		return by, fmt.Sprintf("job %s is lost", j.ID)
	}
	return by, ""
}

// locks reports whether the attempt holds the lock of a state.
func (w *world) locks(by holder) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, head := range w.heads {
		if l := head.Lock; l != nil && l.Job == by.job && l.Epoch == by.epoch {
			return true
		}
	}
	return false
}

// answered checks the answer to a request.
func (w *world) answered(req *http.Request, out *answer, here site) {
	if out.status >= 400 && out.status < 500 && strings.HasSuffix(req.URL.Path, "/finish") {
		w.refused(out, here)
	}
	if out.status < 300 {
		w.acknowledged(req, out, here)
		if here.stale != "" {
			w.staleAnswered(req, here)
		}
	}
}

// staleAnswered checks a stale request that was not refused.
func (w *world) staleAnswered(req *http.Request, here site) {
	switch path := req.URL.Path; {
	case strings.Contains(path, "/state/") && req.Method != http.MethodGet && req.Method != http.MethodPut:
		return // an attempt that holds the state lock may save the state and release the lock, even after it lost its lease
	case strings.Contains(path, "/parts/") && req.Method == http.MethodPut && here.locks:
		return // parts of a state: the attempt may save it. They change nothing until a checked request names them
	case strings.HasSuffix(path, "/log"):
		return // bytes that are stored already are acknowledged; simLog.Append checks new bytes
	}
	w.violate("stale-epochs-are-refused", "%s succeeded, although %s", route(req), here.stale)
}

// fenced is called when a request makes a change that only an attempt with the current lease may
// make. It checks that the request was not stale.
func (w *world) fenced(ctx context.Context, what string) {
	if s, _ := ctx.Value(siteKey{}).(site); s.stale != "" {
		w.violate("stale-epochs-are-refused", "%s, although %s", what, s.stale)
	}
}

// The table.

// committed checks the items that a commit stored.
func (w *world) committed(ctx context.Context, table engine.Engine, token string, writes []engine.Write) {
	here, _ := ctx.Value(siteKey{}).(site)
	var scheduled []func() // after the deployments of the commit
	for _, wr := range writes {
		item, err := table.Get(context.Background(), wr.Item.Key)
		if wr.Op == engine.Delete && errors.Is(err, engine.ErrNotFound) {
			w.scheduleEnds(wr.Item.Key)
		}
		if err != nil || item.Token != token {
			continue // deleted, only checked, or not stored
		}
		w.mu.Lock()
		old := w.versions[item.Key]
		w.versions[item.Key] = item.Version
		w.mu.Unlock()
		if item.Version == old {
			continue
		}
		w.mu.Lock()
		w.stats.Commits++
		w.mu.Unlock()
		switch {
		case item.Key.Sort == "JOB":
			var j store.Job
			w.must("decode a job", json.Unmarshal(item.Body, &j))
			w.jobWritten(j, here)
		case item.Key.Sort == "DEPLOYMENT":
			var d store.Deployment
			w.must("decode a deployment", json.Unmarshal(item.Body, &d))
			w.deploymentWritten(d)
		case item.Key.Sort == "VERSION":
			var v store.Version
			w.must("decode a version", json.Unmarshal(item.Body, &v))
			w.versionWritten(v)
		case strings.HasPrefix(item.Key.Sort, "SCHEDULE#"):
			var s store.ActionSchedule
			w.must("decode a schedule", json.Unmarshal(item.Body, &s))
			scheduled = append(scheduled, func() { w.scheduleWritten(item.Key, s) })
		case strings.HasPrefix(item.Key.Sort, "STATE#"):
			var head store.StateHead
			w.must("decode a state's head", json.Unmarshal(item.Body, &head))
			w.headWritten(item.Key, head, here.by)
		}
	}
	for _, check := range scheduled {
		check()
	}
	w.agree()
}

func (w *world) must(what string, err error) {
	if err != nil {
		w.violate("simulator", "%s: %v", what, err)
	}
}

// leads has the permitted next states of each job state. It repeats the rules of package job, so
// that the simulator finds a mistake in package job.
var leads = map[job.State][]job.State{
	job.Queued:    {job.Queued, job.Claimed, job.Canceled, job.Failed},
	job.Claimed:   {job.Claimed, job.Queued, job.Running, job.Canceled, job.Failed},
	job.Running:   {job.Running, job.Queued, job.Canceling, job.Succeeded, job.Failed, job.Lost, job.Canceled},
	job.Canceling: {job.Canceling, job.Succeeded, job.Failed, job.Canceled, job.Lost},
	job.Succeeded: {job.Succeeded}, job.Failed: {job.Failed}, job.Canceled: {job.Canceled}, job.Lost: {job.Lost},
}

func (w *world) jobWritten(j store.Job, here site) {
	now := w.since()
	w.mu.Lock()
	was, known := w.jobs[j.ID]
	w.jobs[j.ID] = j
	if !known {
		w.stats.Jobs++
	}
	right := w.runnerOf(string(j.Operation), j.InstallName, j.Component)
	stopped := !known && w.deployments[j.Deployment].Stop != ""
	if w.quiet && now-w.calmed > time.Minute && !known && j.Install != "" {
		w.ahead[j.ID] = map[string]int{}
	}
	w.mu.Unlock()
	if right != "" && j.RunnerName != right {
		w.violate("jobs-go-to-their-runner", "job %s (%s %s/%s) is of runner %s, want %s", j.ID, j.Operation, j.InstallName, j.Component, j.RunnerName, right)
	}
	if j.Build != nil {
		w.buildWritten(was, j, known)
	}
	if known && was.State == job.Queued {
		w.leftQueue(j)
	}
	if stopped {
		w.violate("nothing-starts-after-a-cancel", "job %s (%s) was created for deployment %s, which is being stopped", j.ID, j.Operation, j.Deployment)
	}
	if !known {
		return
	}
	if j.State == job.Claimed && was.State == job.Queued && j.Operation.Mutates() {
		w.claimedInTime(j)
	}
	w.jobEnded(was, j)
	if here.by.job == j.ID && here.by.epoch != was.Lease.Epoch && (j.State != was.State || j.Lease != was.Lease) {
		w.violate("stale-epochs-are-refused", "%s changes its job, which is %s at epoch %d, to %s", here.by, was.State, was.Lease.Epoch, j.State)
	}
	what := fmt.Sprintf("job %s (%s %s/%s)", j.ID, j.Operation, j.InstallName, j.Component)
	if !slices.Contains(leads[was.State], j.State) {
		w.violate("job-states", "%s went from %s to %s", what, was.State, j.State)
	}
	if j.Lease.Epoch < was.Lease.Epoch || j.Lease.Epoch > was.Lease.Epoch && (j.State != job.Claimed || was.State != job.Queued) {
		w.violate("epochs-rise-with-claims", "%s went from epoch %d, %s, to epoch %d, %s", what, was.Lease.Epoch, was.State, j.Lease.Epoch, j.State)
	}
	if j.State == job.Claimed && was.State != job.Claimed && j.Lease.Epoch == was.Lease.Epoch {
		w.violate("epochs-rise-with-claims", "%s was claimed again at epoch %d", what, j.Lease.Epoch)
	}
	if j.Operation.Mutates() && was.State == job.Running && j.State == job.Queued {
		w.violate("mutations-are-not-repeated", "%s was queued again after it had run", what)
	}
	if was.State == j.State && was.Lease.Step != "" && was.Lease.Epoch == j.Lease.Epoch && was.Lease.Step != j.Lease.Step {
		w.violate("one-step-per-lease", "%s went from step %s to %s within epoch %d", what, was.Lease.Step, j.Lease.Step, j.Lease.Epoch)
	}
	if j.State.Final() && j.State != job.Succeeded && (j.Reason == "" || j.State != job.Canceled && j.Message == "") {
		w.violate("failures-have-reasons", "%s is %s with reason %q and message %q", what, j.State, j.Reason, j.Message)
	}
}

// leftQueue checks the order of claims when a job leaves the queue. From one minute after the
// last fault, no wake-up is hidden because its receiver died, and wake-ups arrive in the order
// of their ranks. Only jobs of a later rank whose wake-ups arrived shortly before are claimed
// before a job. For one other install, these are at most as many jobs as may run at once
// (parallelism).
func (w *world) leftQueue(j store.Job) {
	w.mu.Lock()
	before := w.ahead[j.ID]
	delete(w.ahead, j.ID)
	if j.State == job.Claimed && j.Install != "" {
		for id, others := range w.ahead {
			if o := w.jobs[id]; o.Runner == j.Runner && o.Install != j.Install && j.QueueRank().After(o.QueueRank()) {
				others[j.InstallName]++
			}
		}
	}
	w.mu.Unlock()
	for _, install := range slices.Sorted(maps.Keys(before)) {
		if n, limit := before[install], w.parallelism(); n > limit {
			w.violate("queue-is-fair", "job %s of %s waited for %d jobs of %s, want at most %d", j.ID, j.InstallName, n, install, limit)
		}
	}
}

func (w *world) deploymentWritten(d store.Deployment) {
	w.mu.Lock()
	was, known := w.deployments[d.ID]
	w.deployments[d.ID] = d
	w.mu.Unlock()
	busy := 0
	for _, n := range d.Nodes {
		if n.State == deployment.Planning || n.State == deployment.Applying || n.State == deployment.Reconciling {
			busy++
		}
	}
	if limit := w.parallelism(); busy > limit {
		w.violate("few-at-a-time", "%d components of deployment %s have a job, want at most %d", busy, d.ID, limit)
	}
	if known && was.State.Final() && was.State != d.State {
		w.violate("final-is-final", "deployment %s went from %s to %s", d.ID, was.State, d.State)
	}
	if d.State == deployment.Succeeded && was.State != d.State {
		w.succeeded(d)
		w.hooksRan(d)
	}
	if !known && d.Trigger == deployment.Schedule {
		w.startsBySchedule(d)
	}
	for _, n := range d.Nodes {
		if before := was.Node(n.Component); known && before != nil && before.State.Final() && before.State != n.State && was.State != deployment.Queued {
			w.violate("final-is-final", "component %s of deployment %s went from %s to %s", n.Component, d.ID, before.State, n.State)
		}
		if d.State.Final() && !n.State.Final() {
			w.violate("final-is-final", "deployment %s is %s with component %s %s", d.ID, d.State, n.Component, n.State)
		}
	}
	if d.State == deployment.Failed && !slices.ContainsFunc(d.Nodes, func(n deployment.Node) bool { return n.Reason != "" }) {
		w.violate("failures-have-reasons", "deployment %s failed, and no component has a reason", d.ID)
	}
}

// describe returns the keys and states of a commit's writes for the trace.
func describe(writes []engine.Write) string {
	var names []string
	for _, w := range writes {
		name := w.Item.Key.String()
		var body struct {
			State string `json:"state"`
			Lease struct {
				Epoch int64 `json:"epoch"`
			} `json:"lease"`
		}
		if json.Unmarshal(w.Item.Body, &body) == nil && body.State != "" {
			name += "=" + body.State
			if body.Lease.Epoch > 0 {
				name += fmt.Sprint("@", body.Lease.Epoch)
			}
		}
		names = append(names, strings.ReplaceAll(name, "00000000000000000000", "…"))
	}
	return strings.Join(names, " ")
}
