package account

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Job is the control plane's record of a job at the end.
type Job struct {
	ID         string
	Operation  string // plan, apply, plan-destroy, destroy
	State      string
	Reason     string
	Deployment string
	Owner      string // <install>/<component>
	Epoch      int64
	Logs       []Log
}

// Log is the log of an attempt, as the API returned it.
type Log struct {
	Epoch     int64
	Size      int64 // according to the control plane
	Ended     bool
	Truncated bool
	Text      []byte // the bytes that were read
}

// Deployment is the control plane's record of a deployment at the end.
type Deployment struct {
	ID    string
	State string
}

// Resource is a resource in a state.
type Resource struct {
	ID      string
	Tainted bool
}

// Evidence is all information at the end, when no program runs any more.
type Evidence struct {
	Accepted    []string // deployments whose creation the control plane confirmed
	Deployments []Deployment
	Jobs        []Job
	States      map[string][]Resource // resources of each state, by owner
	Wanted      []string              // owners whose resources must be in States
	Ledger      []Record
	Left        []string // locks, folders, processes and messages that should not remain
}

// Finding is a difference that the control plane did not announce.
type Finding struct {
	Rule string // the violated rule
	What string
}

func (f Finding) String() string { return f.Rule + ": " + f.What }

// Result is the result of Check.
type Result struct {
	Findings []Finding
	// Announced is the number of differences that the control plane announced, by
	// description.
	Announced map[string]int
}

// The rules of findings.
const (
	RuleEnds      = "a deployment that was accepted ends"
	RuleState     = "a state lists what exists"
	RuleOnce      = "no resource is created twice without a plan in between"
	RuleAlone     = "one tool at a time changes a component"
	RuleLog       = "a log is complete or marked truncated"
	RuleClean     = "nothing remains"
	RuleKnownJob  = "a tool runs for a job that exists"
	RuleNoPhantom = "a state lists only resources that a tool created"
)

// book collects the result of Check.
type book struct {
	e    Evidence
	jobs map[string]Job
	Result
}

// Check compares the evidence with the rules.
func Check(e Evidence) Result {
	b := &book{e: e, jobs: map[string]Job{}, Result: Result{Announced: map[string]int{}}}
	for _, j := range e.Jobs {
		b.jobs[j.ID] = j
	}
	b.deployments()
	b.tools()
	b.plans()
	b.states()
	b.logs()
	for _, what := range e.Left {
		b.find(RuleClean, "%s", what)
	}
	slices.SortStableFunc(b.Findings, func(x, y Finding) int { return cmp.Compare(x.Rule, y.Rule) })
	return b.Result
}

func (b *book) find(rule, format string, args ...any) {
	b.Findings = append(b.Findings, Finding{rule, fmt.Sprintf(format, args...)})
}

// interrupted reports whether, according to the control plane, the attempt did not end
// normally. The last changes of an interrupted attempt's tool are unknown. An attempt that is
// followed by another attempt is interrupted too.
func (b *book) interrupted(attempt string) bool {
	id, epoch := split(attempt)
	j, ok := b.jobs[id]
	if !ok {
		return false
	}
	if j.Epoch != epoch {
		return true
	}
	switch j.State {
	case "lost", "canceled":
		return true
	case "failed":
		switch j.Reason {
		case "tool-killed", "state-unsaved", "state-incomplete", "timeout", "start-timeout", "no-output-timeout", "poison", "interrupted", "lease-expired":
			return true
		}
	}
	return false
}

func (b *book) deployments() {
	states := map[string]string{}
	for _, d := range b.e.Deployments {
		states[d.ID] = d.State
		if !final(d.State) {
			b.find(RuleEnds, "%s is %s", d.ID, d.State)
		}
	}
	for _, id := range b.e.Accepted {
		if states[id] == "" {
			b.find(RuleEnds, "%s was accepted, but does not exist", id)
		}
	}
	for _, j := range b.e.Jobs {
		if !final(j.State) {
			b.find(RuleEnds, "job %s (%s of %s) is %s", j.ID, j.Operation, j.Owner, j.State)
		}
	}
}

func final(state string) bool {
	return state == "succeeded" || state == "failed" || state == "canceled" || state == "lost"
}

