package account

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Job is what the control plane says of a job at the end.
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

// Log is the log of an attempt as a reader got it.
type Log struct {
	Epoch     int64
	Size      int64 // that the control plane names
	Ended     bool
	Truncated bool
	Text      []byte // what was read
}

// Deployment is what the control plane says of a deployment at the end.
type Deployment struct {
	ID    string
	State string
}

// Resource is a resource in a state.
type Resource struct {
	ID      string
	Tainted bool
}

// Evidence is all that is known at the end, when nothing runs any more.
type Evidence struct {
	Accepted    []string // deployments that the control plane has confirmed
	Deployments []Deployment
	Jobs        []Job
	States      map[string][]Resource // by owner; what each state lists
	Wanted      []string              // owners that must have a state in States
	Ledger      []Record
	Left        []string // locks, folders, processes, messages: what should not be there any more
}

// Finding is something that is not accounted for.
type Finding struct {
	Rule string // what was promised
	What string
}

func (f Finding) String() string { return f.Rule + ": " + f.What }

// Result is the account.
type Result struct {
	Findings []Finding
	// Announced counts differences that the control plane has announced, by
	// what they are.
	Announced map[string]int
}

// The rules, as they are named in findings.
const (
	RuleEnds      = "a deployment that was accepted ends"
	RuleState     = "a state lists what exists"
	RuleOnce      = "nothing is made twice without a plan in between"
	RuleAlone     = "one tool at a time changes a component"
	RuleLog       = "a log is whole, or says that it is not"
	RuleClean     = "nothing is left"
	RuleKnownJob  = "a tool runs for a job that exists"
	RuleNoPhantom = "what a state lists has been made"
)

// book is an account in the making.
type book struct {
	e    Evidence
	jobs map[string]Job
	Result
}

// Check makes the account.
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

// interrupted reports whether the control plane says of the attempt that it
// did not end in order: what its tool did last, nobody knows. An attempt that
// was given up for a later one is interrupted, too.
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
			b.find(RuleEnds, "%s was accepted, and is not there", id)
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

// tools looks at which tools ran, and when.
func (b *book) tools() {
	attempts := map[string]string{} // by job that changes something
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
				b.find(RuleOnce, "job %s was carried out as %s and as %s", r.Job(), other, r.Attempt)
			} else if other != "" {
				b.find(RuleOnce, "attempt %s began its %s twice", r.Attempt, r.Verb)
			}
			attempts[r.Job()] = r.Attempt
		case Overlap:
			// Whoever sleeps, or is cut off, beyond its lease still has its tool.
			// That is what "lost" says, and why a person decides what follows.
			if j := b.jobs[jobOf(r.Holder)]; j.State == "lost" && j.Reason == "lease-expired" {
				b.Announced["a tool outlived its lease while another changed the component"]++
				continue
			}
			b.find(RuleAlone, "%s of %s began for %s while %s was at work", r.Verb, r.Attempt, r.Key, r.Holder)
		}
	}
}

func jobOf(attempt string) string { job, _ := split(attempt); return job }

// plans looks for applies that no plan of their own preceded, and resources
// that one job made twice. It goes by the order in which the tools ran: what
// the control plane says of time follows a clock that may have been set.
func (b *book) plans() {
	planned := map[string]bool{}
	for _, r := range b.e.Ledger {
		if r.Kind != Tool {
			continue
		}
		id, epoch := split(r.Attempt)
		j, ok := b.jobs[id]
		if !ok {
			continue // is said elsewhere
		}
		of := j.Deployment + " " + j.Owner
		switch {
		case r.Verb == "plan" && strings.HasPrefix(j.Operation, "plan") && j.State == "succeeded" && j.Epoch == epoch:
			planned[of] = true
		case mutates(r.Verb) && !planned[of]:
			b.find(RuleOnce, "%s %s of %s in %s has no plan of its own before it", j.Operation, r.Attempt, j.Owner, j.Deployment)
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
			b.find(RuleOnce, "%s of %s was made twice by job %s", r.Address, r.Owner, r.Job())
		}
		made[of] = true
		if j, ok := b.jobs[r.Job()]; ok && j.Operation != "apply" {
			b.find(RuleOnce, "%s of %s was made by %s, a %s", r.Address, r.Owner, r.Attempt, j.Operation)
		}
	}
}

