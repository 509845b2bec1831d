package sim

// mistakes returns the planted mistakes. A person could make each of them by accident: leave out
// a check that seems to be done elsewhere, change the order of two writes, confuse two cases.
// The end of the list names mistakes that are left out, because a second protection makes them
// harmless.
func mistakes() []mistake {
	return []mistake{
		// The life of a job.
		{name: "the epoch of a report is not compared", edit: edit{"pkg/job/transitions.go",
			"(e.Epoch != j.Lease.Epoch || !j.State.Leased())", "!j.State.Leased()"},
			within: 340, finds: []string{"stale-epochs-are-refused"}},
		{name: "a lost apply is queued again", edit: edit{"pkg/job/transitions.go",
			`{Running, Die, Mutates, Lost, "never repeated: a plan runs next"},`, `{Running, Die, Mutates, Queued, ""},`},
			within: 20, finds: []string{"mutations-are-not-repeated"}},
		{name: "a run of an action is repeated after the death of its step", edit: edit{"pkg/job/transitions.go",
			"		return j.Operation.Mutates()\n", "		return j.Operation.Mutates() && j.Operation != OpRun\n"},
			within: 140, finds: []string{"actions-run-once", "mutations-are-not-repeated"}},
		{name: "a claim does not raise the epoch", edit: edit{"pkg/job/transitions.go",
			"Epoch: j.Lease.Epoch + 1,", "Epoch: max(j.Lease.Epoch, 1),"},
			within: 20, finds: []string{"epochs-rise-with-claims"}},
		{name: "a cancel ends a running job at once", edit: edit{"pkg/job/transitions.go",
			`{Running, Cancel, Always, Canceling, "the next answer asks the step to stop"},`, `{Running, Cancel, Always, Canceled, ""},`},
			within: 140, finds: []string{"ended-jobs-have-no-tool"}},
		{name: "a tool without output is not interrupted", edit: edit{"pkg/control/internal/execution/steps.go",
			"hangs && err == nil", "hangs && err != nil"},
			within: 560, finds: []string{"deployments-end"}},
		{name: "a step accepts a refusal of another server", edit: edit{"pkg/api/client/client.go",
			"ok && !e.Foreign() && e.Status >= 400", "ok && e.Status >= 400"},
			within: 60, finds: []string{"steps-know-their-lease"}},

		// The progress of a deployment.
		{name: "a deployment ignores its limit of parallel jobs", edit: edit{"pkg/deployment/apply.go",
			"case ready && free > 0:", "case ready:"},
			within: 20, finds: []string{"few-at-a-time"}},
		{name: "wake-ups are spread over a minute", edit: edit{"pkg/control/internal/kernel/kernel.go",
			"delay := min(max(0, j.NotBefore.Sub(now)), queue.MaxDelay)", "delay := min(max(0, j.NotBefore.Sub(now))+time.Duration(j.ID[len(j.ID)-1]%4)*15*time.Second, queue.MaxDelay)"},
			within: 40, finds: []string{"queue-is-fair"}},
		{name: "auto-approval covers what follows a lost apply", edit: edit{"pkg/deployment/apply.go",
			"	case reconciled:\n		// Auto-approval", "	case reconciled && !d.AutoApprove:\n		// Auto-approval"},
			also:   []edit{{"pkg/deployment/apply.go", "	case n.Lost:\n		// The apply was lost in", "	case n.Lost && !d.AutoApprove:\n		// The apply was lost in"}},
			within: 20, finds: []string{"applies-are-approved"}},
		{name: "an approval applies to a plan that its person did not see", edit: edit{"pkg/deployment/apply.go",
			"ok && seen != n.Digest", "ok && seen == \"\""},
			within: 400, finds: []string{"applies-are-approved"}},
		{name: "a lost apply is repeated with its old plan", edit: edit{"pkg/deployment/apply.go",
			"n.Lost = true\n\t\treturn []Command{n.plan(Reconciling)}", "n.Lost = true\n\t\treturn []Command{d.start(n)}"},
			within: 20, finds: []string{"mutations-are-not-repeated", "applies-are-approved", "no-apply-without-a-plan-after-the-last"}},
		{name: "the order of the graph is ignored", edit: edit{"pkg/deployment/apply.go",
			"		ready = ready && s.Done()\n", ""},
			within: 20, finds: []string{"graph-order", "installs-heal", "hooks-keep-their-place"}},
		{name: "only a component with a reference waits for the sandbox", edit: edit{"pkg/appspec/check.go",
			"ground != \"\" && c.Name != ground {", "ground != \"\" && c.Name == \"\" {"},
			within: 20, finds: []string{"what-is-needed-comes-first", "what-is-needed-goes-last"}},
		{name: "a teardown goes in the order of a deployment", edit: edit{"pkg/control/internal/execution/nodes.go",
			"reversed := graph.Reverse(acyclic(nodes, left))", "reversed := acyclic(nodes, left)"},
			within: 60, finds: []string{"what-is-needed-goes-last"}},
		{name: "what is destroyed in the sandbox is destroyed by the install's runner", edit: edit{"pkg/control/internal/execution/sandbox.go",
			"		return inst.V.In(k.V.InSandbox), err\n", "		_ = k\n		return inst.V, err\n"},
			within: 250, finds: []string{"jobs-go-to-their-runner"}},
		{name: "an operation does not wait for the action before it", edit: edit{"pkg/deployment/apply.go",
			"case !waits && free > 0:", "case (waits || !waits) && free > 0:"},
			within: 30, finds: []string{"hooks-come-first"}},
		{name: "an operation begins after the action before it has failed", edit: edit{"pkg/deployment/apply.go",
			"slices.Contains(h.Run.Around, n.Component) && !h.State.Done() {", "slices.Contains(h.Run.Around, n.Component) && !h.State.Final() {"},
			within: 30, finds: []string{"hooks-come-first"}},
		{name: "an action after an operation runs without it", edit: edit{"pkg/deployment/apply.go",
			"		return !s.Final() || s == Planned || s == Applied && n.Run.Trigger == After\n", "		return !s.Final() || s == Planned || n.Run.Trigger == After\n"},
			within: 30, finds: []string{"hooks-keep-their-place"}},
		{name: "an action after an operation does not run", edit: edit{"pkg/deployment/apply.go",
			"		return !s.Final() || s == Planned || s == Applied && n.Run.Trigger == After\n", "		return !s.Final() || s == Planned\n"},
			within: 20, finds: []string{"success-means-done"}},
		{name: "a schedule ignores its time zone", edit: edit{"pkg/control/internal/execution/actions.go",
			"schedule.Parse(s.Cron, s.Timezone)", "schedule.Parse(s.Cron, \"\")"},
			within: 20, finds: []string{"schedules-keep-their-times"}},
		{name: "each time that a schedule missed has a run", edit: edit{"pkg/control/internal/execution/actions.go",
			"			if r.V.Next, err = nextRun(r.V, tx.Now); err != nil {\n				return err\n			}\n			started", "			if r.V.Next, err = nextRun(r.V, at); err != nil {\n				return err\n			}\n			started"},
			within: 1000, finds: []string{"schedules-keep-their-times"}},
		{name: "a schedule starts a run while one runs", edit: edit{"pkg/control/internal/execution/actions.go",
			"d.V.Action == action && !d.V.State.Final() {", "d.V.Action == action && d.V.State == \"\" {"},
			within: 280, finds: []string{"scheduled-runs-do-not-overlap"}},
		{name: "the sweep leaves the schedules", edit: edit{"pkg/control/sweep.go",
			"	schedules := c.SweepSchedules(ctx, &s)\n", "	var schedules error\n"},
			within: 340, finds: []string{"schedules-are-served"}},
		{name: "a plan that ends after a cancel is applied", edit: edit{"pkg/deployment/apply.go",
			"	case d.Stop != \"\":\n		n.State, n.Reason = NodeStopped", "	case d.Stop != \"\" && reconciled:\n		n.State, n.Reason = NodeStopped"},
			also:   []edit{{"pkg/deployment/apply.go", "	if d.State == Queued || d.Stop != \"\" {\n		return nil\n	}\n	free", "	if d.State == Queued {\n		return nil\n	}\n	free"}},
			within: 60, finds: []string{"nothing-starts-after-a-cancel", "deployments-end"}},
		{name: "a cancel does not reach the apply", edit: edit{"pkg/deployment/apply.go",
			"			cmds = append(cmds, Command{Cancel: n.ApplyJob})\n", ""},
			within: 110, finds: []string{"cancels-reach-jobs", "deployments-end"}},

		{name: "a component with a failed apply counts as up to date", edit: edit{"pkg/control/internal/catalog/uptodate.go",
			"	case k.V.State != store.Present, k.V.Doubtful(), k.V.Base == nil, k.V.EnvDigest == \"\":\n		return k, false, nil\n", ""},
			also:   []edit{{"pkg/control/internal/catalog/uptodate.go", "head.Writes != k.V.Base.StateWrites, head.Lock != nil:", "k.V.EnvDigest == \"\", head.Lock != nil:"}},
			within: 200, finds: []string{"success-means-done", "installs-heal"}},

		// Claims and steps.
		{name: "a reported death does not advance its deployment", edit: edit{"pkg/control/internal/execution/claims.go",
			"		return advanceDeployment(tx, r.V)\n	})\n}\n\n// ProveRole", "		return nil\n	})\n}\n\n// ProveRole"},
			within: 20, finds: []string{"deployments-end"}},
		{name: "a claimed job is claimed again", edit: edit{"pkg/control/internal/execution/claims.go",
			"r.V.State != job.Queued || r.V.Runner", "r.V.State != job.Queued && r.V.State != job.Claimed || r.V.Runner"},
			also:   []edit{{"pkg/job/transitions.go", "		{Claimed, Start, Always,", "		{Claimed, Claim, Always, Claimed, \"\"},\n		{Claimed, Start, Always,"}},
			within: 40, finds: []string{"epochs-rise-with-claims", "job-states"}},
		{name: "the receipt of an earlier delivery is reused", edit: edit{"pkg/control/internal/execution/claims.go",
			"	deadline := ex.Now().Add(wait)\n", "	deadline := ex.Now().Add(wait)\n	receipt := \"\"\n"},
			also: []edit{{"pkg/control/internal/execution/claims.go", "kernel.QueueName(s.Runner), msg.Receipt); derr", "kernel.QueueName(s.Runner), cmp.Or(receipt, msg.Receipt)); derr"},
				{"pkg/control/internal/execution/claims.go", "			return claimed, nil\n		}\n", "			return claimed, nil\n		}\n		receipt = cmp.Or(receipt, msg.Receipt)\n"},
				{"pkg/control/internal/execution/claims.go", "import (\n", "import (\n	\"cmp\"\n"}},
			within: 20, finds: []string{"receipts-are-used-once"}},
		{name: "the log of a dead step is not marked truncated", edit: edit{"pkg/control/internal/execution/apply.go",
			"	truncated := true\n", "	truncated := false\n"},
			within: 20, finds: []string{"short-logs-say-so"}},
		{name: "the reported size of a log is not compared with the log", edit: edit{"pkg/control/internal/execution/steps.go",
			"case chunk.Info.Size < rep.LogSize:", "case false:"},
			also:   []edit{{"pkg/control/internal/execution/steps.go", "case chunk.Info.Size > rep.LogSize || chunk.Info.CRC32 != rep.LogCRC32:", "case false:"}},
			within: 130, finds: []string{"short-logs-say-so"}},
		{name: "the lease is not checked when a log grows or a plan is stored", edit: edit{"pkg/control/internal/kernel/lease.go",
			"	return r, h.Fenced(r.V.Job)\n", "	return r, nil\n"},
			// Parts of ended attempts are still deleted: that they are left is another mistake.
			also: []edit{{"pkg/control/internal/state/staged.go", "	r, err := st.Held(ctx, h)\n	if err == nil ||",
				"	r, err := st.Held(ctx, h)\n	if err == nil {\n		err = h.Fenced(r.V.Job)\n	}\n	if err == nil ||"}},
			within: 1300, finds: []string{"stale-epochs-are-refused"}},
		{name: "the late report of a lost job is acknowledged", edit: edit{"pkg/control/internal/execution/steps.go",
			"		return k == job.Stopped\n	}\n	return false", "		return k == job.Stopped\n	}\n	return j.State == job.Lost"},
			within: 200, finds: []string{"stale-epochs-are-refused"}},

		// The sweep, and the messages after a commit.
		{name: "the sweep forgets the wake-ups of queued jobs", edit: edit{"pkg/control/internal/execution/sweep.go",
			"			tx.Wake(j)\n", ""},
			within: 20, finds: []string{"deployments-end", "queued-jobs-are-claimed"}},
		{name: "the sweep does not end the logs of dead attempts", edit: edit{"pkg/control/internal/execution/sweep.go",
			"	if err := ex.endLogs(ctx, found); err != nil {\n		return false, err\n	}\n	err = ex.Transact", "	err = ex.Transact"},
			within: 250, finds: []string{"logs-end"}},
		{name: "a wake-up is sent before its job is committed", edit: edit{"pkg/control/internal/execution/progress.go",
			"	tx.PutJob(store.Stored[store.Job]{V: j})\n	tx.Wake(j)\n", "	tx.PutJob(store.Stored[store.Job]{V: j})\n	_ = kernel.SendWake(tx.Ctx, tx.Queue, tx.Kernel.Now(), j)\n"},
			within: 20, finds: []string{"wake-ups-follow-commits"}},
		{name: "the plans of an ended deployment are neither dropped nor collected", edit: edit{"pkg/control/internal/execution/progress.go",
			"		tx.Drop(state.PlanKeys(r.V)...)\n", "		_ = state.PlanKeys(r.V)\n"},
			also:   []edit{{"pkg/control/internal/state/blobs.go", "return !d.V.State.Final(), err", "return d.V.ID != \"\", err"}},
			within: 20, finds: []string{"nothing-is-left"}},
		{name: "a plan that waits for approval is collected", edit: edit{"pkg/control/internal/state/blobs.go",
			"return !d.V.State.Final(), err", "return d.V.ID == \"\", err"},
			within: 300, finds: []string{"plans-are-kept"}},
		{name: "the parts of an ended attempt are kept", edit: edit{"pkg/control/internal/state/staged.go",
			"	return may, err\n}", "	return may || true, err\n}"},
			within: 20, finds: []string{"nothing-is-left"}},
		{name: "the parts of answers to people are kept", edit: edit{"pkg/control/internal/state/staged.go",
			"		return false, nil // a request that needs it", "		return true, nil // a request that needs it"},
			within: 20, finds: []string{"nothing-is-left"}},
		{name: "a commit with an unknown result is taken as stored", edit: edit{"pkg/control/internal/kernel/kernel.go",
			"		Pause(ctx, time.Duration(1<<(2*try))*time.Millisecond)\n", "		_ = try\n		return nil\n"},
			within: 40, finds: []string{"accepted-is-stored", "wake-ups-follow-commits", "steps-know-their-lease"}},

		// Deployments of an install.
		{name: "the next deployment in the queue is not started", edit: edit{"pkg/control/internal/execution/progress.go",
			"if len(inst.V.Queue) == 0 {", "if len(inst.V.Queue) >= 0 {"},
			within: 20, finds: []string{"deployments-end"}},
		{name: "a queued deployment keeps the graph from when it was queued", edit: edit{"pkg/control/internal/execution/progress.go",
			"	err := refill(tx, inst.V, &next.V.Deployment)\n", "	var err error\n"},
			within: 60, finds: []string{"success-means-done"}},
		{name: "a component is not marked before it is changed", edit: edit{"pkg/control/internal/execution/progress.go",
			"	if cmd.Operation.Mutates() && n.Run == nil {\n", "	if cmd.Operation.Mutates() && cmd.Component == \"\" {\n"},
			within: 40, finds: []string{"installs-heal", "success-means-done"}},
		{name: "a retry takes a lost component as done", edit: edit{"pkg/control/internal/execution/deployments.go",
			"was.Destroy == n.Destroy && was.State.Done() && !d.PlanOnly", "was.Destroy == n.Destroy && was.State.Final() && !d.PlanOnly"},
			within: 50, finds: []string{"success-means-done"}},
		{name: "a repeated request creates a second deployment", edit: edit{"pkg/control/internal/kernel/once.go",
			"		tx.PutIdempotency(hash, store.Idempotency{Request: request, Subject: subject}, tx.Now)\n", "		_ = store.Idempotency{Subject: subject}\n"},
			within: 60, finds: []string{"requests-count-once"}},

		{name: "a plan that expired is applied", edit: edit{"pkg/deployment/expiry.go",
			"	return n.Reason == fairlead.ReasonPlanExpired || ", "	return n.Reason == fairlead.ReasonPlanExpired && "},
			also:   []edit{{"pkg/deployment/apply.go", "	before := d.PlanExpires(n)\n", "	var before time.Time\n"}},
			within: 140, finds: []string{"expired-plans-are-not-applied"}},
		{name: "the sweep leaves plans that expired", edit: edit{"pkg/control/sweep.go",
			"	plans := c.SweepPlans(ctx, &s)\n", "	var plans error\n"},
			within: 100, finds: []string{"deployments-end", "installs-heal"}},

		// Builds and versions.
		{name: "a component is built again though its commit has not changed", edit: edit{"pkg/control/internal/execution/builds.go",
			"	if err != nil || ok {\n		out.Earlier", "	if err != nil || ok && id == \"\" {\n		out.Earlier"},
			within: 180, finds: []string{"unchanged-is-not-built"}},
		{name: "the artifact of a build is recorded as what was built", edit: edit{"pkg/control/internal/execution/builds.go",
			"b.Artifact, b.Revision = built.Artifact, built.Revision", "b.Revision, b.Artifact = built.Artifact, built.Revision"},
			within: 20, finds: []string{"builds-have-one-result"}},
		{name: "a version does not name the build of its artifact", edit: edit{"pkg/control/internal/catalog/builds.go",
			"BuiltBy{Job: id, Revision: b.Revision}", "BuiltBy{Revision: b.Revision}"},
			also:   []edit{{"pkg/control/internal/catalog/provenance.go", "	return err == nil, nil\n}\n\n// keptBuilds", "	return b.Artifact != \"\", nil\n}\n\n// keptBuilds"}},
			within: 20, finds: []string{"versions-have-their-artifacts"}},
		{name: "the build of another commit counts as that of the component", edit: edit{"pkg/control/internal/catalog/builds.go",
			"if !has || !old.SameBuild(c) || ", "if !has || old.Name != c.Name || "},
			also:   []edit{{"pkg/control/internal/catalog/provenance.go", "	return err == nil, nil\n}\n\n// keptBuilds", "	return b.Artifact != \"\", nil\n}\n\n// keptBuilds"}},
			within: 1500, finds: []string{"versions-have-their-artifacts"}},
		{name: "each runner builds", edit: edit{"pkg/control/internal/runners/builder.go",
			"if r.V.Builds && ", "if "},
			within: 20, finds: []string{"jobs-go-to-their-runner"}},

		// State and its lock.
		{name: "an attempt without the state lock may write the state", edit: edit{"pkg/control/internal/state/state.go",
			"	l := head.Lock\n	if l == nil {\n", "	l := head.Lock\n	if h.Job != \"\" {\n		return nil\n	}\n	if l == nil {\n"},
			within: 150, finds: []string{"states-tell-the-truth", "nothing-is-forgotten", "states-have-one-writer"}},
		{name: "the lock is taken without a lease", edit: edit{"pkg/control/internal/state/state.go",
			"if err := h.Fenced(j.Job); err != nil {\n			return err", "if err := h.Fenced(j.Job); err != nil && h.Epoch == 0 {\n			return err"},
			within: 700, finds: []string{"stale-epochs-are-refused"}},
		{name: "a lock outlives its job", edit: edit{"pkg/control/internal/state/state.go",
			"			if err := unheld(tx, component, *l); err != nil {\n				return err\n			}\n		}\n		head.V.Lock", "			if l.Job != h.Job {\n				return locked(component, *l)\n			}\n		}\n		head.V.Lock"},
			within: 20, finds: []string{"installs-heal"}},
		{name: "an attempt may release the lock of another one", edit: edit{"pkg/control/internal/state/state.go",
			"		if l.Job != h.Job || l.Epoch != h.Epoch || (lockID != \"\" && lockID != l.ID) {\n			return locked(component, *l)\n		}\n		head.V.Lock = nil", "		head.V.Lock = nil"},
			within: 120, finds: []string{"states-have-one-writer"}},
		{name: "a state is removed before the next one is committed", edit: edit{"pkg/control/internal/state/state.go",
			"		tx.PutState(head)\n		return nil\n	})\n	if err != nil {\n		return err // keep the blob", "		tx.PutState(head)\n		st.DropBlobs(ctx, head.V.History)\n		return nil\n	})\n	if err != nil {\n		return err // keep the blob"},
			within: 20, finds: []string{"states-are-kept", "states-are-readable"}},
		{name: "a lost attempt may read the state", edit: edit{"pkg/control/internal/state/state.go",
			"	if err := h.Fenced(j.Job); err != nil {\n		return nil, err", "	if err := h.Fenced(j.Job); err != nil && h.Epoch == 0 {\n		return nil, err"},
			within: 3400, finds: []string{"stale-epochs-are-refused"}},

		// The store.
		{name: "a job is written without its version", edit: edit{"pkg/store/typed.go",
			"put(t, jobKey(r.V.ID), r, list", "put(t, jobKey(r.V.ID), Stored[Job]{V: r.V, Version: anyVersion}, list"},
			within: 20, finds: []string{"job-states", "epochs-rise-with-claims", "one-step-per-lease", "final-is-final"}},
		{name: "an install is written without its version", edit: edit{"pkg/store/typed.go",
			"put(t, installKey(r.V.Org, r.V.Name), r) }\n\n// DeleteInstall", "put(t, installKey(r.V.Org, r.V.Name), Stored[Install]{V: r.V, Version: anyVersion}) }\n\n// DeleteInstall"},
			within: 250, finds: []string{"one-deployment-at-a-time", "one-apply-at-a-time", "deployments-end"}},
		{name: "a deployment is written without its version", edit: edit{"pkg/store/typed.go",
			"put(t, deploymentKey(id), r, list", "put(t, deploymentKey(id), Stored[Deployment]{V: r.V, Version: anyVersion}, list"},
			also:   []edit{},
			within: 300, finds: []string{"final-is-final", "deployments-end", "installs-heal"}},

		// The agent.
		{name: "processes of a dead step are not killed", edit: edit{"runner/agent/watch.go",
			"err := h.Kill(kill)", "err := kill.Err()"},
			within: 20, finds: []string{"nothing-is-left", "one-apply-at-a-time"}},
		{name: "the folder of a finished step is not removed", edit: edit{"runner/agent/watch.go",
			"	if clean || dir.Finished() {\n		a.remove(agentCtx, h.ID())\n		return", "	if clean || dir.Finished() {\n		return"},
			within: 20, finds: []string{"nothing-is-left"}},
		{name: "a stored death report is not sent after a restart", edit: edit{"runner/agent/reattach.go",
			"return func() { a.reportDeath(agentCtx, attemptID, epoch, d) }\n	}\n	in, inErr", "return func() { a.log.Info(\"reported before\", \"epoch\", d.Epoch) }\n	}\n	in, inErr"},
			within: 40, finds: []string{"nothing-is-left"}},
		{name: "steps of the previous agent are not watched", edit: edit{"runner/agent/reattach.go",
			"		a.running.Go(a.recoverStep(agentCtx, e.Name(), epoch))\n", "		a.log.Info(\"a step of the agent before\", \"epoch\", epoch)\n"},
			within: 20, finds: []string{"nothing-is-left"}},

		// The step and its log.
		{name: "a step continues after it has lost its lease", edit: edit{"runner/step/lease.go",
			"			l.lost()\n			return\n", "			return\n"},
			within: 1500, finds: []string{"fenced-tools-are-killed", "installs-heal"}},
		{name: "the tool of a dead step is killed before it can save", edit: edit{"runner/agent/watch.go",
			"		if survived = a.waitForToolToSave(agentCtx, by, h.ID(), exit); agentCtx.Err() != nil {\n", "		if agentCtx.Err() != nil {\n"},
			within: 40, finds: []string{"tools-may-save"}},
		{name: "a child process of the tool stays alive", edit: edit{"runner/step/step.go",
			"	n, err := a.Kill(reap)\n", "	n, err := 0, reap.Err()\n"},
			within: 20, finds: []string{"nothing-is-left"}},
		{name: "a log that did not arrive completely is not marked truncated", edit: edit{"runner/internal/logship/logship.go",
			"Truncated: s.truncated || n < s.written}", "Truncated: s.truncated}"},
			within: 400, finds: []string{"short-logs-say-so"}},
		{name: "an append whose answer was an error is taken as stored", edit: edit{"runner/step/step.go",
			"			return c.AppendLog(ctx, string(a.in.Job), offset, data)\n",
			"			next, err := c.AppendLog(ctx, string(a.in.Job), offset, data)\n			if err != nil && !client.Refused(err) {\n				return offset + int64(len(data)), nil\n			}\n			return next, err\n"},
			within: 140, finds: []string{"reports-are-accepted"}},

		// Left out, because the design makes them harmless or the models cannot show
		// them:
		//   - The wake-up is deleted before its claim: the sweep sends it again. The job
		//     only loses half a minute.
		//   - A commit is repeated with a new token: after the conflict the use case
		//     reads again, and recognizes its own writes.
		//   - A lock is taken from a job that has its lease: two jobs of one component
		//     never have leases at once.
		//   - A renewal or a report does not check the lease: package job refuses it.
		//   - A launch token is exchanged twice: the model of the executor starts an
		//     attempt once.
		//   - Attempts are not counted: four deaths of one job in a row are too rare for
		//     the simulator. The tests of package job count them.
		//   - The age of the answer to a start is not checked: the agent starts no other
		//     step of a component while one runs, and on another host the state refuses
		//     the old lease.
		//   - A claim assigns its job to a warm step of another agent, role, size or
		//     deployment, or a warm token buys two launch tokens: the simulator's executor
		//     shares the agent's folders, so no step starts ahead. The tests of warm steps
		//     in pkg/control have a row for each.
		//   - An agent of another version than the pinned one gets jobs: all agents of the
		//     simulator have one version. The tests of pins in pkg/control see it.
		//   - A live agent's steps are adopted: an agent of the simulator finds its steps
		//     on its disk. TestOnlyStepsOfGoneAgentsAreAdopted has a row for it.
		//   - A budget of log bytes is not counted, or counts for another runner: the logs of
		//     the simulator's tools are as short as one append, which is always stored. The
		//     suite joblogtest and TestLogOfANoisyRunnerIsCut see it.
		//   - A version takes the build of another commit: without a second mistake, the signed
		//     statement about the build refuses it. The table plants both.
		//   - A build keeps the result of an attempt that died between two writes of its
		//     report: no seed of the first 60 has such a death of a build.
		//   - A log does not continue at the control plane's offset: this needs a power
		//     loss at the end, and then the report is refused in any case.
	}
}
