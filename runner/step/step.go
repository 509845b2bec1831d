package step

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/logship"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

const (
	// startFor is how long a step asks for its spec. The claim runs out in
	// about the same time, and then another attempt is made.
	startFor = 30 * time.Second
	// tailFor bounds the shipping of the log's end, once the tool is done.
	tailFor = time.Minute
	// finishFor bounds the delivery of the report. It is long because the
	// report of a finished apply cannot be had again.
	finishFor = 15 * time.Minute
	// killAfter is what a plugin gets beyond its grace before everything that
	// it has started is killed for it.
	killAfter = 2 * time.Second
	// abandonAfter is what it gets then before it is no longer waited for.
	abandonAfter = 5 * time.Second
	// defaultGrace is the time between interrupt and kill if nobody said it.
	defaultGrace = 30 * time.Second
)

type execution struct {
	Env
	in   attempt.Input
	dir  attempt.Dir
	held *workspace.Held // nil until there is a workspace
	// of the lease, and those of them that were late
	renewals, late atomic.Int64
}

// stop says why a job was stopped from outside; it is the cause of the
// plugin's context.
type stop struct {
	outcome string
	reason  fairlead.Reason
	message string
}

func (s *stop) Error() string { return s.message }

func (a *execution) run(ctx context.Context, token string) int {
	c, err := client.New(a.in.URL, token, client.Options{HTTP: &http.Client{Transport: a.Transport}, PlainHTTP: a.in.PlainHTTP, Random: a.Random, UserAgent: "fairlead-runner/" + a.Version})
	if err != nil {
		a.Log.Error("cannot call the control plane", "err", err)
		return attempt.ExitInternal
	}
	prompt, cancel := context.WithTimeout(ctx, promptAnswer) // by a timer's clock, which nobody sets
	started, err := a.start(ctx, c)
	late := prompt.Err() != nil
	cancel()
	if e, ok := errors.AsType[*client.Error](err); ok && client.Refused(err) && e.Details[wire.DetailJobEnded] == "true" {
		a.Log.Error("there can be no job spec, and the job has ended", "job", a.in.Job, "reason", e.Code(), "err", err)
		return a.over(attempt.Tally{Outcome: "failed"})
	}
	if err != nil {
		a.Log.Error("the control plane gives no job spec for this launch token", "job", a.in.Job, "err", err)
		return exitOf(err, attempt.ExitNotStarted)
	}
	c = c.WithToken(started.LeaseToken)

	spec, err := events.Verify(ctx, started.Envelope, a.keys(), events.Expect{
		Runner: a.in.Runner, Install: a.in.Install, InstallID: fairlead.InstallID(a.in.InstallID), Job: a.in.Job, Epoch: a.in.Epoch, Operation: a.in.Operation,
		Operations: a.Plugins.Operations(a.in.Plugin),
	}, a.Now())
	if err == nil && spec.Plugin != a.in.Plugin {
		err = &events.Refusal{Reason: fairlead.ReasonSpecOperation,
			Message: fmt.Sprintf("the job spec is for the plugin %q, the claim was for %q; this runner has %s", spec.Plugin, a.in.Plugin, a.Plugins.Names())}
	}
	if err != nil {
		return a.refuse(ctx, c, err)
	}
	if late {
		switch err := a.confirm(ctx, c, time.Duration(started.RenewSeconds)*time.Second); {
		case stale(err):
			a.Log.Error("the lease was given away before the tool was started", "job", a.in.Job, "epoch", a.in.Epoch)
			return attempt.ExitStale
		case err != nil:
			return a.finish(ctx, c, wire.FinishRequest{Outcome: "failed", Reason: string(fairlead.ReasonLeaseExpired),
				Message: "the control plane did not answer until the lease ran out; nothing was started"})
		}
	}
	return a.work(ctx, c, started, spec)
}

func (a *execution) keys() []ed25519.PublicKey {
	var keys []ed25519.PublicKey
	for _, k := range a.in.Keys {
		keys = append(keys, ed25519.PublicKey(k.PublicKey))
	}
	return keys
}

// promptAnswer is how long the start's answer may take to be taken for fresh. A
// lease that the control plane's clock, set forward, has ended may be somebody
// else's long before it is over by ours; within two seconds nobody else has
// planned and begun.
const promptAnswer = 2 * time.Second

// start trades the launch token. A lost answer is asked for again under the
// same step id, which gets the same answer.
func (a *execution) start(ctx context.Context, c *client.Client) (wire.Started, error) {
	id, err := a.dir.StepID(a.NewID)
	if err != nil {
		return wire.Started{}, err
	}
	return retry.Do(ctx, a.quick(startFor), func(ctx context.Context) (wire.Started, error) {
		return c.Start(ctx, string(a.in.Job), wire.StartRequest{StepID: id, Fields: []string{events.FieldVersion}})
	})
}