// states compares what the states list with what the ledger says exists.
func (b *book) states() {
	said := map[string]bool{}
	created, destroyed := map[string]Record{}, map[string]Record{}
	var order []string
	for _, r := range b.e.Ledger {
		switch r.Kind {
		case Create:
			if _, again := created[r.ID]; again {
				b.find(RuleOnce, "resource %s of %s was made again by %s", r.ID, r.Owner, r.Attempt)
			}
			created[r.ID] = r
			order = append(order, r.ID)
		case Said:
			said[r.ID] = true
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
				b.find(RuleNoPhantom, "%s lists %s, which nobody made", owner, res.ID)
			case !ok:
				b.Announced["a resource was begun, and is to be replaced"]++
			case c.Owner != owner:
				b.find(RuleState, "%s lists %s, which is of %s", owner, res.ID, c.Owner)
			case gone && b.interrupted(d.Attempt):
				b.Announced["a removal was interrupted, and is to be repeated"]++
			case gone:
				b.find(RuleState, "%s lists %s, which %s removed", owner, res.ID, d.Attempt)
			}
		}
	}
	for _, owner := range b.e.Wanted {
		if _, ok := b.e.States[owner]; !ok {
			b.find(RuleState, "the state of %s was not seen", owner)
		}
	}
	for _, id := range order {
		c := created[id]
		if _, gone := destroyed[id]; gone || listed[id] {
			continue
		}
		switch {
		case b.interrupted(c.Attempt):
			b.Announced["made by a tool that was interrupted before its state was saved, or replaced half made"]++
		case !said[id] && b.jobs[c.Job()].State != "succeeded":
			b.Announced["made by a tool that was interrupted before its state was saved, or replaced half made"]++
		default:
			b.find(RuleState, "%s of %s, %s, was made by %s (%s), and its state does not list it", c.Address, c.Owner, id, c.Attempt, b.told(c.Attempt))
		}
	}
}

// told is what the control plane says of an attempt.
func (b *book) told(attempt string) string {
	j := b.jobs[jobOf(attempt)]
	return strings.TrimSpace(j.State + " " + j.Reason)
}

// logs compares what readers got with what the tools wrote.
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
				b.find(RuleLog, "the log of %s-%d (%s) is not ended", j.ID, l.Epoch, j.State)
			case int64(len(l.Text)) != l.Size:
				b.find(RuleLog, "the log of %s-%d has %d bytes, and %d were read", j.ID, l.Epoch, l.Size, len(l.Text))
			}
			if l.Truncated {
				b.Announced["a log that says that it is truncated"]++
			}
		}
	}
	for _, r := range b.e.Ledger {
		if r.Kind != Said {
			continue
		}
		id, epoch := split(r.Attempt)
		j, ok := b.jobs[id]
		if !ok || j.State != "succeeded" || j.Epoch != epoch {
			continue // what a tool that was ended had said reached nobody
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
			b.find(RuleLog, "the log of %s, which says that it is whole, does not have line %d of %d of %s once and in order", r.Attempt, missing, r.Lines, r.ID)
		}
	}
}

// Line is the n-th line that the creation of a resource writes.
func Line(id string, n int) string { return fmt.Sprintf("%s-line-%04d", id, n) }

// said is what stands between the name of a resource and what its creation has
// written.
const said = " (local-exec): "

// firstMissing returns which line of a resource's is not there once, or not
// right after the one before; 0 if all are. The tool passes on in pieces what
// does not come at once, so a line of its log may be a part of one: what counts
// is all that a resource has said, in its order.
func firstMissing(text []byte, id string, lines int) int {
	all := map[string]*strings.Builder{}
	for line := range strings.Lines(string(text)) {
		address, piece, ok := strings.Cut(strings.TrimSuffix(line, "\n"), said)
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
