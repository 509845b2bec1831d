package step

import (
	"cmp"
	"context"
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
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/logship"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

const (
	// startRetryTime is how long a step repeats the request for its spec. At about the end of this time the claim expires,
	// and another attempt starts.
	startRetryTime = 30 * time.Second
	// logTailTimeout bounds sending the end of the log after the tool has ended.
	logTailTimeout = time.Minute
	// reportTimeout bounds the delivery of the report. It is long because no other process can recreate a lost report of a
	// finished apply.
	reportTimeout = 15 * time.Minute
	// killAfter is the time between the end of a plugin's grace period and the kill of all processes that the plugin
	// started.
	killAfter = 2 * time.Second
	// abandonAfter is how long the step waits for the plugin after that kill.
	abandonAfter = 5 * time.Second
	// defaultGrace is the time between interrupt and kill if neither the spec nor the agent sets one.
	defaultGrace = 30 * time.Second
)

// execution is one run of a step.
type execution struct {
	Env
	in             attempt.Input
	dir            attempt.Dir
	workspace      *workspace.Held       // nil until the step has a workspace
	keys           installkey.Ring       // of the install; zero until the step has taken them, and if the runner has no seed
	moved          map[string]wire.Moved // secrets of the install that the report has, so that the control plane can no longer open them
	renewals, late atomic.Int64          // renewals: number of renewals of the lease; late: number of late renewals
}

// stop is the reason why the step stopped a job before the plugin had ended. It is the cause of the plugin's context.
type stop struct {
	outcome string
	reason  fairlead.Reason
	message string
}

func (s *stop) Error() string { return s.message }

// client returns a client of the control plane. A request is repeated as often as the parameter retries allows.
func (a *execution) client(token string, retries int) (*client.Client, error) {
	return client.New(a.in.URL, token, client.Options{HTTP: &http.Client{Transport: a.Transport}, PlainHTTP: a.in.PlainHTTP, Retries: retries, Random: a.Random, UserAgent: "fairlead-runner/" + a.Version})
}

func (a *execution) run(ctx context.Context, token string) int {
	c, err := a.client(token, 0)
	if err != nil {
		a.Log.Error("cannot call the control plane", "err", err)
		return attempt.ExitInternal
	}
	prompt, cancel := context.WithTimeout(ctx, promptAnswer) // a timer's clock is monotonic
	started, err := a.start(ctx, c, token)
	late := prompt.Err() != nil
	cancel()
	if e, ok := errors.AsType[*client.Error](err); ok && client.Refused(err) && e.Details[wire.DetailJobEnded] == "true" {
		a.Log.Error("the control plane returns no job spec and has ended the job", "job", a.in.Job, "reason", e.Code(), "err", err)
		return a.markReported(attempt.Tally{Outcome: "failed"})
	}
	if err != nil {
		a.Log.Error("the control plane returns no job spec for this launch token", "job", a.in.Job, "err", err)
		return exitOf(err, attempt.ExitNotStarted)
	}
	c = c.WithToken(started.LeaseToken).WithMaxBody(started.MaxBody)

	spec, err := a.verify(ctx, started)
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
			a.Log.Error("another attempt owns the lease: the tool was not started", "job", a.in.Job, "epoch", a.in.Epoch)
			return attempt.ExitStale
		case err != nil:
			return a.finish(ctx, c, wire.FinishRequest{Outcome: "failed", Reason: string(fairlead.ReasonLeaseExpired),
				Message: "the control plane did not answer before the lease ran out; nothing was started"})
		}
	}
	return a.work(ctx, c, started, spec)
}

// promptAnswer is the longest time for the answer to the start request. After a later answer, the step renews the lease before
// it starts the tool. If the control plane's clock is set forward, another attempt may own the lease long before the lease
// runs out here. But no other attempt can plan and start to change resources within two seconds.
const promptAnswer = 2 * time.Second

// start exchanges the launch token for the spec. If the answer is lost, it repeats the request with the same step ID and
// gets the same answer. The step ID is in no file: with it and the launch token, a tool could get the lease of its job.
func (a *execution) start(ctx context.Context, c *client.Client, token string) (wire.Started, error) {
	in := wire.StartRequest{StepID: a.NewID(), Fields: []string{events.FieldVersion, events.FieldProvenance, events.FieldApprovals, events.FieldAudit, events.FieldMove, events.FieldKeySets}}
	return retry.Do(ctx, a.quick(startRetryTime), func(ctx context.Context) (wire.Started, error) {
		// Each try has a new proof, because STS refuses an old one. The client's own repetitions take seconds.
		var err error
		if in.AWSIAM, err = a.proof(ctx, token, wire.StartStatement(string(a.in.Job), in.StepID)); err != nil {
			return wire.Started{}, err
		}
		return c.Start(ctx, string(a.in.Job), in)
	})
}