func mutates(verb string) bool { return verb == "apply" || verb == "destroy" }

// tools checks which tools ran, and in which order.
func (b *book) tools() {
	attempts := map[string]string{} // by job; only jobs that change resources
	for _, r := range b.e.Ledger {
		switch r.Kind {
		case Tool:
			if _, ok := b.jobs[r.Job()]; !ok {
				b.find(RuleKnownJob, "%s ran for %s", r.Verb, r.Attempt)
			}
			if !mutates(r.Verb) {
				continue
			}
			if other := attempts[r.Job()]; other != "" && other != r.Attempt {
				b.find(RuleOnce, "tools ran for job %s in the attempts %s and %s", r.Job(), other, r.Attempt)
			} else if other != "" {
				b.find(RuleOnce, "attempt %s started its %s twice", r.Attempt, r.Verb)
			}
			attempts[r.Job()] = r.Attempt
		case Overlap:
			// If a runner is paused or cut off until after its lease expires, its tool
			// may still run. The state "lost" means this, and a person decides.
			if j := b.jobs[jobOf(r.Holder)]; j.State == "lost" && j.Reason == "lease-expired" {
				b.Announced["a tool outlived its lease while another changed the component"]++
				continue
			}
			b.find(RuleAlone, "%s of %s started on %s while %s still ran", r.Verb, r.Attempt, r.Key, r.Holder)
		}
	}
}

func jobOf(attempt string) string { job, _ := split(attempt); return job }

// plans finds applies without their own plan before them, and resources that one job created
// twice. It uses the order of the ledger and not the control plane's times, because the run
// changes the clocks.
func (b *book) plans() {
	planned := map[string]bool{}
	for _, r := range b.e.Ledger {
		if r.Kind != Tool {
			continue
		}
		id, epoch := split(r.Attempt)
		j, ok := b.jobs[id]
		if !ok {
			continue // tools reports it
		}
		of := j.Deployment + " " + j.Owner
		switch {
		case r.Verb == "plan" && strings.HasPrefix(j.Operation, "plan") && j.State == "succeeded" && j.Epoch == epoch:
			planned[of] = true
		case mutates(r.Verb) && !planned[of]:
			b.find(RuleOnce, "no successful plan comes before %s %s of %s in %s", j.Operation, r.Attempt, j.Owner, j.Deployment)
		case mutates(r.Verb):
			planned[of] = false
		}
	}
	made := map[string]bool{}
	for _, r := range b.e.Ledger {
		if r.Kind != Create {
			continue
		}
		of := r.Job() + " " + r.Owner + " " + r.Address
		if made[of] {
			b.find(RuleOnce, "%s of %s was created twice by job %s", r.Address, r.Owner, r.Job())
		}
		made[of] = true
		if j, ok := b.jobs[r.Job()]; ok && j.Operation != "apply" {
			b.find(RuleOnce, "%s of %s was created by %s, a %s", r.Address, r.Owner, r.Attempt, j.Operation)
		}
	}
}

// states compares the states with the resources that exist according to the ledger.
func (b *book) states() {
	printed := map[string]bool{}
	created, destroyed := map[string]Record{}, map[string]Record{}
	var order []string
	for _, r := range b.e.Ledger {
		switch r.Kind {
		case Create:
			if _, again := created[r.ID]; again {
				b.find(RuleOnce, "resource %s of %s was created again by %s", r.ID, r.Owner, r.Attempt)
			}
			created[r.ID] = r
			order = append(order, r.ID)
		case Printed:
			printed[r.ID] = true
		case Destroy:
			destroyed[r.ID] = r
		}
	}
	listed := map[string]bool{}
	for owner, resources := range b.e.States {
		for _, res := range resources {
			listed[res.ID] = true
			c, ok := created[res.ID]
			switch d, gone := destroyed[res.ID]; {
			case !ok && !res.Tainted:
				b.find(RuleNoPhantom, "%s lists %s, which no tool created", owner, res.ID)
			case !ok:
				b.Announced["a creation was interrupted, and the resource will be replaced"]++
			case c.Owner != owner:
				b.find(RuleState, "%s lists %s, which belongs to %s", owner, res.ID, c.Owner)
			case gone && b.interrupted(d.Attempt):
				b.Announced["a removal was interrupted, and will be repeated"]++
			case gone:
				b.find(RuleState, "%s lists %s, which %s removed", owner, res.ID, d.Attempt)
			}
		}
	}
	for _, owner := range b.e.Wanted {
		if _, ok := b.e.States[owner]; !ok {
			b.find(RuleState, "the state of %s was not read", owner)
		}
	}
	for _, id := range order {
		c := created[id]
		if _, gone := destroyed[id]; gone || listed[id] {
			continue
		}
		switch {
		case b.interrupted(c.Attempt):
			b.Announced["a resource of a tool that was interrupted before it saved its state, or whose creation was incomplete"]++
		case !printed[id] && b.jobs[c.Job()].State != "succeeded":
			b.Announced["a resource of a tool that was interrupted before it saved its state, or whose creation was incomplete"]++
		default:
			b.find(RuleState, "%s of %s, %s, was created by %s (%s), but its state does not list it", c.Address, c.Owner, id, c.Attempt, b.outcome(c.Attempt))
		}
	}
}

