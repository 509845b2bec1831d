package diagnosistest

import (
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

func lostCases() []Case {
	one := &deployment.Changes{Add: 1}
	awaiting := deployment.Node{State: deployment.Awaiting, Lost: true, ApplyJob: "job_a", PlanJob: "job_r", Past: []fairlead.JobID{"job_p"}, Changes: one}
	final := deployment.Node{State: deployment.NodeLost, Lost: true, ApplyJob: "job_a", PlanJob: "job_r"}
	expired := aJob("job_a", job.OpDestroy, job.Event{Kind: job.Expire, At: sec(105), Epoch: 1, Message: "the runner stopped renewing its lease"})
	badPlan := aJob("job_r", job.OpPlan, failed(fairlead.ReasonInitFailed, "the registry does not answer"))
	poisonPlan := aJob("job_r", job.OpPlan, die(70, 1, fairlead.CauseKilled.Reason(), "k"), job.Event{Kind: job.Claim, At: sec(80)}, die(81, 2, fairlead.CauseKilled.Reason(), "k"),
		job.Event{Kind: job.Claim, At: sec(90)}, die(91, 3, fairlead.CauseKilled.Reason(), "k"))
	kept := lostApply()
	kept.Salvaged = &job.Salvaged{Path: "salvage/job_a-1/errored.tfstate", Whole: true}
	torn := lostApply()
	torn.Salvaged = &job.Salvaged{Path: "salvage/job_a-1/errored.tfstate"}
	return []Case{
		{"lost: a person decides, and the runner keeps a state", dep(awaiting, []job.Job{kept})},
		{"lost: the plan failed, and the runner keeps a part of a state", dep(final, []job.Job{torn, badPlan}, with(onRunner))},
		{"lost: a plan runs", dep(deployment.Node{State: deployment.Reconciling, Lost: true, ApplyJob: "job_a", PlanJob: "job_r"},
			[]job.Job{lostApply(), aJob("job_r", job.OpPlan, job.Event{Kind: job.Renew, At: sec(3590), Epoch: 1})})},
		{"lost: a plan runs, of a type whose plan reads no resources", dep(blind(deployment.Node{State: deployment.Reconciling, Lost: true, ApplyJob: "job_a", PlanJob: "job_r"}),
			[]job.Job{blindApply(), aJob("job_r", job.OpPlan, job.Event{Kind: job.Renew, At: sec(3590), Epoch: 1})}, with(stateless))},
		{"lost: a person decides, of a type whose plan reads no resources", dep(blind(awaiting), []job.Job{blindApply()}, with(stateless))},
		{"lost: a person decides, of a type whose plugin keeps no state", dep(awaiting, []job.Job{pluginApply()}, with(ofPlugin))},
		{"lost: the plan failed, of a type whose plan reads no resources", dep(blind(final), []job.Job{blindApply(), badPlan}, with(stateless))},
		{"lost: a run of an action", dep(deployment.Node{State: deployment.NodeLost, ApplyJob: "job_a", PlanJob: "job_p", Type: "script", Reason: "step-killed", Run: &deployment.Run{Action: "backup", Trigger: deployment.Manual}}, []job.Job{lostRun()}, ofAction)},
		{"lost: a run of an action, whose record was not read", dep(deployment.Node{State: deployment.NodeLost, ApplyJob: "job_a", PlanJob: "job_p", Type: "script", Run: &deployment.Run{Action: "backup", Trigger: deployment.Schedule}}, nil, ofAction)},
		{"lost: a person decides, the state was saved before", dep(awaiting, []job.Job{lostApply()})},
		{"lost: a person decides, the state was saved during it", dep(awaiting, []job.Job{lostApply()}, with(savedDuring))},
		{"lost: a person decides, no state was ever saved", dep(awaiting, []job.Job{lostApply()}, with(neverSaved))},
		{"lost: a person decides, the state is on the runner", dep(awaiting, []job.Job{lostApply()}, with(onRunner))},
		{"lost: a destroy, and its lease expired", dep(awaiting, []job.Job{expired})},
		{"lost: the plan failed", dep(final, []job.Job{lostApply(), badPlan})},
		{"lost: the plan failed on each attempt", dep(final, []job.Job{lostApply(), poisonPlan})},
		{"lost: the plan was canceled", dep(final, []job.Job{lostApply(), aJob("job_r", job.OpPlan, cancel(), stopped())})},
		{"lost: the deployment was canceled", dep(final, []job.Job{lostApply()}, func(d *diagnosis.Deployment) { d.Stop = "canceled"; d.State = deployment.Canceled })},
		{"lost: no plan job could be created", dep(deployment.Node{State: deployment.NodeLost, Lost: true, Past: []fairlead.JobID{"job_p", "job_a"}, Reason: fairlead.ReasonNeedsOutputs, Message: "network has no output id"}, []job.Job{lostApply()})},
		{"lost: in a deployment before this one", dep(deployment.Node{State: deployment.Awaiting, Lost: true, LostJob: "job_a", PlanJob: "job_r", Changes: one}, []job.Job{lostApply()})},
		{"restored: the plan shows what differs", dep(deployment.Node{State: deployment.Awaiting, Lost: true, Restored: true, PlanJob: "job_r", Changes: one}, nil)},
		{"lost: without facts", diagnosis.OfNode(deployment.Deployment{ID: "dep_1", State: deployment.Waiting}, &awaiting, "acme")},
		{"lost: deployed since", dep(final, []job.Job{lostApply()}, func(d *diagnosis.Deployment) { d.Since = "dep_2" })},
		{"lost: the install is forgotten", dep(final, []job.Job{lostApply()}, func(d *diagnosis.Deployment) { d.Gone = true })},
	}
}

// blind returns the node n with a component type whose plan does not read existing
// resources. The plan of such a type always shows that the whole operation is run.
func blind(n deployment.Node) deployment.Node {
	n.Type = "blind"
	if n.Changes != nil {
		n.Changes = &deployment.Changes{Run: 1}
	}
	return n
}

func blindApply() job.Job {
	j := lostApply()
	j.Plugin = "blind"
	return j
}

func lostRun() job.Job {
	j := aJob("job_a", job.OpRun, job.Event{Kind: job.Renew, At: sec(75), Epoch: 1}, die(90, 1, fairlead.CauseKilled.Reason(), "the step was killed (killed)"))
	j.Plugin, j.Component = "script", "actions.backup"
	return j
}

// ofAction makes the deployment a run of an action.
func ofAction(d *diagnosis.Deployment) {
	d.Kind, d.Action, d.Nodes[0].Component, d.Parts = deployment.Action, "backup", "actions.backup", nil
}

func pluginApply() job.Job {
	j := lostApply()
	j.Plugin = "plugin"
	return j
}

func ofPlugin(c *diagnosis.Component) { c.Type, c.State = "plugin", nil }

func stateless(c *diagnosis.Component) { c.Type, c.State = "blind", nil }

func failedCases() []Case {
	plan := deployment.Node{State: deployment.NodeFailed, PlanJob: "job_p"}
	apply := deployment.Node{State: deployment.NodeFailed, PlanJob: "job_p", ApplyJob: "job_a"}
	poison := func(reason fairlead.Reason, message string, change ...func(job.Event) job.Event) job.Job {
		died := die(70, 1, reason, message)
		for _, c := range change {
			died = c(died)
		}
		return aJob("job_p", job.OpPlan, died, job.Event{Kind: job.Claim, At: sec(80), Session: "ses_1"},
			job.Event{Kind: job.Expire, At: sec(100), Epoch: 2, Message: "a runner claimed it, but it did not start within 20s"}, job.Event{Kind: job.Claim, At: sec(110), Session: "ses_1"}, die(111, 3, reason, message))
	}
	all := []Case{
		{"poison: memory", dep(plan, []job.Job{poison(fairlead.CauseOutOfMemory.Reason(), "the step ran out of memory")})},
		{"poison: killed", dep(plan, []job.Job{poison(fairlead.CauseKilled.Reason(), "the step was killed (killed)")})},
		{"poison: launch", dep(plan, []job.Job{poison(fairlead.CauseLaunchFailed.Reason(), "the step could not be launched: exec format error")})},
		{"poison: image unavailable", dep(plan, []job.Job{poison(fairlead.CauseImageUnavailable.Reason(), "the component's image could not be pulled: registry.example.com/tools@sha256:3b1a: manifest unknown")})},
		{"poison: image refused", dep(plan, []job.Job{poison(fairlead.CauseImageRefused.Reason(), "the runner does not start jobs in the component's image: job.images permits only registry.example.com/acme/*")})},
		{"poison: install refused", dep(plan, []job.Job{poison(fairlead.CauseInstallRefused.Reason(), "the runner does not start jobs of this install: this runner, which starts jobs as processes, serves the install globex")})},
		{"poison: disk", dep(plan, []job.Job{poison(fairlead.CauseExited.Reason(), "the step ended without a report (exit code 1): no space left on device", full)})},
		{"poison: other", dep(plan, []job.Job{poison(fairlead.CauseExited.Reason(), "the step ended without a report (exit code 1)")})},
		{"state unsaved, kept, at the control plane", dep(apply, []job.Job{aJob("job_a", job.OpApply, unsaved(true))})},
		{"state unsaved, kept, on the runner", dep(apply, []job.Job{aJob("job_a", job.OpApply, unsaved(true))}, with(onRunner))},
		{"state unsaved, kept in part, disk full", dep(apply, []job.Job{aJob("job_a", job.OpApply, full(unsaved(false)))}, with(onRunner))},
		{"state unsaved, kept in part, at the control plane", dep(apply, []job.Job{aJob("job_a", job.OpApply, unsaved(false))})},
		{"state unsaved, not kept, disk full", dep(apply, []job.Job{aJob("job_a", job.OpApply, full(failed(fairlead.ReasonStateIncomplete, "the tool could not save its state: no space left on device")))}, with(onRunner))},
		{"state unsaved, by a runner that did not report a copy", dep(apply, []job.Job{aJob("job_a", job.OpApply, failed(fairlead.ReasonStateUnsaved, "the tool could not save its state; the runner keeps it in /data/salvage/job_a-1/errored.tfstate"))}, with(onRunner))},
		{"tool killed during an apply", dep(apply, []job.Job{aJob("job_a", job.OpApply, failed(fairlead.ReasonToolKilled, "the tool was killed by a signal (killed)"))})},
		{"tool killed during a plan", dep(plan, []job.Job{aJob("job_p", job.OpPlan, failed(fairlead.ReasonToolKilled, "the tool was killed by a signal (killed)"))})},
		{"state locked, at the control plane", dep(plan, []job.Job{aJob("job_p", job.OpPlan, failed(fairlead.ReasonStateLocked, "plan failed: the state is locked by ann@laptop"))})},
		{"state locked, on the runner", dep(plan, []job.Job{aJob("job_p", job.OpPlan, failed(fairlead.ReasonStateLocked, "plan failed: the state is locked by ann@host-1"))}, with(onRunner))},
		{"state locked, in the customer's bucket", dep(plan, []job.Job{aJob("job_p", job.OpPlan, failed(fairlead.ReasonStateLocked, "plan failed: the state is locked by ann@host-1 since 2026-11-21 08:42:51 for Apply, lock 0d0a7508. When no process uses s3://states/state/ins_1/web.tfstate any more, remove the lock with `aws s3 rm s3://states/state/ins_1/web.tfstate.tflock`."))}, with(outside))},
		{"state unsaved, kept, in the customer's bucket", dep(apply, []job.Job{aJob("job_a", job.OpApply, unsaved(true))}, with(outside))},
		{"disk full during a plan", dep(plan, []job.Job{aJob("job_p", job.OpPlan, full(failed(fairlead.ReasonInternal, "create the workspace: no space left on device")))})},
		{"no runner claimed it for a day", dep(plan, []job.Job{expiredInQueue()}, func(d *diagnosis.Deployment) { d.Runner = runner(silent) })},
		{"its step did not start", dep(plan, []job.Job{neverStarted()})},
		{"no job could be created", dep(deployment.Node{State: deployment.NodeFailed, Reason: "invalid-inputs", Message: "input size is not a number"}, nil)},
		{"without facts", diagnosis.OfDeployment(diagnosis.Deployment{Install: "acme", Deployment: deployment.Deployment{ID: "dep_1", State: deployment.Failed,
			Nodes: []deployment.Node{{Component: "web", State: deployment.NodeFailed, ApplyJob: "job_a", Reason: fairlead.ReasonToolFailed, Message: "access denied"}}}}, Now())},
		{"an apply that was stopped", dep(deployment.Node{State: deployment.NodeStopped, ApplyJob: "job_a"}, []job.Job{aJob("job_a", job.OpApply, cancel(), stopped())}, with(savedDuring, lock(false)))},
		{"an apply that was stopped before it started", dep(deployment.Node{State: deployment.NodeStopped, ApplyJob: "job_a"}, []job.Job{queuedAndCanceled()})},
		{"a teardown that failed", dep(deployment.Node{Destroy: true, State: deployment.NodeFailed, PlanJob: "job_p", ApplyJob: "job_a"}, []job.Job{aJob("job_a", job.OpDestroy, failed(fairlead.ReasonToolFailed, "the bucket is not empty"))},
			func(d *diagnosis.Deployment) { d.Kind = deployment.Teardown })},
		{"a teardown that failed, deployed since", dep(deployment.Node{Destroy: true, State: deployment.NodeFailed, PlanJob: "job_p"}, []job.Job{aJob("job_p", job.OpPlanDestroy, failed(fairlead.ReasonToolFailed, "no"))},
			func(d *diagnosis.Deployment) { d.Kind, d.Since = deployment.Teardown, "dep_2" })},
		{"failed while others continue", dep(plan, []job.Job{aJob("job_p", job.OpPlan, failed(fairlead.ReasonToolFailed, "no"))}, func(d *diagnosis.Deployment) { d.State = deployment.Running })},
	}
	reasons := []fairlead.Reason{
		fairlead.ReasonToolFailed, fairlead.ReasonPluginProtocol, fairlead.ReasonInitFailed, fairlead.ReasonPlanStale, fairlead.ReasonPlanDigest,
		fairlead.ReasonPlanMissing, fairlead.ReasonPlanUnsaved, fairlead.ReasonPlanTooLarge, fairlead.ReasonPlanElsewhere, fairlead.ReasonBackendElsewhere,
		fairlead.ReasonInstallKeyMissing, fairlead.ReasonEncryptedDamaged, fairlead.ReasonEncryptedForeign,
		fairlead.ReasonWorkspaceHeld, fairlead.ReasonSecretUnavailable, fairlead.ReasonInstallKeyUnavailable, fairlead.ReasonValuesEncrypted, fairlead.ReasonPolicyDenied, fairlead.ReasonPolicyUnavailable, fairlead.ReasonApprovalMissing, fairlead.ReasonToolMissing, fairlead.ReasonArtifactMissing,
		fairlead.ReasonArtifactInvalid, fairlead.ReasonEnvInvalid, fairlead.ReasonSpecInvalid, fairlead.ReasonSpecArtifact, fairlead.ReasonProvenanceInvalid, fairlead.ReasonVersionAltered,
		fairlead.ReasonJobAltered, fairlead.ReasonStorageChanged, fairlead.ReasonTimeout, fairlead.ReasonNoOutput, fairlead.ReasonObjectOwned,
		fairlead.ReasonManifestInvalid, fairlead.ReasonRegistryMissing, fairlead.ReasonSignatureInvalid, "unknown-reason",
	}
	for _, reason := range append(reasons, fairlead.ReasonsAfterChange()...) {
		all = append(all, Case{"failed: " + string(reason), dep(apply, []job.Job{aJob("job_a", job.OpApply, failed(reason, "access denied."))})})
	}
	return all
}

func queuedAndCanceled() job.Job {
	j, _ := job.Apply(aJob("job_a", job.OpApply), job.Event{Kind: job.Cancel, At: sec(55)}) // Apply cannot fail here, because the job is queued
	return j
}

func neverStarted() job.Job {
	j := aJob("job_p", job.OpPlan)
	j.State, j.Attempts, j.Lease, j.Claimed, j.Started = job.Queued, 0, job.Lease{}, time.Time{}, time.Time{}
	for i := range job.MaxAttempts {
		j, _ = job.Apply(j, job.Event{Kind: job.Claim, At: sec(60 + 30*i), Session: "ses_1"}) // Apply cannot fail here, because the job is queued
		j, _ = job.Apply(j, job.Event{Kind: job.Expire, At: sec(80 + 30*i), Epoch: int64(i + 1), Message: "a runner claimed it, but it did not start within 20s"})
	}
	return j
}

// claimed returns a plan that an agent has claimed, for the nth time, and whose step has not started.
func claimed(second, n int) job.Job {
	j := aJob("job_p", job.OpPlan)
	j.Attempts = n - 1
	j, _ = job.Apply(j, job.Event{Kind: job.Claim, At: sec(second), Session: "ses_1"}) // Apply cannot fail here, because the job is queued
	return j
}

func expiredInQueue() job.Job {
	j, _ := job.Apply(aJob("job_p", job.OpPlan), job.Event{Kind: job.TimeOut, At: sec(86450), Message: "no runner claimed it within 24h0m0s"}) // Apply cannot fail here, because the job is queued
	return j
}

func workingCases() []Case {
	planning := deployment.Node{State: deployment.Planning, PlanJob: "job_p"}
	applying := deployment.Node{State: deployment.Applying, PlanJob: "job_p", ApplyJob: "job_a"}
	retrying := aJob("job_p", job.OpPlan, die(70, 1, fairlead.CauseKilled.Reason(), "the step was killed (killed)"))
	paused := retrying
	paused.NotBefore = Now().Add(4 * time.Second)
	beat := job.Event{Kind: job.Renew, At: sec(3590), Epoch: 1}
	stopping := aJob("job_a", job.OpApply, cancel())
	third := aJob("job_p", job.OpPlan, beat)
	third.Attempts = job.MaxAttempts
	third.Lease.Expires = sec(3601)
	return []Case{
		{"running: no situation", dep(applying, []job.Job{aJob("job_a", job.OpApply, beat)})},
		{"a retry is due", dep(planning, []job.Job{retrying})},
		{"a retry waits", dep(planning, []job.Job{paused})},
		{"claimed a moment ago: no situation", dep(planning, []job.Job{claimed(3598, 1)})},
		{"claimed, and its task starts", dep(planning, []job.Job{claimed(3586, 1)})},
		{"claimed for the last time, and its task starts", dep(planning, []job.Job{claimed(3586, job.MaxAttempts)})},
		{"claimed by an agent that is no longer known", dep(planning, []job.Job{claimed(3586, 1)}, func(d *diagnosis.Deployment) { d.Runner.Agents = nil })},
		{"asked to stop", dep(applying, []job.Job{stopping}, func(d *diagnosis.Deployment) { d.State, d.Stop = deployment.Canceling, "canceled" })},
		{"an apply misses renewals of its lease", dep(applying, []job.Job{aJob("job_a", job.OpApply, job.Event{Kind: job.Renew, At: sec(3570), Epoch: 1})})},
		{"a plan misses renewals of its lease", dep(planning, []job.Job{aJob("job_p", job.OpPlan, job.Event{Kind: job.Renew, At: sec(3570), Epoch: 1})})},
		{"the last attempt of a plan misses renewals of its lease", dep(planning, []job.Job{third})},
	}
}

func runnerCases() []Case {
	planning := deployment.Node{State: deployment.Planning, PlanJob: "job_p"}
	queued := []job.Job{aJob("job_p", job.OpPlan)}
	on := func(r *diagnosis.Runner) func(*diagnosis.Deployment) {
		return func(d *diagnosis.Deployment) { d.Runner = r }
	}
	never := &diagnosis.Runner{Name: "acme-eu", New: true, Waiting: 1, Oldest: sec(50)}
	drains := func(r *diagnosis.Runner) { r.Agents[0].Draining = true }
	full := func(r *diagnosis.Runner) { r.Agents[0].Running = 2 }
	more := func(r *diagnosis.Runner) { r.More = true }
	off := func(r *diagnosis.Runner) { r.Mode = fairlead.ModeDisabled }
	held := func(r *diagnosis.Runner) {
		r.Agents[0].Mode, r.Customer = fairlead.ModePaused, &fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: sec(40), Reason: "books are closed"}
	}
	started := func(r *diagnosis.Runner) {
		r.Agents[0].Mode, r.Customer = fairlead.ModeDisabled, &fairlead.CustomerMode{Mode: fairlead.ModeDisabled}
	}
	beside := func(r *diagnosis.Runner) { // adds a second agent, which the customer paused
		r.Agents = append(r.Agents, diagnosis.Agent{Name: "host-2", Online: true, Mode: fairlead.ModePaused, Capacity: 2, Seen: sec(3590)})
	}
	return []Case{
		{"queued, an agent has a free slot", dep(planning, queued)},
		{"queued, the runner never had an agent", dep(planning, queued, on(never))},
		{"queued, the runner had no agent recently", dep(planning, queued, on(&diagnosis.Runner{Name: "acme-eu", Waiting: 1, Oldest: sec(50)}))},
		{"queued, the runner was deleted", dep(planning, queued, on(&diagnosis.Runner{Name: "acme-eu", Gone: true}))},
		{"queued, no agent is online", dep(planning, queued, on(runner(silent, waits(3))))},
		{"queued, the online agents drain", dep(planning, queued, on(runner(drains, waits(1))))},
		{"queued, no slot is free", dep(planning, queued, on(runner(full, waits(200), more)))},
		{"queued, the runner is disabled", dep(planning, queued, on(runner(off, waits(1))))},
		{"queued, the customer has paused the runner", dep(planning, queued, on(runner(held, waits(1))))},
		{"queued, the vendor disabled and the customer paused the runner", dep(planning, queued, on(runner(off, held, waits(2))))},
		{"queued, one agent drains and the customer paused the other", dep(planning, queued, on(runner(drains, beside, waits(1))))},
		{"a runner that its customer starts disabled, no job waits", diagnosis.OfRunner(*runner(started))},
		{"an outdated runner of a channel, on a machine", outdated("local", func(r *diagnosis.Runner) { r.Wanted.Image = "" })},
		{"an outdated runner of a channel, in a cluster", outdated("aws-eks", func(r *diagnosis.Runner) {})},
		{"an outdated runner of a channel, in a customer's stack", outdated("aws-ecs", func(r *diagnosis.Runner) {})},
		{"an outdated pinned runner in a container, one of two agents is replaced", outdated("docker", func(r *diagnosis.Runner) {
			r.Wanted.Channel = ""
			r.Agents = append(r.Agents, diagnosis.Agent{Name: "host-2", Online: true, Version: "v1.3.0", Protocol: "2", Capacity: 2, Seen: sec(3590)})
		})},
		{"queued, no agent runs the version that the runner pins", dep(planning, queued, on(runner(func(r *diagnosis.Runner) {
			r.Kind, r.Wanted = "kubernetes", &diagnosis.Wanted{Version: "v1.3.0"}
			r.Agents[0].Version, r.Agents[0].Outdated = "v1.2.0", true
		}, waits(2))))},
		{"a pinned runner of another version, no job waits", outdated("local", func(r *diagnosis.Runner) { r.Wanted.Channel, r.Wanted.Image = "", "" })},
		{"a runner with an old protocol", outdated("local", func(r *diagnosis.Runner) {
			r.Wanted, r.Speaks, r.Agents[0].Protocol, r.Agents[0].Outdated = nil, "2", "1", false
		})},
		{"a runner with a newer protocol", outdated("local", func(r *diagnosis.Runner) {
			r.Wanted, r.Speaks, r.Agents[0].Protocol, r.Agents[0].Outdated = nil, "2", "3", false
		})},
		{"a runner whose outdated agent is offline", outdated("local", silent)},
		{"a runner that drains, no job waits", diagnosis.OfRunner(*runner(func(r *diagnosis.Runner) { r.Mode = fairlead.ModeDraining }))},
		{"a runner that works", diagnosis.OfRunner(*runner())},
		{"a runner of several installs without isolation", diagnosis.OfRunner(*runner(func(r *diagnosis.Runner) { r.Beside, r.Several = "none", true }))},
		{"a runner of several installs, isolated by Landlock", diagnosis.OfRunner(*runner(func(r *diagnosis.Runner) { r.Beside, r.Several = "landlock", true }))},
		{"a runner of one install without isolation", diagnosis.OfRunner(*runner(func(r *diagnosis.Runner) { r.Beside, r.Several = "none", false }))},
		{"a runner that is full, no job waits", diagnosis.OfRunner(*runner(full))},
		{"a runner that is offline, no job waits", diagnosis.OfRunner(*runner(silent))},
		{"a runner that is offline, jobs wait", diagnosis.OfRunner(*runner(silent, waits(2)))},
	}
}

