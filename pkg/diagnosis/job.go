package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// OfJob returns what is to be said of a job.
func OfJob(f Job, now time.Time) []Situation {
	j := f.Job
	var out []Situation
	if j.State == job.Queued {
		if s, ok := retrying(j, f.Runner, now); ok {
			out = append(out, s)
		}
		if f.Runner != nil {
			out = append(out, untaken(*f.Runner, j.Created.Add(job.QueueTimeout), cancelJob(j.ID, "gives it up now"))...)
		}
	}
	if s, ok := atWork(j, f.Runner, now); ok {
		out = append(out, s)
	}
	if s, ok := over(f, now); ok {
		out = append(out, s)
	}
	for i := range out {
		out[i].Component = j.Component
		if !slices.Contains([]Kind{RunnerSilent, RunnerDrains, RunnerFull, RunnerOff, RunnerHeld, RunnerOld, RunnerGone}, out[i].Kind) {
			out[i].Job = j.ID
		}
	}
	return out
}

// over is about a job that has ended, by itself: what its deployment makes of
// it is not known here.
func over(f Job, now time.Time) (Situation, bool) {
	j := f.Job
	var s Situation
	switch {
	case j.State == job.Lost:
		s = Situation{Kind: Lost, What: lostWhat(j, f.Runner), Known: []string{logOfLost(j)}}
		s.Next = append(s.Next, logs(j.ID, "shows what it had done until then"))
		if j.Deployment != "" {
			s.Next = append(s.Next, showDeployment(j.Deployment, "says what runs next, and what it waits for"))
		}
		return s, true
	case j.State == job.Failed:
		s = failure(j, f.Install, "", nil)
	case j.State == job.Canceled && j.Lease.Epoch > 0 && !j.Started.IsZero():
		s = Situation{Kind: Stopped, What: jobName(j) + " was stopped" + because(j.Reason, j.Message)}
		s.Next = append(s.Next, logs(j.ID, "shows how far it came"))
	default:
		return s, false
	}
	if j.Deployment != "" {
		s.Next = append(s.Next, showDeployment(j.Deployment, "says how to go on"))
	} else if j.Operation.OfRunner() && (f.Runner == nil || !f.Runner.Gone) {
		s.Next = append(s.Next, checkRunner(f.runner()))
	}
	return s, true
}

func (f Job) runner() string {
	if f.Runner != nil {
		return f.Runner.Name
	}
	return string(f.Job.Runner)
}

// jobName begins a sentence about a job.
func jobName(j job.Job) string { return fmt.Sprintf("The %s %s", j.Operation, j.ID) }

// lostWhat says what happened to a job that is lost: when, why, who had it and
// when that was last heard of.
func lostWhat(j job.Job, r *Runner) string {
	what := jobName(j) + " was lost at " + at(j.Finished) + because(j.Reason, j.Message)
	if n := len(j.Deaths); n > 0 {
		what += lastSeenText(j.Deaths[n-1], j.Started, r)
	}
	return what
}

// lastSeenText names the agent of an attempt that died, and when it was heard last.
func lastSeenText(d job.Death, started time.Time, r *Runner) string {
	var by string
	if a := r.agent(d); a != "" {
		by = " on " + a
	}
	switch {
	case started.IsZero() || d.LastSeen.IsZero():
		return ""
	case d.LastSeen.After(started):
		return fmt.Sprintf(" Its step%s began at %s and was last heard of at %s.", by, at(started), at(d.LastSeen))
	}
	return fmt.Sprintf(" Its step%s began at %s and was not heard of again.", by, at(started))
}

// agent names the agent that had the attempt, as far as it is still known.
func (r *Runner) agent(d job.Death) string {
	if r == nil {
		return ""
	}
	for _, a := range r.Agents {
		if a.Session == d.Session {
			return "agent " + a.Name + " of runner " + r.Name
		}
	}
	return "runner " + r.Name
}

// typeOf returns the type of the job's component. Plugins have the names of types.
func typeOf(j job.Job) component.Type {
	t, _ := component.Of(j.Plugin)
	return t
}

// logOfLost is what is true of the log of every lost job.
func logOfLost(j job.Job) string {
	return strings.TrimSpace("Its log ends where its step did; the tool may have said and done more. " + typeOf(j).LostLog)
}