// proof proves that this step has the role that its token is bound to. It returns nil if the token is bound to no role.
func (a *execution) proof(ctx context.Context, token string, statement []byte) (*wire.AWSIAMProof, error) {
	if bound.Role(token) == "" {
		return nil, nil
	}
	audience, err := awsiam.Audience(a.in.URL)
	if err != nil {
		return nil, err
	}
	region := ""
	if a.in.Role != nil {
		region = a.in.Role.Region
	}
	if a.ProveRole == nil {
		return nil, errors.New("the launch token is bound to an AWS role, and this program of the runner has no client of AWS")
	}
	p, err := a.ProveRole(ctx, region, awsiam.Challenge{Nonce: bound.Nonce(token), Audience: audience, Statement: statement})
	if err != nil {
		return nil, err
	}
	return &wire.AWSIAMProof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}, nil
}

// confirm renews the lease before the tool starts. The lease counts from the control plane's receipt of the start
// request, so after a slow answer another attempt may own the job.
func (a *execution) confirm(ctx context.Context, c *client.Client, renew time.Duration) error {
	if renew <= 0 {
		renew = defaultRenewal
	}
	return retry.Run(ctx, a.quick(leasePeriods*renew), func(ctx context.Context) error {
		request, cancel := context.WithTimeout(ctx, renew)
		defer cancel()
		_, err := c.HeartbeatJob(request, string(a.in.Job), 0, 0)
		return err
	})
}

// quick is the retry policy for requests that a person or a lease waits for. It repeats a request until the control plane
// itself answers the request, or until the duration within is over. If within is 0, it repeats the request until ctx ends.
func (a *execution) quick(within time.Duration) retry.Policy {
	return retry.Policy{First: 200 * time.Millisecond, Longest: 3 * time.Second, Within: within, Random: a.Random,
		Passing: func(err error) bool { return !client.Refused(err) }}
}

// stale reports whether the control plane answers that another attempt owns the lease. It ignores the answers of proxies,
// because a tool that is killed after a proxy's answer 404 cannot save its state.
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

// refuse reports to the control plane that the step does not run the spec. It returns the exit code.
func (a *execution) refuse(ctx context.Context, c *client.Client, err error) int {
	reason := fairlead.ReasonInternal
	if r, ok := errors.AsType[*events.Refusal](err); ok {
		reason = r.Reason
	}
	a.Log.Error("job spec refused", "job", a.in.Job, "reason", reason, "err", err)
	return a.finish(ctx, c, wire.FinishRequest{Outcome: "failed", Reason: string(reason), Message: err.Error()})
}