// outcome returns the state and the reason of an attempt's job.
func (b *book) outcome(attempt string) string {
	j := b.jobs[jobOf(attempt)]
	return strings.TrimSpace(j.State + " " + j.Reason)
}

// logs compares the logs with the output of the tools.
func (b *book) logs() {
	type stream struct {
		job   string
		epoch int64
	}
	logs := map[stream]Log{}
	for _, j := range b.e.Jobs {
		if !final(j.State) {
			continue
		}
		for _, l := range j.Logs {
			logs[stream{j.ID, l.Epoch}] = l
			switch {
			case !l.Ended:
				b.find(RuleLog, "the log of %s-%d (%s) has not ended", j.ID, l.Epoch, j.State)
			case int64(len(l.Text)) != l.Size:
				b.find(RuleLog, "the log of %s-%d has %d bytes, but %d were read", j.ID, l.Epoch, l.Size, len(l.Text))
			}
			if l.Truncated {
				b.Announced["a log that is marked truncated"]++
			}
		}
	}
	for _, r := range b.e.Ledger {
		if r.Kind != Printed {
			continue
		}
		id, epoch := split(r.Attempt)
		j, ok := b.jobs[id]
		if !ok || j.State != "succeeded" || j.Epoch != epoch {
			continue // the log of such an attempt need not be complete
		}
		l, ok := logs[stream{id, epoch}]
		if !ok {
			b.find(RuleLog, "%s has no log", r.Attempt)
			continue
		}
		if l.Truncated {
			continue
		}
		if missing := firstMissing(l.Text, r.ID, r.Lines); missing > 0 {
			b.find(RuleLog, "the log of %s is not marked truncated, but does not have line %d of %d of %s once and in order", r.Attempt, missing, r.Lines, r.ID)
		}
	}
}

// Line returns the n-th line that the creation of a resource writes.
func Line(id string, n int) string { return fmt.Sprintf("%s-line-%04d", id, n) }

// separator is the text between the address of a resource and the output of its creation.
const separator = " (local-exec): "

// firstMissing returns the number of the first line of a resource that is not in the log
// exactly once, directly after the previous line; 0 if no line is missing. The tool prints a line
// in pieces if it does not receive the whole line at once. So firstMissing joins all output of a
// resource, in order.
func firstMissing(text []byte, id string, lines int) int {
	all := map[string]*strings.Builder{}
	for line := range strings.Lines(string(text)) {
		address, piece, ok := strings.Cut(strings.TrimSuffix(line, "\n"), separator)
		if !ok {
			continue
		}
		if all[address] == nil {
			all[address] = &strings.Builder{}
		}
		all[address].WriteString(piece)
	}
	for _, b := range all {
		rest := b.String()
		at := strings.Index(rest, Line(id, 1))
		if at < 0 {
			continue
		}
		rest = rest[at:]
		for n := 1; n <= lines; n++ {
			var ok bool
			if rest, ok = strings.CutPrefix(rest, Line(id, n)); !ok {
				return n
			}
		}
		if strings.Contains(rest, id+"-line-") {
			return lines
		}
		return 0
	}
	return 1
}
