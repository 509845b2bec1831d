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

// OfJob returns the situations of a job.
func OfJob(f Job, now time.Time) []Situation {
	j := f.Job
	var out []Situation
	if j.State == job.Queued {
		if s, ok := retrying(j, f.Runner, now); ok {
			out = append(out, s)
		}
		if f.Runner != nil {
			out = append(out, untaken(*f.Runner, j.Created.Add(job.QueueTimeout), cancelJob(j.ID, "cancels it now"))...)
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
		if !slices.Contains([]Kind{RunnerSilent, RunnerDrains, RunnerFull, RunnerOff, RunnerPinned, RunnerHeld, RunnerOld, RunnerGone}, out[i].Kind) {
			out[i].Job = j.ID
		}
	}
	return out
}

// over returns the situation of a finished job. The next steps of its deployment are not
// known here.
func over(f Job, now time.Time) (Situation, bool) {
	j := f.Job
	var s Situation
	switch {
	case j.State == job.Lost:
		s = Situation{Kind: Lost, What: lostWhat(j, f.Runner), Known: []string{logOfLost(j)}}
		s.Next = append(s.Next, logs(j.ID, "shows what it did before"))
		if j.Deployment != "" {
			s.Next = append(s.Next, showDeployment(j.Deployment, "shows what runs next and what waits"))
		}
		return s, true
	case j.State == job.Failed:
		s = failure(j, f.Install, "", nil)
	case j.State == job.Canceled && j.Lease.Epoch > 0 && !j.Started.IsZero():
		s = Situation{Kind: Stopped, What: jobName(j) + " was stopped" + because(j.Reason, j.Message)}
		s.Next = append(s.Next, logs(j.ID, "shows what it did before"))
	default:
		return s, false
	}
	if j.Deployment != "" {
		s.Next = append(s.Next, showDeployment(j.Deployment, "shows what to do next"))
	} else if j.Operation.OfRunner() && j.Operation != job.OpBuild && (f.Runner == nil || !f.Runner.Gone) {
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

// jobName returns the beginning of a sentence about a job.
func jobName(j job.Job) string { return fmt.Sprintf("The %s %s", j.Operation, j.ID) }

// lostWhat describes the loss of a job: when and why the job was lost, which agent ran it, and
// when its step was last seen.
func lostWhat(j job.Job, r *Runner) string {
	what := jobName(j) + " was lost at " + at(j.Finished) + because(j.Reason, j.Message)
	if n := len(j.Deaths); n > 0 {
		what += lastSeenText(j.Deaths[n-1], j.Started, r)
	}
	return what
}

// lastSeenText returns a sentence with the agent of a dead attempt and the time when its
// step was last seen.
func lastSeenText(d job.Death, started time.Time, r *Runner) string {
	var by string
	if a := r.agent(d); a != "" {
		by = " on " + a
	}
	switch {
	case started.IsZero() || d.LastSeen.IsZero():
		return ""
	case d.LastSeen.After(started):
		return fmt.Sprintf(" Its step%s started at %s and was last seen at %s.", by, at(started), at(d.LastSeen))
	}
	return fmt.Sprintf(" Its step%s started at %s and was not seen again.", by, at(started))
}

// agent returns the agent of the attempt, or the runner if the agent is no longer known.
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

// typeOf returns the type of the job's component. A plugin has the name of its component type.
func typeOf(j job.Job) component.Type {
	t, _ := component.Of(j.Plugin)
	return t
}

// logOfLost describes the log of a lost job.
func logOfLost(j job.Job) string {
	return strings.TrimSpace("Its log ends where its step ended; the tool may have done more. " + typeOf(j).LostLog)
}

// failure returns the situation of a failed job. The parameter on has the steps that continue
// after the failure; nil: not known.
func failure(j job.Job, install, storage string, on []Step) Situation {
	s := Situation{Kind: Failed, Job: j.ID, Component: j.Component, What: jobName(j) + " failed" + because(j.Reason, j.Message)}
	read := logs(j.ID, "shows the tool's output")
	if j.Lease.Epoch == 0 || j.Reason == fairlead.ReasonStartTimeout {
		read = showJob(j.ID, "shows the job") // no attempt started, so there is no log
	}
	switch j.Reason {
	case fairlead.ReasonPoison:
		s.Kind = Poison
		s.What = fmt.Sprintf("%s failed: its step died in each of %s.", jobName(j), count(j.Attempts, "attempt", "attempts"))
		if len(j.Deaths) == 0 && j.Message != "" {
			s.What += " The last one: " + sentence(j.Message)
		}
		for i, d := range j.Deaths {
			s.Known = append(s.Known, fmt.Sprintf("Attempt %d, at %s%s", i+1, at(d.At), deathOf(d)))
		}
		s.untouched = true
		s.Known = append(s.Known, nothing+": a job that may change something has only one attempt.")
		read.Effect = "shows the output of each attempt"
		s.Next = append(s.Next, read, byHand(poisonAdvice(j)))
	case fairlead.ReasonStateUnsaved, fairlead.ReasonStateIncomplete:
		s.Kind = StateUnsaved
		s.Known = append(s.Known, "The resources that the tool created exist, but the component's state does not contain them.")
		s.Next = append(s.Next, salvage(j, install, storage)...)
		s.Next = append(s.Next, read)
	case fairlead.ReasonToolKilled:
		if j.Operation.Mutates() && typeOf(j).StateFile == "" {
			s.Known = append(s.Known, "What it did before remains. The log shows what it did.")
		} else if j.Operation.Mutates() {
			s.Known = append(s.Known, "The killed tool may have created resources that its state does not contain. The log names them.")
			s.Next = append(s.Next, read, byHand(importByHand))
			break
		}
		s.Next = append(s.Next, read)
	case fairlead.ReasonStateLocked:
		stateLocked(&s, install, storage)
	case fairlead.ReasonOutputsTooLarge:
		if j.Operation.Mutates() {
			s.Known = append(s.Known, "The change succeeded and is in the component's state. Only its outputs are not stored, so components that need them cannot be planned.")
		} else {
			s.untouched = true
			s.Known = append(s.Known, nothing+", and no change is needed. The outputs are not stored, so components that need them cannot be planned.")
		}
		s.Next = append(s.Next, byHand("Make the component's outputs smaller: store large values in files or buckets, and return their paths. Publish the app again with {app.publish}, and deploy that version."))
	case fairlead.ReasonQueueTimeout, fairlead.ReasonPlanExpired:
		s.untouched = true
		s.Known = append(s.Known, nothing+": no agent claimed it.")
		s.Next = append(s.Next, read)
	default:
		if advice, ok := reasons(typeOf(j))[j.Reason]; ok {
			if advice.known != "" {
				s.untouched = true
				s.Known = append(s.Known, advice.known)
			}
			s.Next = append(s.Next, read)
			if advice.fix != "" && !(j.Reason == fairlead.ReasonInternal && j.DiskFull) { // the advice for internal errors does not fit a full disk
				s.Next = append(s.Next, byHand(advice.fix))
			}
		} else {
			s.Next = append(s.Next, read)
		}
	}
	switch j.Reason {
	case fairlead.ReasonPoison, fairlead.ReasonStateUnsaved, fairlead.ReasonStateIncomplete, fairlead.ReasonDiskFull: // the advice for these reasons contains the advice for a full disk
	default:
		if j.DiskFull {
			s.Next = append(s.Next, byHand(freeSpace))
		}
	}
	s.Next = append(s.Next, on...)
	return s
}

// stateLocked adds the advice for a job that did not get the lock of its state.
func stateLocked(s *Situation, install, storage string) {
	s.untouched = true
	s.Known = append(s.Known, nothing+": the tool takes the lock first.")
	if install != "" && (storage == "" || storage == "http" || storage == "local") {
		s.Next = append(s.Next, showInstall(install, "shows who holds the lock, if the control plane stores the state"))
	}
	switch storage {
	case "", "http":
	case "local":
		s.Next = append(s.Next, byHand("The lock is on the runner's disk. It ends with the process that holds it: wait for that process, or stop it."))
	default:
		s.Next = append(s.Next, byHand("The lock is in the runner's own state storage, and the control plane cannot remove it. A killed tool leaves its lock there. When no process uses the state any more, remove the lock with the command in the job's message."))
	}
}

// nothing is the beginning of each text that states that no tool changed anything.
const nothing = "Nothing was changed"

// importByHand is the advice for resources that exist but are not in the state.
const importByHand = "First import each resource that exists but is not in the state: add an `import` block to the component's source, and publish the app with {app.publish}. Or delete the resource by hand."

const freeSpace = "First free space on the disk of the runner's data folder."

// alteredAdvice is the advice for a version whose record was altered.
const alteredAdvice = "Publish the app again from the same folder, with {app.publish}: this writes the version's record again. Also find out who can write to the control plane's table, because the record was altered."

// updateAgent is the advice for a job spec that a step cannot read.
const updateAgent = "Update the agent to the version of the control plane, then retry."

// refusedSpec is the advice for a job spec that the control plane did not sign for this
// attempt.
const refusedSpec = "Retry: a new job gets a new job spec. If a step refuses that one too, find out who changes the messages of the control plane."

// reasons returns the advice for the reasons of plugins and of the control plane that have no
// case in failure. In the result, known is a fact about the cloud. If known is not empty,
// nothing was changed in the cloud. fix is what a person must do.
//
// long: it is a table.
func reasons(t component.Type) map[fairlead.Reason]struct{ known, fix string } {
	return map[fairlead.Reason]struct{ known, fix string }{
		fairlead.ReasonToolFailed:        {"", "Fix the error shown in the log."},
		fairlead.ReasonPluginProtocol:    {"", "Read in the log what the plugin did. Then give the message to the author of the plugin, publish the app again with the fixed plugin ({app.publish}), and deploy that version."},
		fairlead.ReasonInitFailed:        {nothing + ".", "Fix the error shown in the log: a provider, a module, or the connection to their registry."},
		fairlead.ReasonSourceUnavailable: {nothing + ".", "Correct the repository, the ref or the secret that the message names. Then publish the app again, with {app.publish}."},
		fairlead.ReasonSourceInvalid:     {nothing + ".", "Correct the source that the message names. Then publish the app again, with {app.publish}."},
		fairlead.ReasonPlanStale:         {nothing + ". The state or the inputs changed after the plan was made.", ""},
		fairlead.ReasonPlanDigest:        {nothing + ". The saved plan is not the one that was approved.", ""},
		fairlead.ReasonPlanMissing:       {nothing + ". The saved plan is gone.", ""},
		fairlead.ReasonPlanUnsaved:       {nothing + ".", ""},
		fairlead.ReasonPlanTooLarge:      {nothing + ".", "Make the plan smaller, as the message says."},
		fairlead.ReasonPlanElsewhere:     {nothing + ".", "Give all agents of the runner the same data folder and the same seed of install keys, then retry."},
		fairlead.ReasonBackendElsewhere:  {nothing + ".", "Remove the backend from the module's files, and publish the app again with {app.publish}."},
		fairlead.ReasonWorkspaceHeld:     {nothing + ".", "Wait for the end of the attempt that the message names, or stop it."},
		fairlead.ReasonToolMissing:       {nothing + ".", t.MissingTool},
		fairlead.ReasonArtifactMissing:   {nothing + ".", "Publish the app again, with {app.publish}."},
		fairlead.ReasonArtifactInvalid:   {nothing + ".", "Publish the app again, with {app.publish}."},
		fairlead.ReasonEnvInvalid:        {nothing + ".", ""},
		fairlead.ReasonDiskFull:          {nothing + ".", "Free space on the runner's disk, as the message says."},
		fairlead.ReasonSpecInvalid:       {nothing + ".", ""},
		fairlead.ReasonSpecArtifact:      {nothing + ".", alteredAdvice},
		fairlead.ReasonProvenanceInvalid: {nothing + ".", "Publish the app again with {app.publish}: a build makes the artifact and its provenance again. If the message names another artifact, source or key, also find out who can write to the control plane's table."},
		fairlead.ReasonVersionAltered:    {nothing + ".", alteredAdvice},
		fairlead.ReasonJobAltered:        {nothing + ".", "Deploy again. Also find out who can write to the control plane's table, because the job's record was altered."},

		fairlead.ReasonInternal:              {"", "Read the log of the runner's agent, and retry. If it fails again, report the problem with that log."},
		fairlead.ReasonInterrupted:           {"", "Start the runner's agent again, then retry."},
		fairlead.ReasonStale:                 {"", "Another attempt of the job has the lease: read the result of that attempt."},
		fairlead.ReasonReportRefused:         {"", "Read in the log what the tool did, then plan again."},
		fairlead.ReasonRoleRefused:           {nothing + ".", "Let the runner assume the role that the message names."},
		fairlead.ReasonSecretUnavailable:     {nothing + ".", "Ask the customer to correct the secret that the message names, or the step's access to it. Then retry."},
		fairlead.ReasonInstallKeyUnavailable: {nothing + ".", "Ask the customer to correct install_key in the agent's file, or the step's access to the seed that the message names. Then retry."},
		fairlead.ReasonValuesEncrypted:       {nothing + ".", "Ask the customer for the seed with which the value was encrypted: it must be in the list of seeds of each agent of the runner. If it is lost, set the value again."},
		fairlead.ReasonPolicyDenied:          {nothing + ".", "Change the app or the deployment so that the customer's policy permits it, or ask the customer to change the rule that the message names. Then deploy again."},
		fairlead.ReasonPolicyUnavailable:     {nothing + ".", "Ask the customer to correct the policy that the message names, or the step's access to it. Then retry."},
		fairlead.ReasonApprovalMissing:       {nothing + ".", "The customer's policy asks for an approval of the customer: ask the customer for it, or to change the rule that the message names."},
		fairlead.ReasonValuesUnavailable:     {nothing + ".", "Check the runner's connection to the control plane, then retry."},
		fairlead.ReasonValuesMissing:         {nothing + ".", "Deploy the install again with {install.deploy}. If that fails too, compare the releases of the runner and the control plane."},
		fairlead.ReasonReferenceInvalid:      {nothing + ".", "Correct the reference in app.yaml that the message names, or the input or output to which it leads. Then deploy again."},
		fairlead.ReasonValuesAltered:         {nothing + ".", "Deploy the install again with {install.deploy}. Also find out who can write the control plane's table, and who can change its answers."},
		fairlead.ReasonArtifactUnavailable:   {nothing + ".", "Check the runner's connection to the registry, then retry."},
		fairlead.ReasonLogNotShared:          {nothing + ".", "Ask the runner's operator for the log."},
		fairlead.ReasonSpecMalformed:         {nothing + ".", updateAgent},
		fairlead.ReasonSpecVersion:           {nothing + ".", updateAgent},
		fairlead.ReasonSpecOperation:         {nothing + ".", updateAgent},
		fairlead.ReasonSpecSignature:         {nothing + ".", refusedSpec},
		fairlead.ReasonSpecRunner:            {nothing + ".", refusedSpec},
		fairlead.ReasonSpecInstall:           {nothing + ".", refusedSpec},
		fairlead.ReasonSpecJob:               {nothing + ".", refusedSpec},
		fairlead.ReasonSpecEpoch:             {nothing + ".", refusedSpec},
		fairlead.ReasonSpecPlan:              {nothing + ".", refusedSpec},
		fairlead.ReasonSpecImage:             {nothing + ".", "Update the runner: an older one does not start a step in the image that the component names. If it is not older, find out who can change what the agent starts."},
		fairlead.ReasonSpecExpired:           {nothing + ".", "Check the clocks of the runner and of the control plane, then retry."},
		fairlead.ReasonStateConflict:         {"", "Compare the two states that the message names, and keep the newer one."},
		fairlead.ReasonStateMoving:           {"", "Stop the process that changes the state, then migrate again with {install.migrate-state}."},
		fairlead.ReasonStateUnverified:       {"", "Check the new storage, then migrate again with {install.migrate-state}. The old state is unchanged."},
		fairlead.ReasonInstallKeyMissing:     {nothing + ". The state was encrypted for a key that the runner does not have.", "Ask the customer to add the earlier seed below the current one on the runner, then plan again."},
		fairlead.ReasonEncryptedDamaged:      {nothing + ".", "Find out who can write to the storage of states and saved plans, because the message names a value that was changed. Then plan again."},
		fairlead.ReasonEncryptedForeign:      {nothing + ".", "Plan again, and check the plan. Also find out where the value comes from that the message names, because no step of the customer made it."},
		fairlead.ReasonStateUnreadable:       {"", "Migrate the state with the tool and with the module that encrypts it."},
		fairlead.ReasonStorageChanged:        {nothing + ".", "Move the state to the runner's new state storage, with {install.migrate-state}. Or set the runner's state storage back."},
		fairlead.ReasonRegistryMissing:       {nothing + ".", "Set registry in the runner's configuration, with {runner.configure}. Then deploy again."},
		fairlead.ReasonRegistryUnreachable:   {"", "Check the registry that the message names and the runner's connection to it, then plan again."},
		fairlead.ReasonRegistryForbidden:     {"", "Give the runner a login that permits the request, in registry.credentials of its configuration. Then plan again."},
		fairlead.ReasonRegistryLimited:       {"", "Plan again later, or give the runner a login to the registry that the message names."},
		fairlead.ReasonImageMissing:          {"", "Push the image that the message names, or correct image.yaml and publish the app again with {app.publish}."},
		fairlead.ReasonImageDamaged:          {"", "Push the image that the message names again: the registry, or a proxy before it, returns other content than the digest names. Then plan again."},
		fairlead.ReasonSignatureInvalid:      {nothing + ".", "Find out who pushed the image that the message names. Sign it with the expected key, or correct the keys of the component and publish the app again with {app.publish}."},
		fairlead.ReasonBuildFailed:           {nothing + ".", "Fix the error shown in the log. Then publish the app again, with {app.publish}."},
		fairlead.ReasonBuilderMissing:        {nothing + ".", "Give the build runner an image builder, as the message says. Then publish the app again, with {app.publish}."},
		fairlead.ReasonBuilderUnavailable:    {nothing + ".", "Start the image builder that the message names, or correct its address. Then publish the app again, with {app.publish}."},
		fairlead.ReasonImageInvalid:          {nothing + ".", "Find out what changed the image after it was built: the message names the part that is wrong. Then publish the app again, with {app.publish}."},
		fairlead.ReasonStateUnversioned:      {nothing + ".", "Enable versioning of the bucket, as the message says."},
		fairlead.ReasonClusterUnknown:        {nothing + ".", "Give the runner's jobs a connection to the Kubernetes cluster, as the message says."},
		fairlead.ReasonClusterUnreachable:    {"", "Check the cluster's API server and the runner's connection to it, then plan again."},
		fairlead.ReasonClusterForbidden:      {"", "Ask the customer to grant the job's identity the permission that the message names. Then plan again."},
		fairlead.ReasonAdmissionRefused:      {"", "Change the object as the message says, or ask the cluster's administrator to change the rule or the quota. Then plan again."},
		fairlead.ReasonObjectRefused:         {"", "Correct the object that the message names, and publish the app again with {app.publish}."},
		fairlead.ReasonObjectImmutable:       {nothing + ".", "Undo the change of the object that the message names, and publish the app again with {app.publish}. Or save its data, and replace it by hand."},
		fairlead.ReasonObjectOwned:           {nothing + ".", "Remove the object from one of the two components that the message names."},
		fairlead.ReasonNotReady:              {"", "Find out why the object that the message names is not ready: its events in the cluster show the cause. Then plan again."},
		fairlead.ReasonDeletionStuck:         {"", "Find out why the controller of the object that the message names does not finish the deletion. Then plan again."},
		fairlead.ReasonKindUnknown:           {"", "Add the definition of the kind to the component, or install it in the cluster first. Then plan again."},
		fairlead.ReasonNamespaceMissing:      {"", "Create the namespace that the message names, or add it to the component's files. Then plan again."},
		fairlead.ReasonManifestInvalid:       {nothing + ".", "Correct the file in the line that the message names, and publish the app again with {app.publish}."},
		fairlead.ReasonInventoryTooLarge:     {nothing + ".", "Split the component, as the message says."},
		fairlead.ReasonInventoryUnusable:     {"", "Do what the message says with the Secret that it names. Then plan again."},
		fairlead.ReasonHelmFailed:            {"", "Fix the error shown in the log."},
		fairlead.ReasonChartInvalid:          {nothing + ".", "Correct the chart as the message says, and publish the app again with {app.publish}."},
		fairlead.ReasonChartIncomplete:       {nothing + ".", "Add the missing subcharts with `helm dependency build`, and publish the app again with {app.publish}."},
		fairlead.ReasonValuesInvalid:         {nothing + ".", "Correct the component's values as the message says, and publish the app again with {app.publish}."},
		fairlead.ReasonReleaseTooLarge:       {"", "Split the chart into several components, or leave out large files. Then publish the app again with {app.publish}."},
		fairlead.ReasonHookFailed:            {"", "Read the log of the hook that the message names, and correct the hook."},
		fairlead.ReasonHookTimeout:           {"", "Find out what the hook that the message names waits for."},
		fairlead.ReasonImageNotInBundle:      {nothing + ".", "Name the image that the message names in app.yaml, under bundle.images. Write the lock again with {app.lock}, and publish the app again with {app.publish}."},
		fairlead.ReasonTimeout:               {"", "Find out what the job waited for. If it needs more time, increase `job.timeout` in the runner's file ({runner.configure})."},
		fairlead.ReasonNoOutput:              {"", "Find out what the job waited for. If its tool normally writes no output for that long, increase `job.no_output_timeout` in the runner's file ({runner.configure})."},
		fairlead.ReasonStartTimeout:          {nothing + ": no attempt started.", "Check the runner's host and its agent's log. If pulling the image takes longer, increase `job.start_timeout` in the runner's file ({runner.configure})."},
	}
}

// deathOf returns the death of an attempt as the end of a sentence. The death's message
// contains the exit code.
func deathOf(d job.Death) string {
	return because(d.Reason, d.Message)
}

// poisonAdvice returns the advice for a job whose attempts all died, by their death reasons.
func poisonAdvice(j job.Job) string {
	kinds := map[fairlead.Reason]bool{}
	for _, d := range j.Deaths {
		kinds[d.Reason] = true
	}
	switch {
	case fullDisk(j):
		return freeSpace
	case kinds[fairlead.CauseOutOfMemory.Reason()]:
		return "Give the runner more memory, or run fewer concurrent jobs on it."
	case kinds[fairlead.CauseMisconfigured.Reason()]:
		return "Fix the runner's configuration ({runner.configure}) or the agent's environment: the message names the error."
	case kinds[fairlead.CauseImageRefused.Reason()]:
		return "Give the install a runner that starts jobs in images of their own, or let the runner's operator permit the image: the message names what refuses it."
	case kinds[fairlead.CauseInstallRefused.Reason()]:
		return "Give the install a runner of its own, or one whose jobs have containers. The runner's operator can also permit that several installs share its machine: the message names the setting."
	case kinds[fairlead.CauseImageUnavailable.Reason()]:
		return "Check that the registry has the image that the message names, for the processor of the runner's machine, and that the runner's place may pull it. Then deploy again."
	case kinds[fairlead.CauseLaunchFailed.Reason()]:
		return "Read the agent's log: it could not start its steps."
	case len(kinds) == 1 && kinds[fairlead.ReasonLeaseExpired]:
		return "Check the runner's host and its network: its steps stopped renewing their leases."
	case kinds[fairlead.CauseKilled.Reason()]:
		return "Find out what kills its steps, such as the host running out of memory, a limit, or a person."
	}
	return "Read the agent's log, which has the end of each step, and fix the cause."
}

// fullDisk reports whether the job or one of its attempts ended because of a full disk.
func fullDisk(j job.Job) bool {
	return j.DiskFull || slices.ContainsFunc(j.Deaths, func(d job.Death) bool { return d.DiskFull })
}

// salvage returns the steps that restore a state that was not saved. The steps use a
// copy only if it is known to be complete, because an incomplete copy would remove resources
// from the state.
func salvage(j job.Job, install, storage string) []Step {
	var out []Step
	if fullDisk(j) {
		out = append(out, byHand(freeSpace))
	}
	if j.Salvaged == nil && j.Reason == fairlead.ReasonStateIncomplete {
		return append(out, byHand("No copy of the state was kept: only the log shows what was created. "+importByHand))
	}
	if j.Salvaged == nil {
		// The runner is too old to report its copy, or there is no copy.
		return append(out, byHand(fmt.Sprintf("It is not known whether a copy of the state was kept. On the runner's host, look for salvage/%s-%d/%s in the runner's data folder. "+
			"Use the file only if it is complete: `jq empty FILE` then reports no error. Without a complete file, only the log shows what was created. %s", j.ID, j.Lease.Epoch, typeOf(j).UnsavedState, importByHand)))
	}
	kept := j.Salvaged.Path
	switch {
	case !j.Salvaged.Whole:
		return append(out, byHand(fmt.Sprintf("The runner's copy of the state, in %s of its data folder, is incomplete. Do not use it as a state: read in it and in the log what was created. %s", kept, importByHand)))
	case storage == "local":
		return append(out, byHand(fmt.Sprintf("On the runner's host, in its data folder, copy %s over %s before the next apply.", kept, typeOf(j).StatePath(string(j.Install), j.Component))))
	case storage != "" && storage != "http":
		return append(out, byHand(fmt.Sprintf("The state is on the runner's host, in %s of its data folder. Before the next apply, upload it to the component's state in the runner's own storage: run `tofu state push` in a folder with that backend.", kept)))
	case install != "":
		return append(out, byHand("The state is on the runner's host, in its data folder. Upload it before the next apply:"), pushState(install, j.Component, kept))
	}
	return out
}

// retrying returns the situation of a job that waits before its next attempt.
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
	s.Known = []string{fmt.Sprintf("The next attempt, %d of %d, can start %s. Nothing was changed.", len(j.Deaths)+1, job.MaxAttempts, next)}
	s.Next = []Step{logs(j.ID, "shows the output so far")}
	return s, true
}

// slowStart is the time after which a start is a situation. A process starts in milliseconds; a
// container, a pod or a task takes seconds.
const slowStart = 3 * time.Second

// starting returns the situation of a claimed job whose step takes a while to start.
func starting(j job.Job, r *Runner, now time.Time) (Situation, bool) {
	if now.Sub(j.Claimed) < slowStart {
		return Situation{}, false
	}
	by := "A runner"
	if a := r.agent(job.Death{Session: j.Lease.Session}); a != "" {
		by = strings.ToUpper(a[:1]) + a[1:]
	}
	s := Situation{Kind: Starting, Job: j.ID, Component: j.Component,
		What: fmt.Sprintf("%s has been starting the %s %s since %s.", by, j.Operation, j.ID, at(j.Claimed))}
	after := "the job gets another attempt"
	if j.Attempts >= job.MaxAttempts {
		after = "the job fails"
	}
	s.Known = []string{fmt.Sprintf("A runner that starts a container, a pod or a task for each job needs up to a minute. If the step does not start by %s, %s. Nothing was changed.",
		at(j.Lease.Expires), after)}
	if r != nil && !r.Gone {
		s.Next = []Step{showRunner(r.Name, "shows which of its agents are online")}
	}
	return s, true
}

// atWork returns the situation of a claimed job whose step does not start, or of a running job
// whose step does not stop or does not renew the job's lease.
func atWork(j job.Job, r *Runner, now time.Time) (Situation, bool) {
	if j.State == job.Canceling {
		terms := j.Terms.OrDefault()
		s := Situation{Kind: Stopping, Job: j.ID, Component: j.Component,
			What: fmt.Sprintf("%s was asked to stop at %s%s", jobName(j), at(j.StopAsked), because(j.Stop, ""))}
		s.Known = []string{fmt.Sprintf("Its tool was interrupted. It is killed if it does not save its state and end by %s. The job ends at %s at the latest.",
			at(j.StopAsked.Add(terms.Grace)), at(j.StopAsked.Add(j.Terms.StopTTL())))}
		s.Next = []Step{logs(j.ID, "shows the tool's output")}
		return s, true
	}
	if j.State == job.Claimed {
		return starting(j, r, now)
	}
	if j.State != job.Running {
		return Situation{}, false
	}
	seen := j.Lease.Expires.Add(-j.Terms.OrDefault().LeaseTTL)
	if now.Sub(seen) <= j.Terms.RenewEvery()*3/2 {
		return Situation{}, false
	}
	s := Situation{Kind: StepSilent, Job: j.ID, Component: j.Component, What: fmt.Sprintf("The step of the %s %s was last seen at %s.", j.Operation, j.ID, at(seen))}
	after := "the job gets another attempt"
	if j.Operation.Mutates() {
		after = "the job is lost, and a new plan shows what is missing"
		switch {
		case j.Operation.OfAction():
			after = "the job is lost, and is not repeated"
		case typeOf(j).Blind:
			after = "the job is lost, and the deployment waits for your decision"
		}
	} else if j.Attempts >= job.MaxAttempts {
		after = "the job fails"
	}
	s.Known = []string{fmt.Sprintf("If the step does not renew its lease by %s, %s.", at(j.Lease.Expires), after)}
	s.Next = []Step{logs(j.ID, "shows the output so far")}
	if r != nil && !r.Gone {
		s.Next = append(s.Next, showRunner(r.Name, "shows which of its agents are online"))
	}
	return s, true
}

// Death returns the message of an attempt whose step died: the cause, the exit code and the
// signal if they are known, and the end of its output.
func Death(c fairlead.Cause, exitCode *int, signal, tail string) string {
	what := map[fairlead.Cause]string{
		fairlead.CauseExited: "the step ended without a report", fairlead.CauseKilled: "the step was killed",
		fairlead.CauseOutOfMemory: "the step ran out of memory", fairlead.CauseLaunchFailed: "the step could not be launched",
		fairlead.CauseMisconfigured: "the runner cannot start steps with its configuration", fairlead.CauseVanished: "the step vanished",
		fairlead.CauseImageUnavailable: "the component's image could not be pulled", fairlead.CauseImageRefused: "the runner does not start jobs in the component's image",
		fairlead.CauseInstallRefused: "the runner does not start jobs of this install",
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