// failure is about a job that failed. on names what goes on afterwards; nil:
// that is not known.
func failure(j job.Job, install, storage string, on []Step) Situation {
	s := Situation{Kind: Failed, Job: j.ID, Component: j.Component, What: jobName(j) + " failed" + because(j.Reason, j.Message)}
	read := logs(j.ID, "shows what the tool said")
	if j.Lease.Epoch == 0 || j.Reason == fairlead.ReasonStartTimeout {
		read = showJob(j.ID, "shows it") // nothing began, so there is no log
	}
	switch j.Reason {
	case fairlead.ReasonPoison:
		s.Kind = Poison
		s.What = fmt.Sprintf("%s was given up: its step died in each of %s.", jobName(j), count(j.Attempts, "attempt", "attempts"))
		if len(j.Deaths) == 0 && j.Message != "" {
			s.What += " The last: " + sentence(j.Message)
		}
		for i, d := range j.Deaths {
			s.Known = append(s.Known, fmt.Sprintf("Attempt %d, at %s%s", i+1, at(d.At), deathOf(d)))
		}
		s.untouched = true
		s.Known = append(s.Known, nothing+": a job that may have changed something gets one attempt only.")
		read.Effect = "shows what the tool said, attempt by attempt"
		s.Next = append(s.Next, read, byHand(mendPoison(j)))
	case fairlead.ReasonStateUnsaved, fairlead.ReasonStateIncomplete:
		s.Kind = StateUnsaved
		s.Known = append(s.Known, "What the tool made is there, and the component's state does not have it.")
		s.Next = append(s.Next, salvage(j, install, storage)...)
		s.Next = append(s.Next, read)
	case fairlead.ReasonToolKilled:
		if j.Operation.Mutates() && typeOf(j).StateFile == "" {
			s.Known = append(s.Known, "What it had done until then is done. The log says how far it came.")
		} else if j.Operation.Mutates() {
			s.Known = append(s.Known, "A tool that was killed may have made things that its state does not have. The log names them.")
			s.Next = append(s.Next, read, byHand(importByHand))
			break
		}
		s.Next = append(s.Next, read)
	case fairlead.ReasonStateLocked:
		stateLocked(&s, install, storage)
	case fairlead.ReasonOutputsTooLarge:
		if j.Operation.Mutates() {
			s.Known = append(s.Known, "What it was to do is done, and the component's state has it. Only its outputs are not stored: components that need them cannot be planned.")
		} else {
			s.untouched = true
			s.Known = append(s.Known, nothing+", and nothing has to be. The outputs are not stored: components that need them cannot be planned.")
		}
		s.Next = append(s.Next, byHand("Make the component's outputs smaller: keep large values in files or buckets, and output where they are. Publish the app again with {app.publish}, and deploy that version."))
	case fairlead.ReasonQueueTimeout:
		s.untouched = true
		s.Known = append(s.Known, nothing+": no agent ever took it.")
		s.Next = append(s.Next, read)
	default:
		if advice, ok := reasons(typeOf(j))[j.Reason]; ok {
			if advice.known != "" {
				s.untouched = true
				s.Known = append(s.Known, advice.known)
			}
			s.Next = append(s.Next, read)
			if advice.mend != "" && !(j.Reason == fairlead.ReasonInternal && j.DiskFull) { // a full disk is no fault of ours
				s.Next = append(s.Next, byHand(advice.mend))
			}
		} else {
			s.Next = append(s.Next, read)
		}
	}
	switch j.Reason {
	case fairlead.ReasonPoison, fairlead.ReasonStateUnsaved, fairlead.ReasonStateIncomplete, fairlead.ReasonDiskFull: // it is in their advice
	default:
		if j.DiskFull {
			s.Next = append(s.Next, byHand(freeSpace))
		}
	}
	s.Next = append(s.Next, on...)
	return s
}

// stateLocked is what is to be said of a job that did not get the lock of its state.
func stateLocked(s *Situation, install, storage string) {
	s.untouched = true
	s.Known = append(s.Known, nothing+": the tool takes the lock first.")
	if install != "" && (storage == "" || storage == "http" || storage == "local") {
		s.Next = append(s.Next, showInstall(install, "shows who holds the lock, if it is the control plane's to give"))
	}
	switch storage {
	case "", "http":
	case "local":
		s.Next = append(s.Next, byHand("The lock is on the runner's disk, and ends with the process that holds it: wait for that, or end it."))
	default:
		s.Next = append(s.Next, byHand("The lock is beside the state, in the runner's own storage, and the control plane cannot break it. A tool that was killed leaves it there: once nobody is at work on the state any more, the command in the job's message takes it off."))
	}
}

// nothing begins what is known where no tool has changed anything.
const nothing = "Nothing was changed"

