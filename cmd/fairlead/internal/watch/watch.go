// Package watch shows a deployment while it goes on: what each component does,
// what its jobs write, and what waits for a person. It survives restarts of the
// control plane and shows nothing twice.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

const (
	// stateWait is how long one question for news waits: the longest that the
	// server allows.
	stateWait = 20 * time.Second
	// queuedWait is how long it waits while the deployment is queued. What the
	// one before it waits for changes without news of this one.
	queuedWait = 5 * time.Second
	// defaultPatience is how long the control plane may be away.
	defaultPatience = time.Minute
	// logTail is how long the end of a finished job's log is waited for before
	// the state of its component is shown.
	logTail = 5 * time.Second
)

// ErrWaiting says that the deployment waits for somebody to approve its plans,
// and that nobody here did.
var ErrWaiting = errors.New("the deployment waits for approval")

// ErrBehind says that the deployment is queued behind one that awaits approval,
// and that there is no person here who could give it.
var ErrBehind = errors.New("the deployment waits for another one, which awaits approval")

// Options say how a deployment is followed.
type Options struct {
	Client   *client.Client
	Out      io.Writer     // progress
	Style    view.Style    // of Out
	Quiet    bool          // no progress, only what waits for approval, its own or another one's
	Verbose  bool          // the logs whole, and no section of them as one line
	Attached bool          // the deployment is older than this command: the logs of components that are through are not shown
	Patience time.Duration // how long the control plane may be away; 0: a minute
	// SlowClaim is how long a job may be queued before the person is told why,
	// in whole seconds; 0: 8 s.
	SlowClaim time.Duration
	Now       func() time.Time
	// Approve is asked whether the plans that were just shown are approved.
	// Nil means that there is nobody to ask.
	Approve func(ctx context.Context, d wire.Deployment) (bool, error)
}

// Deployment follows d until it is over, and returns what became of it. The
// error is ErrWaiting or ErrBehind when a person has to act, ctx's own when it ended, and
// otherwise that of the control plane; the deployment is then the last that was
// seen.
func Deployment(ctx context.Context, d wire.Deployment, o Options) (wire.Deployment, error) {
	names := make([]string, len(d.Components))
	for i, c := range d.Components {
		names[i] = c.Name
	}
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	o.SlowClaim = cmp.Or(o.SlowClaim, 8*time.Second)
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{
		o: o, style: o.Style, lines: newLines(o.Out, o.Style, names),
		jobs: map[string]*jobLog{}, seen: map[string]phase{}, first: true,
	}
	f.patience = &patience{most: o.Patience, now: o.Now, tell: func(text string) {
		f.lines.write("", f.style.Warn("!"), text)
	}}
	defer f.readers.Wait()
	defer cancel()
	return f.run(ctx, d)
}

type follower struct {
	o        Options
	style    view.Style
	lines    *lines
	patience *patience
	jobs     map[string]*jobLog // by id
	readers  sync.WaitGroup
	seen     map[string]phase // by component
	queued   string           // what was shown last of its wait in the queue
	first    bool             // nothing has been shown yet
}

// phase is the state in which a component was last seen. Since is zero when it
// was in that state before anybody looked.
type phase struct {
	state string
	since time.Time
}

func (f *follower) run(ctx context.Context, d wire.Deployment) (wire.Deployment, error) {
	for {
		if view.Behind(d) && f.o.Approve == nil {
			return d, ErrBehind
		}
		f.show(ctx, d)
		if d.Done() {
			return d, nil
		}
		if d.State == "awaiting-approval" {
			approved, err := f.approve(ctx, d)
			if err != nil {
				return d, err
			}
			d = approved
			continue
		}
		wait := stateWait
		if d.State == "queued" {
			wait = queuedWait
		}
		next, err := ask(ctx, f.patience, func(ctx context.Context) (wire.Deployment, error) {
			return f.o.Client.WaitDeployment(ctx, d.ID, d.Revision, wait)
		})
		if err != nil {
			return d, fmt.Errorf("follow deployment %s: %w", d.ID, err)
		}
		d = next
	}
}