// confirm renews the lease before the tool is started. The lease runs since the
// control plane had the question, and an answer that took its time may come
// when somebody else has the job.
func (a *execution) confirm(ctx context.Context, c *client.Client, renew time.Duration) error {
	if renew <= 0 {
		renew = defaultRenew
	}
	return retry.Run(ctx, a.quick(leasePeriods*renew), func(ctx context.Context) error {
		beat, cancel := context.WithTimeout(ctx, renew)
		defer cancel()
		_, err := c.HeartbeatJob(beat, string(a.in.Job), 0, 0)
		return err
	})
}

// quick is how often the control plane is asked what a person or a lease waits for,
// until it answers itself.
func (a *execution) quick(within time.Duration) retry.Policy {
	return retry.Policy{First: 200 * time.Millisecond, Longest: 3 * time.Second, Within: within, Random: a.Random,
		Passing: func(err error) bool { return !client.Refused(err) }}
}

// stale reports whether the lease belongs to somebody else. Nobody but the
// control plane can know: a tool that is killed because a proxy said 404 has not
// saved what it made.
func stale(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !client.Refused(err) || shortLog(err) {
		return false
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone:
		return true
	}
	return false
}

// refuse reports that the spec is not carried out.
func (a *execution) refuse(ctx context.Context, c *client.Client, err error) int {
	reason := fairlead.ReasonInternal
	if r, ok := errors.AsType[*events.Refusal](err); ok {
		reason = r.Reason
	}
	a.Log.Error("job spec refused", "job", a.in.Job, "reason", reason, "err", err)
	return a.finish(ctx, c, wire.FinishRequest{Outcome: "failed", Reason: string(reason), Message: err.Error()})
}

// work runs the plugin under the lease and reports.
func (a *execution) work(ctx context.Context, c *client.Client, started wire.Started, spec events.JobSpec) int {
	// What must survive a cancellation of the job hangs on own, what must end
	// with it on job.
	own, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	job, stopJob := context.WithCancelCause(own)
	defer stopJob(nil)

	secrets := redact.New(secretsOf(spec, append([]string{started.LeaseToken}, a.Secrets...)...)...)
	shipCtx, stopShipping := context.WithCancel(own)
	defer stopShipping()
	way := a.logWay(shipCtx, c, started.Log, secrets.Add)
	ship, err := logship.New(shipCtx, a.dir.Path(attempt.LogFile), way.append, logship.Options{})
	if err != nil {
		a.Log.Error("the job cannot keep its log", "err", err)
		return a.finish(ctx, c, wire.FinishRequest{Outcome: "failed", Reason: string(fairlead.ReasonInternal), DiskFull: workspace.DiskFull(err),
			Message: "the runner cannot write to its data folder: is its disk full?"})
	}
	logw := secrets.NewWriter(ship)
	output := newOutputClock(logw)

	// The lease asks again by itself: differently, and with an eye on its end.
	beats, err := client.New(a.in.URL, started.LeaseToken, client.Options{HTTP: &http.Client{Transport: a.Transport}, PlainHTTP: a.in.PlainHTTP, Retries: -1, UserAgent: "fairlead-runner/" + a.Version})
	if err != nil {
		return a.refuse(ctx, c, err)
	}
	lost := make(chan struct{}) // closed when the lease is somebody else's
	l := a.newLease(beats, started, output, stopJob)
	l.lost = func() {
		stopShipping()
		stopJob(&stop{"failed", fairlead.ReasonStale, "the lease belongs to somebody else"})
		close(lost)
	}
	if err := a.dir.SaveRenew(l.renew); err != nil {
		a.Log.Error("the agent will not know how long the lease lasts", "err", err)
	}
	leaseDone := make(chan struct{})
	go func() { defer close(leaseDone); l.keep(own) }()
	defer func() { release(); <-leaseDone }()
	go func() {
		select {
		case <-a.Signals:
			stopJob(&stop{"canceled", fairlead.ReasonInterrupted, "the runner was told to stop"})
		case <-own.Done():
		}
	}()

	grace := spec.Grace.Duration()
	if grace <= 0 {
		grace = max(a.in.Grace, defaultGrace)
	}
	marked := &marks{w: output}
	res, runErr := a.runPlugin(job, lost, grace, c, started.LeaseToken, spec, marked, secrets)
	marked.end()
	output.over()
	select {
	case <-lost:
		a.Log.Error("the lease belongs to somebody else: the tool was killed", "job", a.in.Job, "epoch", a.in.Epoch)
		a.clean()
		return attempt.ExitStale
	default:
	}

	if err := logw.Close(); err != nil {
		a.Log.Error("write log", "err", err)
	}
	report := a.report(res, runErr, secrets)
	report.Log = a.endLog(own, lost, ship, way)
	code := a.finish(own, c, report)
	a.clean()
	return code
}