// importByHand is what to do about things that a state does not have.
const importByHand = "Bring what is there and not in the state under control first: add an `import` block for each to the component's source and publish it with {app.publish}; or remove it by hand."

const freeSpace = "Free some space on the disk of the runner's data folder first."

// alteredMend is what to do about a version whose record was altered.
const alteredMend = "Publish the app again from the same folder, with {app.publish}: that writes the version's record anew. And find out who can write the control plane's table: the record was altered."

// updateAgent is what to do about a specification that a step cannot read.
const updateAgent = "Update the agent to the version of the control plane, then retry."

// refusedSpec is what to do about a specification that is not the one that the
// control plane signed for this attempt.
const refusedSpec = "Retry: a new job gets a new specification. If a step refuses that too, find out who changes what the control plane sends."

// reasons are those of plugins and of the control plane after which it is
// enough to mend something. known is what is true of the cloud; where it is not
// "", nothing was changed there.
func reasons(t component.Type) map[fairlead.Reason]struct{ known, mend string } {
	return map[fairlead.Reason]struct{ known, mend string }{
		fairlead.ReasonToolFailed:       {"", "Mend what its log names."},
		fairlead.ReasonInitFailed:       {nothing + ".", "Mend what its log names: a provider, a module, or the way to their registry."},
		fairlead.ReasonPlanStale:        {nothing + ". What the plan was made from has changed since.", ""},
		fairlead.ReasonPlanDigest:       {nothing + ". The saved plan is not the one that was approved.", ""},
		fairlead.ReasonPlanMissing:      {nothing + ". The saved plan is gone.", ""},
		fairlead.ReasonPlanUnsaved:      {nothing + ".", ""},
		fairlead.ReasonPlanTooLarge:     {nothing + ".", "Have the plan write less beside the module's source, as its message says."},
		fairlead.ReasonPlanElsewhere:    {nothing + ".", "Give all agents of the runner the same data folder, then retry."},
		fairlead.ReasonBackendElsewhere: {nothing + ".", "Take the backend out of the module's files, and publish the app again, with {app.publish}."},
		fairlead.ReasonWorkspaceHeld:    {nothing + ".", "Wait until the attempt that its message names has ended, or end it."},
		fairlead.ReasonToolMissing:      {nothing + ".", t.MissingTool},
		fairlead.ReasonArtifactMissing:  {nothing + ".", "Publish the app again, with {app.publish}."},
		fairlead.ReasonArtifactInvalid:  {nothing + ".", "Publish the app again, with {app.publish}."},
		fairlead.ReasonEnvInvalid:       {nothing + ".", ""},
		fairlead.ReasonDiskFull:         {nothing + ".", "Make room on the runner's disk, as its message says."},
		fairlead.ReasonSpecInvalid:      {nothing + ".", ""},
		fairlead.ReasonSpecArtifact:     {nothing + ".", alteredMend},
		fairlead.ReasonVersionAltered:   {nothing + ".", alteredMend},
		fairlead.ReasonJobAltered:       {nothing + ".", "Deploy again. And find out who can write the control plane's table: the job's record was altered."},

		fairlead.ReasonInternal:            {"", "Read the log of the runner's agent, and retry. If it fails again, report the problem with that log."},
		fairlead.ReasonInterrupted:         {"", "Start the runner's agent again, then retry."},
		fairlead.ReasonStale:               {"", "Another attempt of the job has the lease: read the result of that attempt."},
		fairlead.ReasonReportRefused:       {"", "Read in the log what the tool did, then plan again."},
		fairlead.ReasonRoleRefused:         {nothing + ".", "Let the runner assume the role that its message names."},
		fairlead.ReasonArtifactUnavailable: {nothing + ".", "Check the runner's connection to the registry, then retry."},
		fairlead.ReasonLogNotShared:        {nothing + ".", "Ask the runner's operator for the log."},
		fairlead.ReasonSpecMalformed:       {nothing + ".", updateAgent},
		fairlead.ReasonSpecVersion:         {nothing + ".", updateAgent},
		fairlead.ReasonSpecOperation:       {nothing + ".", updateAgent},
		fairlead.ReasonSpecSignature:       {nothing + ".", refusedSpec},
		fairlead.ReasonSpecRunner:          {nothing + ".", refusedSpec},
		fairlead.ReasonSpecInstall:         {nothing + ".", refusedSpec},
		fairlead.ReasonSpecJob:             {nothing + ".", refusedSpec},
		fairlead.ReasonSpecEpoch:           {nothing + ".", refusedSpec},
		fairlead.ReasonSpecPlan:            {nothing + ".", refusedSpec},
		fairlead.ReasonSpecExpired:         {nothing + ".", "Check the clocks of the runner and of the control plane, then retry."},
		fairlead.ReasonStateConflict:       {"", "Compare the two states that its message names, and keep the newer one."},
		fairlead.ReasonStateMoving:         {"", "Stop the process that changes the state, then migrate again with {install.migrate-state}."},
		fairlead.ReasonStateUnverified:     {"", "Check the new storage, then migrate again with {install.migrate-state}. The old state is unchanged."},
		fairlead.ReasonStateUnreadable:     {"", "Migrate the state with the tool and with the module that encrypts it."},
		fairlead.ReasonStorageChanged:      {nothing + ".", "Move the state to where the runner keeps states now, with {install.migrate-state}. Or give the runner its state storage back."},
		fairlead.ReasonStateUnversioned:    {nothing + ".", "Have the bucket keep versions, as its message says."},
		fairlead.ReasonTimeout:             {"", "Find out what it waited for. If it takes that long, allow it more with `job.timeout` in the runner's file ({runner.configure})."},
		fairlead.ReasonNoOutput:            {"", "Find out what it waited for. If it is silent for that long by its nature, allow it more with `job.no_output_timeout` in the runner's file ({runner.configure})."},
		fairlead.ReasonStartTimeout:        {nothing + ": no attempt of it began.", "Look at the runner's host and into its agent's log. If its image takes longer to be pulled, allow it more with `job.start_timeout` in the runner's file ({runner.configure})."},
	}
}