// show writes what has changed since the last time.
func (f *follower) show(ctx context.Context, d wire.Deployment) {
	f.showQueued(d)
	if f.o.Quiet {
		return
	}
	for _, c := range d.Components {
		f.showComponent(ctx, c)
	}
	f.first = false
}

// showQueued writes what a queued deployment waits for, and once more when that
// is another deployment. What needs a person is shown to those, too, who want no
// progress: without them the command would not end.
func (f *follower) showQueued(d wire.Deployment) {
	if d.State != "queued" {
		return
	}
	text := cmp.Or(d.Message, "queued: another deployment of install "+d.Install+" goes first")
	key := "queued"
	switch {
	case view.Behind(d):
		what, next := view.Blocker(d)
		text, key = what+". "+next, d.Ahead.ID+" awaits approval"
	case f.o.Quiet:
		return
	case d.Ahead != nil:
		key = d.Ahead.ID
	}
	if f.queued != key {
		f.queued = key
		f.lines.write("", f.style.Warn("…"), view.Cell(text))
	}
}

// showComponent writes the component's state, if that is new, and starts to
// show the logs of its jobs: a state that begins with a job stands above the
// job's log, one that a job led to stands below.
func (f *follower) showComponent(ctx context.Context, c wire.DeploymentComponent) {
	before := f.seen[c.Name]
	wanted := !(f.first && f.o.Attached && through(c.State))
	if c.State != before.state {
		if wanted && c.State != "planning" {
			f.read(ctx, c.Name, c.PlanJob)
		}
		if wanted && through(c.State) {
			f.drain(ctx, c.PlanJob)
			f.read(ctx, c.Name, c.Job)
		}
		now := f.o.Now()
		if sign, text, show := f.describe(ctx, c, before, now); show {
			f.lines.write(c.Name, sign, text)
		}
		f.seen[c.Name] = phase{state: c.State, since: now}
		if f.first && f.o.Attached {
			f.seen[c.Name] = phase{state: c.State}
		}
	}
	if wanted {
		f.read(ctx, c.Name, c.PlanJob)
		f.read(ctx, c.Name, c.Job)
	} else {
		f.skip(c.PlanJob)
		f.skip(c.Job)
	}
}

// read starts to show the log of a job, once.
func (f *follower) read(ctx context.Context, component, job string) {
	if job == "" || f.jobs[job] != nil {
		return
	}
	l := &jobLog{done: make(chan struct{})}
	f.jobs[job] = l
	f.readers.Go(func() { f.showLog(ctx, component, job, l) })
}

// skip makes sure that the log of a job is not shown.
func (f *follower) skip(job string) {
	if job != "" && f.jobs[job] == nil {
		l := &jobLog{done: make(chan struct{})}
		close(l.done)
		f.jobs[job] = l
	}
}

func through(state string) bool {
	switch state {
	case "applied", "unchanged", "planned", "failed", "canceled", "skipped", "lost":
		return true
	}
	return false
}