// work runs the plugin under the lease and reports the outcome.
//
// long: it is one sequence, whose steps end in the reverse order.
func (a *execution) work(ctx context.Context, c *client.Client, started wire.Started, spec events.JobSpec) int {
	// detached is the context of everything that must survive the job's cancellation. job is derived from it.
	detached, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	job, stopJob := context.WithCancelCause(detached)
	defer stopJob(nil)

	guard, err := a.openGuard(ctx, &spec)
	if err != nil {
		a.Log.Error("the customer's policy does not let the job start", "job", a.in.Job, "err", err)
		return a.finish(ctx, c, a.report(plugin.Result{}, err, redact.New()))
	}
	a.keepHead(ctx, &spec, guard)
	secrets := redact.New(secretsOf(spec, append([]string{started.LeaseToken, started.StateToken}, a.Secrets...)...)...)
	shipCtx, stopShipping := context.WithCancel(detached)
	defer stopShipping()
	credentials := a.newLogCredentials(c, started.Log, secrets.Add)
	transport := a.newLogTransport(shipCtx, c, started.Log, credentials)
	ship, err := logship.New(shipCtx, a.dir.Path(attempt.LogFile), transport.append, logship.Options{
		Every: time.Duration(started.LogEveryMS) * time.Millisecond, Bulk: time.Duration(started.LogBulkMS) * time.Millisecond})
	if err != nil {
		a.Log.Error("cannot create the file of the job's log", "err", err)
		return a.finish(ctx, c, wire.FinishRequest{Outcome: "failed", Reason: string(fairlead.ReasonInternal), DiskFull: workspace.DiskFull(err),
			Message: "the runner cannot write to its data folder; its disk may be full"})
	}
	logw := secrets.NewWriter(guard.log(ship))
	output := newOutputClock(logw)

	// The client of the lease does not retry. lease.keep retries, depending on the remaining time of the lease.
	leaseClient, err := client.New(a.in.URL, started.LeaseToken, client.Options{HTTP: &http.Client{Transport: a.Transport}, PlainHTTP: a.in.PlainHTTP, Retries: -1, UserAgent: "fairlead-runner/" + a.Version})
	if err != nil {
		return a.refuse(ctx, c, err)
	}
	lost := make(chan struct{}) // closed when another attempt owns the lease
	l := a.newLease(leaseClient, started, output, stopJob)
	l.logTerms = func(every, bulk time.Duration, cut bool) {
		if ship.SetEvery(every, bulk); cut {
			ship.Stop()
		}
	}
	l.lost = func() {
		stopShipping()
		stopJob(&stop{"failed", fairlead.ReasonStale, "another attempt owns the lease"})
		close(lost)
	}
	if err := a.dir.SaveRenew(l.renew); err != nil {
		a.Log.Error("cannot save the renewal period: the agent will not know how long the lease lasts", "err", err)
	}
	l.hint = a.watchMarker(detached, started, credentials)
	leaseDone := make(chan struct{})
	go func() { defer close(leaseDone); l.keep(detached) }()
	defer func() { release(); <-leaseDone }()
	go func() {
		select {
		case <-a.Signals:
			stopJob(&stop{"canceled", fairlead.ReasonInterrupted, "the runner was asked to stop"})
		case <-detached.Done():
		}
	}()

	grace := spec.Grace.Duration()
	if grace <= 0 {
		grace = max(a.in.Grace, defaultGrace)
	}
	marked := &marks{w: output}
	res, runErr := a.runAttested(job, lost, grace, c, started, spec, marked, secrets, guard)
	marked.end()
	output.stop()
	select {
	case <-lost:
		a.Log.Error("another attempt owns the lease: the tool was killed", "job", a.in.Job, "epoch", a.in.Epoch)
		a.clean()
		return attempt.ExitStale
	default:
	}

	if err := logw.Close(); err != nil {
		a.Log.Error("cannot write the job's log", "err", err)
	}
	report := a.report(res, runErr, secrets)
	a.encrypt(&report)
	report = guard.reported(report)
	report.Log, report.LogTail = a.endLog(detached, lost, ship, transport, tailOf(started, report))
	code := a.finish(detached, c, report)
	a.clean()
	return code
}

// newLease returns the lease of a job. It stops the job on a cancellation and when the lease runs out. The caller sets
// lost.
func (a *execution) newLease(c *client.Client, started wire.Started, output *outputClock, stopJob context.CancelCauseFunc) *lease {
	return &lease{client: c, job: string(a.in.Job), renew: time.Duration(started.RenewSeconds) * time.Second,
		log: a.Log,
		renewed: func(late bool) {
			a.renewals.Add(1)
			if late {
				a.late.Add(1)
			}
		},
		noOutput: output.sinceLast,
		canceled: func(reason string) {
			stopJob(&stop{"canceled", fairlead.ReasonCanceled, cmp.Or(reason, "the job was canceled")})
		},
		expired: func() {
			stopJob(&stop{"failed", fairlead.ReasonLeaseExpired, "the control plane did not answer before the lease ran out"})
		},
	}
}

// roomyReport is the largest outputs, in bytes, of a report that also brings the end of the log. The log must never be the reason why
// a front end refuses a report with its outputs.
const roomyReport = 1 << 20

// tailOf returns how many bytes of the log the report may bring.
func tailOf(started wire.Started, report wire.FinishRequest) int64 {
	if sizeOf(report.Outputs) > roomyReport {
		return 0
	}
	return int64(min(started.LogTailBytes, wire.MaxLogTail))
}