// deathOf renders the death of an attempt as the rest of a sentence. Its message
// has the exit code.
func deathOf(d job.Death) string {
	return because(d.Reason, d.Message)
}

// mendPoison says what to look for, by how the attempts died.
func mendPoison(j job.Job) string {
	kinds := map[fairlead.Reason]bool{}
	for _, d := range j.Deaths {
		kinds[d.Reason] = true
	}
	switch {
	case fullDisk(j):
		return freeSpace
	case kinds[fairlead.CauseOutOfMemory.Reason()]:
		return "Give the runner more memory, or run fewer jobs at once on it."
	case kinds[fairlead.CauseMisconfigured.Reason()]:
		return "Mend the runner's configuration ({runner.configure}), or the agent's environment: its message says which."
	case kinds[fairlead.CauseLaunchFailed.Reason()]:
		return "Look into the agent's log: it could not start its steps."
	case len(kinds) == 1 && kinds[fairlead.ReasonLeaseExpired]:
		return "Look at the runner's host and its network: its steps fell silent."
	case kinds[fairlead.CauseKilled.Reason()]:
		return "Find out what kills its steps: the host's memory, a limit, a person."
	}
	return "Look into the agent's log, which has the end of each step, and mend the cause."
}

// fullDisk reports whether the job, or an attempt of it, ended at a full disk.
func fullDisk(j job.Job) bool {
	return j.DiskFull || slices.ContainsFunc(j.Deaths, func(d job.Death) bool { return d.DiskFull })
}

// salvage says how a state that was not saved comes back. A copy takes the
// state's place only if it is known to be whole: half of one would take away
// what is known of everything else.
func salvage(j job.Job, install, storage string) []Step {
	var out []Step
	if fullDisk(j) {
		out = append(out, byHand(freeSpace))
	}
	if j.Salvaged == nil && j.Reason == fairlead.ReasonStateIncomplete {
		return append(out, byHand("No copy of the state was kept: what was made is in the log alone. "+importByHand))
	}
	if j.Salvaged == nil {
		// The job ended before runners reported what they keep, or they keep nothing.
		return append(out, byHand(fmt.Sprintf("It is not known whether a copy of the state was kept. Look on the runner's host, in its data folder, for salvage/%s-%d/errored.tfstate. "+
			"Copy it over no state unless it is whole, which `jq empty FILE` shows. Where there is none, or a part of one, what was made is in the log alone. %s", j.ID, j.Lease.Epoch, importByHand)))
	}
	kept := j.Salvaged.Path
	switch {
	case !j.Salvaged.Whole:
		return append(out, byHand(fmt.Sprintf("The copy that the runner keeps, in %s of its data folder, is not whole. Copy it over no state: use it, beside the log, to read what was made. %s", kept, importByHand)))
	case storage == "local":
		return append(out, byHand(fmt.Sprintf("On the runner's host, in its data folder, copy %s over %s before anything else is applied.", kept, typeOf(j).StatePath(string(j.Install), j.Component))))
	case storage != "" && storage != "http":
		return append(out, byHand(fmt.Sprintf("The state is kept on the runner's host, in %s of its data folder. Put it where the component's state is, in the runner's own storage, before anything else is applied: with `tofu state push`, in a folder whose backend is that place.", kept)))
	case install != "":
		return append(out, byHand("The state is kept on the runner's host, in its data folder. Push it before anything else is applied:"), pushState(install, j.Component, kept))
	}
	return out
}