// drain waits, for a while, until the whole log of a job is shown.
func (f *follower) drain(ctx context.Context, job string) {
	l := f.jobs[job]
	if l == nil {
		return
	}
	limit := time.NewTimer(logTail)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// describe says in words that a component went from one state to the next. A
// plan that nobody has to approve gets its own line first.
func (f *follower) describe(ctx context.Context, c wire.DeploymentComponent, before phase, now time.Time) (sign, text string, show bool) {
	took := ""
	if !before.since.IsZero() && (before.state == "planning" || before.state == "applying" || before.state == "reconciling") {
		took = f.style.Dim(" (" + view.Seconds(now.Sub(before.since)) + ")")
	}
	plan := ""
	if c.Changes != nil {
		plan = view.Changes(*c.Changes)
	}
	switch c.State {
	case "pending":
		return "", "", false
	case "planning":
		return f.style.Bold("▸"), "planning", true
	case "reconciling":
		return f.style.Warn("▸"), cmp.Or(view.Cell(c.Message), "looking at what an interrupted apply left"), true
	case "awaiting-approval":
		f.drain(ctx, c.PlanJob)
		return f.style.Warn("?"), join("plan", plan) + took, true
	case "approved":
		return f.style.Bold("▸"), "approved; others of this deployment are at work", true
	case "applying":
		f.drain(ctx, c.PlanJob)
		if before.state != "awaiting-approval" && before.state != "approved" && plan != "" {
			f.lines.write(c.Name, f.style.Good("✓"), "planned: "+plan+took)
		}
		return f.style.Bold("▸"), "applying", true
	}
	f.drain(ctx, c.PlanJob)
	f.drain(ctx, c.Job)
	switch c.State {
	case "applied", "unchanged":
		return f.style.Good("✓"), c.State + took, true
	case "planned":
		return f.style.Good("✓"), join("planned", plan) + took, true
	case "skipped", "canceled":
		if view.NotPlanned(c) {
			return f.style.Warn("–"), view.Cell(c.Message), true
		}
		return f.style.Warn("–"), join(c.State+took, view.Cell(c.Message)), true
	case "failed", "lost":
		return f.style.Bad("✗"), c.State + took, true
	}
	return "▸", view.Cell(c.State) + took, true // a state that a newer control plane has
}

// approve shows the plans that wait and asks for approval of exactly those.
func (f *follower) approve(ctx context.Context, d wire.Deployment) (wire.Deployment, error) {
	var in wire.ApproveRequest
	shown := 0
	for _, c := range d.Components {
		if c.State != "awaiting-approval" {
			continue
		}
		shown++
		plan := view.Plan{Component: c.Name}
		if c.Changes != nil {
			plan.Plan.Changes = *c.Changes
		}
		if c.PlanJob != "" {
			j, err := ask(ctx, f.patience, func(ctx context.Context) (wire.Job, error) { return f.o.Client.GetJob(ctx, c.PlanJob) })
			if err != nil {
				return d, fmt.Errorf("read the plan of %s: %w", c.Name, err)
			}
			if j.Plan != nil {
				plan.Plan = *j.Plan
			}
		}
		if digest := plan.Plan.Digest; digest != "" {
			if in.Plans == nil {
				in.Plans = map[string]string{}
			}
			in.Plans[c.Name] = digest
		} else {
			in.Components = append(in.Components, c.Name)
		}
		if shown == 1 {
			f.lines.write("", "", "")
			f.lines.write("", f.style.Bold("These plans wait for approval:"), "")
		}
		for _, line := range plan.Lines(f.style) {
			f.lines.write("", " ", line)
		}
	}
	if err := f.warn(ctx, d); err != nil {
		return d, err
	}
	if f.o.Approve == nil {
		return d, ErrWaiting
	}
	yes, err := f.o.Approve(ctx, d)
	if err != nil {
		return d, err
	}
	if !yes {
		return d, ErrWaiting
	}
	next, err := ask(ctx, f.patience, func(ctx context.Context) (wire.Deployment, error) {
		return f.o.Client.ApproveDeployment(ctx, d.ID, in)
	})
	if err != nil {
		return d, fmt.Errorf("approve deployment %s: %w", d.ID, err)
	}
	return next, nil
}

// warn shows what is particular to plans that wait: an apply that was lost, with
// what to compare before its new plan is approved. It is why a deployment asks
// that approves plans by itself.
func (f *follower) warn(ctx context.Context, d wire.Deployment) error {
	if d.Situations == nil { // the answer of a change has none
		id := d.ID
		var err error
		if d, err = ask(ctx, f.patience, func(ctx context.Context) (wire.Deployment, error) { return f.o.Client.GetDeployment(ctx, id) }); err != nil {
			return fmt.Errorf("read deployment %s: %w", id, err)
		}
	}
	var why view.Warning
	for _, s := range d.Situations {
		if s.Kind == "lost" {
			why = append(why, s)
		}
	}
	if len(why) == 0 {
		return nil
	}
	f.lines.write("", "", "")
	if d.AutoApprove {
		f.lines.write("", f.style.Warn("!"), "Auto-approval does not cover the plan after an apply that was lost:")
	}
	for _, line := range why.Lines(f.style) {
		f.lines.write("", " ", line)
	}
	return nil
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + ": " + b
}

// splitLines yields the lines of s; a carriage return made more than one.
func splitLines(s string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n")
}