// endLog sends the rest of the log and returns its end. It stops early when the lease is lost. It does not send the last most bytes if
// the report may bring them, and returns them.
func (a *execution) endLog(detached context.Context, lost <-chan struct{}, ship *logship.Shipper, transport logTransport, most int64) (wire.LogEnd, *wire.LogTail) {
	// If this step dies after the end is saved, the agent uses the saved end to complete the log.
	size, truncated := ship.Written()
	if err := a.dir.SaveLogEnd(attempt.LogEnd{Size: size, Truncated: truncated}); err != nil {
		a.Log.Error("cannot save the end of the log: the agent cannot complete the log if this step dies", "err", err)
	}
	tail, cancel := context.WithTimeout(detached, logTailTimeout)
	defer cancel()
	stopTail := context.AfterFunc(contextUntil(lost, detached), cancel)
	if !transport.withReport() {
		most = 0
	}
	end, rest, err := ship.Close(tail, most)
	if err == nil {
		err = transport.end(tail, end)
	}
	stopTail()
	if err != nil {
		a.Log.Error("the control plane does not have the whole log", "err", err)
	}
	return end, rest
}

// contextUntil returns a context that ends when ch is closed or parent ends.
func contextUntil(ch <-chan struct{}, parent context.Context) context.Context {
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

// clean removes the workspace.
func (a *execution) clean() {
	if a.workspace == nil {
		return
	}
	if err := a.workspace.Remove(); err != nil {
		a.Log.Error("cannot remove the workspace; the agent will remove it", "err", err)
	}
}

// secretsOf returns, as JSON, the values that the job's log must not show: the spec's secrets and the tokens.
func secretsOf(spec events.JobSpec, tokens ...string) []json.RawMessage {
	secrets := secretVars(spec)
	for _, v := range slices.AppendSeq(tokens, maps.Values(spec.SecretEnv)) {
		if raw, err := json.Marshal(v); err == nil { // a string is always valid JSON
			secrets = append(secrets, raw)
		}
	}
	return secrets
}

// secretVars returns the sensitive variables of the spec that have a value. All have one after resolve.
func secretVars(spec events.JobSpec) (secrets []json.RawMessage) {
	for _, v := range spec.Inputs() {
		if v.Sensitive && v.Value != nil {
			secrets = append(secrets, v.Value)
		}
	}
	return secrets
}

// environment returns the tool's variables. They are the variables of the spec. If the spec does not set FAIRLEAD_ENDPOINT,
// the result also has FAIRLEAD_ENDPOINT with the control plane's URL.
func environment(spec events.JobSpec, endpoint string) map[string]string {
	env := map[string]string{"FAIRLEAD_ENDPOINT": endpoint}
	for name, v := range spec.AppEnv {
		var text string
		if json.Unmarshal(v.Value, &text) == nil { // the control plane sends texts only
			env[name] = text
		}
	}
	maps.Copy(env, spec.Env)
	maps.Copy(env, spec.SecretEnv)
	return env
}

// append returns the function with which logship appends to the log. The function retries while the control plane does not
// answer, or a proxy answers in place of the control plane. During this time the log stays in its file.
func (a *execution) append(c *client.Client) logship.Append {
	return func(ctx context.Context, offset int64, data []byte) (int64, error) {
		next, err := retry.Do(ctx, a.quick(0), func(ctx context.Context) (int64, error) {
			return c.AppendLog(ctx, string(a.in.Job), offset, data)
		})
		return next, logship.Answered(err)
	}
}

// outcome is what a plugin returned.
type outcome struct {
	res plugin.Result
	err error
}

// runPlugin runs the plugin in a goroutine and ensures that it ends. It kills everything the plugin started after the
// grace period, or at once when the lease is lost. When it returns, no process of the job is left.
//
// long: it is one sequence, whose steps end in the reverse order.
func (a *execution) runPlugin(job context.Context, lost <-chan struct{}, grace time.Duration, c *client.Client, started wire.Started,
	spec events.JobSpec, logw *marks, secrets *redact.Set, guard *guard) (plugin.Result, error) {
	id := attempt.ID(a.in.Job, a.in.Epoch)
	held, err := workspace.Take(job, a.in.WorkIn(), workspace.SiteOf(a.in.InstallID, a.in.Component), id, grace+killAfter)
	if busy, ok := errors.AsType[*workspace.HeldError](err); ok {
		return plugin.Result{}, &plugin.Error{Reason: fairlead.ReasonWorkspaceHeld, Err: err,
			Message: fmt.Sprintf("%s of this component, on this runner. Nothing was started. Wait until it has ended, or end it, then retry", busy)}
	}
	if err != nil {
		return plugin.Result{}, &plugin.Error{Reason: fairlead.ReasonInternal, Err: err,
			Message: fmt.Sprintf("the runner cannot create a workspace: %v; its disk may be full", err)}
	}
	a.workspace = held
	role, err := a.takeRole(job, spec, guard, secrets)
	if err != nil {
		return plugin.Result{}, err
	}
	if role != nil {
		defer func() {
			if err := role.Close(); err != nil {
				a.Log.Warn("the server of the job's credentials did not stop", "err", err)
			}
		}()
	}
	if a.keys, err = a.takeKeys(job, spec, secrets.Add); err != nil {
		return plugin.Result{}, err
	}
	if err := a.resolve(job, c, started.LeaseToken, &spec, secrets); err != nil {
		return plugin.Result{}, err
	}
	given, err := a.giveSecrets(job, &spec, secrets)
	if err != nil {
		return plugin.Result{}, err
	}
	maps.Copy(given, environOf(role)) // no secret replaces the role's variables
	env := plugin.Env{Environ: given, Attempt: id, Workspace: held.Path, Log: logw, Mark: logw.mark, Mask: secrets.String, Control: c, Keys: a.keys, StateToken: cmp.Or(started.StateToken, started.LeaseToken), Fetch: a.fetcher(c, started.LeaseToken, secrets.Add), Confine: a.Confine}
	if guard != nil {
		env.Policy, env.Fetch = guard, guard.guarded(env.Fetch)
	}
	env.Narrow = a.narrower(spec, role, guard, logw)
	if spec.Push != "" {
		env.Push = a.pusher(c, started.LeaseToken, secrets.Add)
		env.PushImage = a.imagePusher(c, started.LeaseToken, secrets.Add)
	}
	run := job
	if t := spec.Timeout.Duration(); t > 0 {
		var cancel context.CancelFunc
		run, cancel = context.WithTimeoutCause(job, t, &stop{"failed", fairlead.ReasonTimeout, fmt.Sprintf("the job did not end within %s", t)})
		defer cancel()
	}
	spec.Grace = events.Seconds(grace / time.Second)
	spec.Env = environment(spec, a.in.URL)
	a.ownRegistry(&spec, env)
	if err := a.builtImage(run, c, spec, started.LeaseToken, &env, secrets.Add); err != nil {
		return plugin.Result{}, err
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				a.Log.Error("plugin panicked", "plugin", spec.Plugin, "panic", p, "stack", string(debug.Stack()))
				o.err = plugin.Errorf(fairlead.ReasonInternal, "the %s plugin failed with an internal error; see the runner's own log", spec.Plugin)
			}
			done <- o
		}()
		o.res, o.err = a.Plugins.Run(run, spec, env)
	}()
	o := a.await(run, lost, grace, done)
	if o.err != nil && run.Err() != nil {
		o.err = errors.Join(context.Cause(run), o.err) // the report names the reason of the stop first
	}
	reap, cancel := context.WithTimeout(context.WithoutCancel(job), abandonAfter)
	defer cancel()
	n, err := a.Kill(reap)
	if err != nil {
		a.Log.Error("cannot kill all processes of the job", "err", err)
	}
	if n > 0 {
		fmt.Fprintf(logw, "\n[fairlead: killed %d process(es) that the job left running]\n", n)
	}
	return o.res, o.err
}

// await returns the plugin's result. After a stop, a plugin must end within its grace period. If the plugin does not end, or
// if the lease is lost, await kills all processes of the job until the plugin returns or abandonAfter is over.
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
	killAgain := time.NewTicker(20 * time.Millisecond)
	defer killAgain.Stop()
	abandon := time.NewTimer(abandonAfter)
	defer abandon.Stop()
	for {
		a.Signal()
		select {
		case o := <-done:
			return o
		case <-killAgain.C:
		case <-abandon.C:
			a.Log.Error("the plugin does not return", "plugin", a.in.Plugin)
			return outcome{err: context.Cause(run)}
		}
	}
}

// report returns the job's report, with secrets masked in its message. The caller sets Log.
func (a *execution) report(res plugin.Result, err error, secrets *redact.Set) wire.FinishRequest {
	f := wire.FinishRequest{Outcome: "succeeded", Plan: res.Plan, Built: res.Built, Outputs: res.Outputs, ExitCode: res.ExitCode, Mutated: res.Mutated}
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

// maxMessage limits a failure's message in the report, in bytes. The log has the rest.
const maxMessage = 4 << 10