// newLease makes the lease of a job, which stops the job when it is told to and when it
// runs out. What is to be done when it is somebody else's is the caller's to set.
func (a *execution) newLease(c *client.Client, started wire.Started, output *outputClock, stopJob context.CancelCauseFunc) *lease {
	return &lease{client: c, job: string(a.in.Job), renew: time.Duration(started.RenewSeconds) * time.Second,
		log: a.Log,
		renewed: func(late bool) {
			a.renewals.Add(1)
			if late {
				a.late.Add(1)
			}
		},
		noOutput: output.length,
		canceled: func(reason string) {
			stopJob(&stop{"canceled", fairlead.ReasonCanceled, cmp.Or(reason, "the job was canceled")})
		},
		expired: func() {
			stopJob(&stop{"failed", fairlead.ReasonLeaseExpired, "the control plane did not answer until the lease ran out"})
		},
	}
}

// endLog sends what is left of the log, and returns how it ended.
func (a *execution) endLog(own context.Context, lost <-chan struct{}, ship *logship.Shipper, way logWay) wire.LogEnd {
	// From here on this step can die without anybody missing a byte.
	size, truncated := ship.Written()
	if err := a.dir.SaveLogEnd(attempt.LogEnd{Size: size, Truncated: truncated}); err != nil {
		a.Log.Error("the end of the log is not kept", "err", err)
	}
	tail, cancel := context.WithTimeout(own, tailFor)
	defer cancel()
	stopTail := context.AfterFunc(contextOf(lost, own), cancel)
	end, err := ship.Close(tail)
	if err == nil {
		err = way.end(tail, end)
	}
	stopTail()
	if err != nil {
		a.Log.Error("the log did not arrive whole", "err", err)
	}
	return end
}

// contextOf returns a context that ends with ch or with parent.
func contextOf(ch <-chan struct{}, parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-ch:
		case <-parent.Done():
		}
		cancel()
	}()
	return ctx
}

func (a *execution) clean() {
	if a.held == nil {
		return
	}
	if err := a.held.Remove(); err != nil {
		a.Log.Error("the agent has to remove the workspace", "err", err)
	}
}

func secretsOf(spec events.JobSpec, tokens ...string) []json.RawMessage {
	var secrets []json.RawMessage
	for _, v := range spec.Vars {
		if v.Sensitive {
			secrets = append(secrets, v.Value)
		}
	}
	for _, v := range slices.AppendSeq(tokens, maps.Values(spec.SecretEnv)) {
		if raw, err := json.Marshal(v); err == nil { // a string always is JSON
			secrets = append(secrets, raw)
		}
	}
	return secrets
}

// environment returns the variables that the tool is given: those of the spec,
// and where the control plane is unless they say so.
func environment(spec events.JobSpec, endpoint string) map[string]string {
	env := map[string]string{"FAIRLEAD_ENDPOINT": endpoint}
	maps.Copy(env, spec.Env)
	maps.Copy(env, spec.SecretEnv)
	return env
}

// append adapts the client to logship. It goes on trying while the control
// plane does not answer, or somebody else in its place: the log waits in its file.
func (a *execution) append(c *client.Client) logship.Append {
	return func(ctx context.Context, offset int64, data []byte) (int64, error) {
		next, err := retry.Do(ctx, a.quick(0), func(ctx context.Context) (int64, error) {
			return c.AppendLog(ctx, string(a.in.Job), offset, data)
		})
		return next, logship.Answered(err)
	}
}

type outcome struct {
	res plugin.Result
	err error
}