// outdated returns the diagnosis of a runner of the given kind whose agent is too old and
// must be replaced.
func outdated(kind string, change func(*diagnosis.Runner)) []diagnosis.Situation {
	return diagnosis.OfRunner(*runner(func(r *diagnosis.Runner) {
		r.Kind, r.Wanted = kind, &diagnosis.Wanted{Version: "v1.3.0", Channel: "stable", Image: "registry.example/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
		r.Agents[0].Version, r.Agents[0].Outdated = "v1.2.0", true
		change(r)
	}))
}

func waitingCases() []Case {
	queued := func(a *diagnosis.Ahead) []diagnosis.Situation {
		return dep(deployment.Node{State: deployment.Pending}, nil, func(d *diagnosis.Deployment) { d.State, d.Ahead = deployment.Queued, a })
	}
	plan := func(name string) deployment.Node {
		return deployment.Node{Component: name, State: deployment.Awaiting, PlanJob: fairlead.JobID("job_" + name), Changes: &deployment.Changes{Change: 2}}
	}
	signed := func(n deployment.Node) deployment.Node {
		n.NeedsSignature = "approvals.changes (line 12)"
		return n
	}
	mixed := func() []diagnosis.Situation {
		f := diagnosis.Deployment{Install: "acme", Deployment: deployment.Deployment{ID: "dep_1", State: deployment.Waiting, Nodes: []deployment.Node{signed(plan("db")), plan("web")}}}
		return diagnosis.OfDeployment(f, Now())
	}
	two := func(lost bool) []diagnosis.Situation {
		f := diagnosis.Deployment{Install: "acme", Deployment: deployment.Deployment{ID: "dep_1", State: deployment.Waiting, Nodes: []deployment.Node{plan("db"), plan("web"), plan("lost")}}}
		if f.Nodes[2].Lost = lost; lost {
			f.Nodes[2].LostJob = "job_a"
		}
		return diagnosis.OfDeployment(f, Now())
	}
	return []Case{
		{"queued: the stack grants less than the version declares", dep(deployment.Node{State: deployment.Pending}, nil, func(d *diagnosis.Deployment) {
			d.State, d.Missing = deployment.Queued, []string{"bedrock:*", "rds:CreateDBInstance"}
		})},
		{"queued: the stack has another bucket than the one with the states", dep(deployment.Node{State: deployment.Pending}, nil, func(d *diagnosis.Deployment) {
			d.State, d.StatesIn, d.StackHas = deployment.Queued, "fairlead-acme-statebucket-1", "fairlead-acme-statebucket-2"
		})},
		{"one plan waits", dep(plan("web"), nil)},
		{"one plan waits for a signature of the customer", dep(signed(plan("web")), nil)},
		{"two plans wait, and one needs a signature of the customer", mixed()},
		{"three plans wait", two(false)},
		{"two plans wait, and one plan of a lost component", two(true)},
		{"queued behind one that runs", queued(&diagnosis.Ahead{ID: "dep_0", State: deployment.Running})},
		{"queued behind one that waits for approval, and one more", queued(&diagnosis.Ahead{ID: "dep_0", State: deployment.Waiting, Since: sec(40), Between: 1})},
		{"queued, without facts", queued(nil)},
		{"canceled", dep(deployment.Node{State: deployment.NodeStopped}, nil, func(d *diagnosis.Deployment) { d.State = deployment.Canceled })},
	}
}

func installCases() []Case {
	of := func(active fairlead.DeploymentID, c diagnosis.Component) []diagnosis.Situation {
		return diagnosis.OfInstall(diagnosis.Install{Name: "acme", Active: active, Parts: []diagnosis.Component{c}})
	}
	known := func(c *diagnosis.Component) { c.Unknown = false }
	return []Case{
		{"a healthy install", of("", component(known))},
		{"an install whose customer has paused its runner", diagnosis.OfInstall(diagnosis.Install{Name: "acme", Parts: []diagnosis.Component{component(known)},
			Runner: runner(func(r *diagnosis.Runner) {
				r.Customer = &fairlead.CustomerMode{Mode: fairlead.ModePaused, Since: sec(40)}
			})})},
		{"an install whose runner is offline", diagnosis.OfInstall(diagnosis.Install{Name: "acme", Runner: runner(silent)})}, // there is no situation, because the diagnosis of the runner reports that the runner is offline
		{"an install with a running deployment", of("dep_1", component(lock(true)))},
		{"an install with a leftover lock", of("", component(known, lock(false)))},
		{"an install whose component is unknown", of("", component())},
	}
}

func jobCases() []Case {
	of := func(j job.Job, r *diagnosis.Runner) []diagnosis.Situation {
		return diagnosis.OfJob(diagnosis.Job{Job: j, Install: "acme", Runner: r}, Now())
	}
	check := job.New("job_c", job.OpCheck, sec(50))
	check.Runner = "run_1"
	check, _ = job.Apply(check, job.Event{Kind: job.TimeOut, At: sec(86450), Message: "no runner claimed it within 24h0m0s"}) // Apply cannot fail here, because the job is queued
	return []Case{
		{"a job that is lost", of(lostApply(), runner())},
		{"a job that failed", of(aJob("job_a", job.OpApply, failed(fairlead.ReasonToolFailed, "access denied")), nil)},
		{"a job that was stopped", of(aJob("job_a", job.OpApply, cancel(), stopped()), nil)},
		{"a job that waits for a runner", of(aJob("job_p", job.OpPlan), runner(silent, waits(1)))},
		{"a job that waits for a runner that was deleted", of(aJob("job_p", job.OpPlan), &diagnosis.Runner{Name: "local", Gone: true})},
		{"a job that was asked to stop", of(aJob("job_a", job.OpApply, cancel()), runner())},
		{"a check that no runner claimed", of(check, runner())},
	}
}
