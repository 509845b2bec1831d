// Package watch shows a running deployment: the state of each component, the logs of
// its jobs, and what waits for a person. It survives restarts of the control plane
// and shows nothing twice.
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
	// stateWait is how long the server may hold one request for a change of the
	// deployment. It is the server's maximum.
	stateWait = 20 * time.Second
	// queuedWait replaces stateWait while the deployment is queued. It is shorter,
	// because a change of another deployment, which is ahead in the queue, does not
	// end the request early.
	queuedWait = 5 * time.Second
	// defaultPatience is how long the control plane may be unreachable.
	defaultPatience = time.Minute
	// logTail is how long the follower waits for the end of a finished job's log
	// before it shows the state of the component.
	logTail = 5 * time.Second
)

// ErrWaiting means that the deployment waits for approval of its plans, and that no
// person at this terminal approved them.
var ErrWaiting = errors.New("the deployment waits for approval")

// ErrBehind means that the deployment is queued behind another deployment, which awaits
// approval, and that no person at this terminal can approve the other deployment.
var ErrBehind = errors.New("the deployment waits for another one, which awaits approval")

// Options are the options of Deployment.
type Options struct {
	Client   *client.Client
	Out      io.Writer     // progress
	Style    view.Style    // the style of Out
	Quiet    bool          // show no progress, only waits for a person's approval
	Verbose  bool          // show the full logs and fold no section
	Attached bool          // the deployment is older than this command: omit the logs of finished components
	Patience time.Duration // how long the control plane may be unreachable; 0: a minute
	// SlowClaim is how long a job may be queued before the follower explains why the
	// job waits. It is in whole seconds; 0: 8 s.
	SlowClaim time.Duration
	Now       func() time.Time
	// Approve asks a person whether they approve the plans that were just shown.
	// Nil means that there is no person to ask.
	Approve func(ctx context.Context, d wire.Deployment) (bool, error)
}

// Deployment follows the deployment d until the deployment ends, and returns its final
// record. With an error, Deployment returns the last record that it received. The error
// is ErrWaiting or ErrBehind if a person must act, and ctx's error if ctx ends. Any
// other error is an error of the control plane.
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
	queued   string           // key of the last message about the wait in the queue
	first    bool             // nothing has been shown yet
}

// phase is the last known state of a component, and the time when the follower saw the
// change to this state. The time is zero if the component was already in this state
// when the follower started.
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

// show writes the changes since the last call.
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

// showQueued writes what a queued deployment waits for. It writes a new line if a
// different deployment is ahead in the queue, or if the deployment ahead begins to await
// approval. It shows a wait for approval even with Quiet, because the command does not
// end until a person acts.
func (f *follower) showQueued(d wire.Deployment) {
	if d.State != "queued" {
		return
	}
	text := cmp.Or(d.Message, "queued: another deployment of install "+d.Install+" goes first")
	key := text // of a deployment that waits for the customer's stack, the message names what is missing
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

// showComponent writes the component's state if the state has changed, and starts to
// show the logs of the component's jobs. It writes a state that starts a job above the
// job's log. It writes a state that results from a job below the job's log.
func (f *follower) showComponent(ctx context.Context, c wire.DeploymentComponent) {
	before := f.seen[c.Name]
	wanted := !(f.first && f.o.Attached && finished(c.State))
	if c.State != before.state {
		if wanted && c.State != "planning" {
			f.read(ctx, c.Name, c.PlanJob)
		}
		if wanted && finished(c.State) {
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

// skip marks the log of a job as shown, so that read does not show it later.
func (f *follower) skip(job string) {
	if job != "" && f.jobs[job] == nil {
		l := &jobLog{done: make(chan struct{})}
		close(l.done)
		f.jobs[job] = l
	}
}

// finished reports whether a component in this state runs no more jobs.
func finished(state string) bool {
	switch state {
	case "applied", "unchanged", "planned", "failed", "canceled", "skipped", "lost":
		return true
	}
	return false
}

// drain waits until the whole log of a job is shown, but not longer than logTail.
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

// describe returns the line for a component's new state. The result show is false if
// the state needs no line. For a plan that needs no approval, describe first writes a
// line with the plan's changes.
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
		return f.style.Warn("▸"), cmp.Or(view.Cell(c.Message), "checking the state after an interrupted apply"), true
	case "awaiting-approval":
		f.drain(ctx, c.PlanJob)
		return f.style.Warn("?"), join("plan", plan) + took, true
	case "approved":
		return f.style.Bold("▸"), "approved; waits for other components of this deployment", true
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
	return "▸", view.Cell(c.State) + took, true // a newer control plane may have other states
}

// approve shows the plans that await approval. It approves exactly these plans if the
// person agrees.
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

// warn shows each lost apply of the deployment, and what a person must compare before
// they approve the new plan. After a lost apply, a deployment with auto-approval also
// asks for approval.
func (f *follower) warn(ctx context.Context, d wire.Deployment) error {
	if d.Situations == nil { // only GetDeployment returns situations, not the response to a change
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

// splitLines yields the lines of s. One line of a log may become several lines, because
// view.Clean replaces a carriage return with a newline.
func splitLines(s string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n")
}