// runPlugin runs the plugin in a goroutine and sees to it that it ends: after
// its grace, or at once when the lease is lost, whatever it has started is
// killed. When it returns, no process of the job is left.
func (a *execution) runPlugin(job context.Context, lost <-chan struct{}, grace time.Duration, c *client.Client, leaseToken string,
	spec events.JobSpec, logw *marks, secrets *redact.Set) (plugin.Result, error) {
	id := attempt.ID(a.in.Job, a.in.Epoch)
	held, err := workspace.Take(job, a.in.WorkIn(), workspace.SiteOf(a.in.InstallID, a.in.Component), id, grace+killAfter)
	if busy, ok := errors.AsType[*workspace.HeldError](err); ok {
		return plugin.Result{}, &plugin.Error{Reason: fairlead.ReasonWorkspaceHeld, Err: err,
			Message: fmt.Sprintf("%s of this component, on this runner. Nothing was started. Wait until it has ended, or end it, and try again", busy)}
	}
	if err != nil {
		return plugin.Result{}, &plugin.Error{Reason: fairlead.ReasonInternal, Err: err,
			Message: fmt.Sprintf("the runner cannot make a workspace: %v; is its disk full?", err)}
	}
	a.held = held
	role, err := a.takeRole(job, secrets)
	if err != nil {
		return plugin.Result{}, err
	}
	if role != nil {
		defer func() {
			if err := role.Close(); err != nil {
				a.Log.Warn("the job's credentials are served on", "err", err)
			}
		}()
	}
	env := plugin.Env{Environ: environOf(role), Attempt: id, Workspace: held.Path, Log: logw, Mark: logw.mark, Mask: secrets.String, Control: c, Fetch: a.fetcher(c, leaseToken, secrets.Add), Confine: a.Confine}
	run := job
	if t := spec.Timeout.Duration(); t > 0 {
		var cancel context.CancelFunc
		run, cancel = context.WithTimeoutCause(job, t, &stop{"failed", fairlead.ReasonTimeout, fmt.Sprintf("the job did not end within %s", t)})
		defer cancel()
	}
	spec.Grace = events.Seconds(grace / time.Second)
	spec.Env = environment(spec, a.in.URL)
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				a.Log.Error("plugin panicked", "plugin", spec.Plugin, "panic", p, "stack", string(debug.Stack()))
				o.err = plugin.Errorf(fairlead.ReasonInternal, "the %s plugin failed in a way it should not; the runner's own log says more", spec.Plugin)
			}
			done <- o
		}()
		o.res, o.err = a.Plugins.Run(run, spec, env)
	}()
	o := a.await(run, lost, grace, done)
	if o.err != nil && run.Err() != nil {
		o.err = errors.Join(context.Cause(run), o.err) // it failed because it was stopped, or as good as
	}
	reap, cancel := context.WithTimeout(context.WithoutCancel(job), abandonAfter)
	defer cancel()
	n, err := a.Kill(reap)
	if err != nil {
		a.Log.Error("some processes of the job do not end", "err", err)
	}
	if n > 0 {
		fmt.Fprintf(logw, "\n[fairlead: %d process(es) that the job left behind were ended]\n", n)
	}
	return o.res, o.err
}

// await returns the plugin's result. It enforces what the plugin should do by
// itself: end within its grace once it was stopped.
func (a *execution) await(run context.Context, lost <-chan struct{}, grace time.Duration, done <-chan outcome) outcome {
	select {
	case o := <-done:
		return o
	case <-run.Done():
	}
	timer := time.NewTimer(grace + killAfter)
	defer timer.Stop()
	select {
	case o := <-done:
		return o
	case <-lost:
	case <-timer.C:
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	give := time.NewTimer(abandonAfter)
	defer give.Stop()
	for {
		a.Signal()
		select {
		case o := <-done:
			return o
		case <-again.C:
		case <-give.C:
			a.Log.Error("the plugin does not return", "plugin", a.in.Plugin)
			return outcome{err: context.Cause(run)}
		}
	}
}

// report says how the job ended.
func (a *execution) report(res plugin.Result, err error, secrets *redact.Set) wire.FinishRequest {
	f := wire.FinishRequest{Outcome: "succeeded", Plan: res.Plan, Outputs: res.Outputs, ExitCode: res.ExitCode, Mutated: res.Mutated}
	if err == nil {
		return f
	}
	f.Salvaged, f.DiskFull = res.Salvaged, res.DiskFull || workspace.DiskFull(err)
	f.Outcome, f.Reason, f.Message = "failed", string(plugin.ReasonOf(err)), err.Error()
	if s, ok := errors.AsType[*stop](err); ok {
		f.Outcome, f.Reason, f.Message = s.outcome, string(s.reason), s.message
		if detail, ok := errors.AsType[*plugin.Error](err); ok {
			f.Message += "; " + detail.Message
		}
	} else if f.Reason == string(fairlead.ReasonInternal) {
		a.Log.Error("the job failed", "job", a.in.Job, "err", err)
	}
	f.Message = fairlead.Clip(secrets.String(f.Message), maxMessage)
	return f
}

// maxMessage is what a person reads of a failure, in bytes; the log has the rest.
const maxMessage = 4 << 10