// retrying is about a job that waits before its next attempt.
func retrying(j job.Job, r *Runner, now time.Time) (Situation, bool) {
	if len(j.Deaths) == 0 || j.State != job.Queued {
		return Situation{}, false
	}
	d := j.Deaths[len(j.Deaths)-1]
	s := Situation{Kind: Retrying, Job: j.ID, Component: j.Component,
		What: fmt.Sprintf("Attempt %d of %s ended at %s%s%s", len(j.Deaths), "the "+string(j.Operation)+" "+string(j.ID), at(d.At), deathOf(d), lastSeenText(d, d.Started, r))}
	next := "now"
	if j.NotBefore.After(now) {
		next = "at " + at(j.NotBefore)
	}
	s.Known = []string{fmt.Sprintf("The next attempt, %d of %d, may begin %s. Nothing was changed.", len(j.Deaths)+1, job.MaxAttempts, next)}
	s.Next = []Step{logs(j.ID, "shows what the tool said so far")}
	return s, true
}

// atWork is about a job that has a step: one that does not stop, or one that
// has fallen silent.
func atWork(j job.Job, r *Runner, now time.Time) (Situation, bool) {
	if j.State == job.Canceling {
		terms := j.Terms.OrDefault()
		s := Situation{Kind: Stopping, Job: j.ID, Component: j.Component,
			What: fmt.Sprintf("%s was asked to stop at %s%s", jobName(j), at(j.StopAsked), because(j.Stop, ""))}
		s.Known = []string{fmt.Sprintf("Its tool was interrupted. Should it not have saved its state and ended by %s, it is killed; at %s at the latest the job is over, whatever its step does.",
			at(j.StopAsked.Add(terms.Grace)), at(j.StopAsked.Add(j.Terms.StopTTL())))}
		s.Next = []Step{logs(j.ID, "shows what the tool does")}
		return s, true
	}
	if j.State != job.Running {
		return Situation{}, false
	}
	seen := j.Lease.Expires.Add(-j.Terms.OrDefault().LeaseTTL)
	if now.Sub(seen) <= j.Terms.RenewEvery()*3/2 {
		return Situation{}, false
	}
	s := Situation{Kind: StepSilent, Job: j.ID, Component: j.Component, What: fmt.Sprintf("The step of the %s %s was last heard of at %s.", j.Operation, j.ID, at(seen))}
	after := "the job is tried again"
	if j.Operation.Mutates() {
		after = "the job is lost, and a new plan shows what it left"
		if typeOf(j).Blind {
			after = "the job is lost, and waits for you to decide"
		}
	} else if j.Attempts >= job.MaxAttempts {
		after = "the job is given up"
	}
	s.Known = []string{fmt.Sprintf("If it stays silent until %s, %s.", at(j.Lease.Expires), after)}
	s.Next = []Step{logs(j.ID, "shows what it has said so far")}
	if r != nil && !r.Gone {
		s.Next = append(s.Next, showRunner(r.Name, "says which of its agents are there"))
	}
	return s, true
}

// Death renders how the step of an attempt died, for the attempt's message: its
// cause, exit code and signal, if it is known to have any, and what it wrote last.
func Death(c fairlead.Cause, exitCode *int, signal, tail string) string {
	what := map[fairlead.Cause]string{
		fairlead.CauseExited: "the step ended without a report", fairlead.CauseKilled: "the step was killed",
		fairlead.CauseOutOfMemory: "the step ran out of memory", fairlead.CauseLaunchFailed: "the step could not be launched",
		fairlead.CauseMisconfigured: "the runner cannot start jobs as its configuration says", fairlead.CauseVanished: "the step vanished",
	}[c]
	if exitCode != nil {
		what += fmt.Sprintf(" (exit code %d)", *exitCode)
	}
	if signal != "" {
		what += " (" + signal + ")"
	}
	if tail != "" {
		what += ": " + tail
	}
	return what
}
