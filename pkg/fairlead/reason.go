package fairlead

// Reason is why a job, or a component of a deployment, did not succeed. It is
// stable and in kebab-case: reports, records and events carry it, and programs
// decide on it. What people read is rendered from it. The Code of a problem is a
// Reason as well, where a problem kept a job from being made or started.
type Reason string

// Reasons of the control plane.
const (
	ReasonCanceled     Reason = "canceled"
	ReasonTimeout      Reason = "timeout"
	ReasonQueueTimeout Reason = "queue-timeout"     // no agent took it
	ReasonStartTimeout Reason = "start-timeout"     // an agent took it, and no step of it began
	ReasonNoOutput     Reason = "no-output-timeout" // its tool wrote nothing for too long
	ReasonPoison       Reason = "poison"            // each of its attempts died
	ReasonStepDied     Reason = "step-died"         // without a cause; see Cause
	ReasonLeaseExpired Reason = "lease-expired"     // its step did not renew its lease

	ReasonNeedsOutputs   Reason = "needs-outputs"         // of components that are not deployed yet
	ReasonNeedsFailed    Reason = "needs-failed"          // what it needs has failed
	ReasonVarsTooLarge   Reason = "variables-too-large"   // what it is given is more than a job carries
	ReasonVersionAltered Reason = "version-altered"       // the record of its version is not what was published
	ReasonJobAltered     Reason = "job-altered"           // its own record is not what was made
	ReasonStorageChanged Reason = "state-storage-changed" // its runner keeps states elsewhere than the install's state is
)

// Reasons of a step, whatever the plugin.
const (
	ReasonInternal            Reason = "internal"             // a fault of ours
	ReasonInterrupted         Reason = "interrupted"          // the runner was told to stop
	ReasonStale               Reason = "stale"                // the lease belongs to another attempt
	ReasonReportRefused       Reason = "report-refused"       // the control plane refused the report of how it ended
	ReasonRoleRefused         Reason = "role-refused"         // the role of the operation was not given
	ReasonOutputsTooLarge     Reason = "outputs-too-large"    // all went well, and the outputs cannot be kept
	ReasonWorkspaceHeld       Reason = "workspace-held"       // another attempt of the component is at work in its folder
	ReasonArtifactMissing     Reason = "artifact-missing"     // the registry does not have it
	ReasonArtifactUnavailable Reason = "artifact-unavailable" // the registry does not give it
	ReasonArtifactInvalid     Reason = "artifact-invalid"     // hostile or damaged
	ReasonLogNotShared        Reason = "log-not-shared"       // the agent's operator does not let its log be asked for
)

// Reasons for which a step refuses its spec.
const (
	ReasonSpecMalformed Reason = "spec-malformed"
	ReasonSpecSignature Reason = "spec-signature"
	ReasonSpecVersion   Reason = "spec-version"
	ReasonSpecRunner    Reason = "spec-runner"
	ReasonSpecInstall   Reason = "spec-install"
	ReasonSpecJob       Reason = "spec-job"
	ReasonSpecEpoch     Reason = "spec-epoch"
	ReasonSpecOperation Reason = "spec-operation"
	ReasonSpecExpired   Reason = "spec-expired"
	ReasonSpecArtifact  Reason = "spec-artifact"
	ReasonSpecPlan      Reason = "spec-plan"
)

// Reasons of plugins.
const (
	ReasonToolMissing Reason = "tool-missing" // the tool is not on this machine
	ReasonToolFailed  Reason = "tool-failed"  // the tool ran and refused
	ReasonToolKilled  Reason = "tool-killed"  // a signal that was not the runner's ended the tool
	ReasonDiskFull    Reason = "disk-full"    // the runner's disk has no space for the state; nothing was changed
	ReasonEnvInvalid  Reason = "env-invalid"  // the spec sets a variable that is not its to set
	ReasonSpecInvalid Reason = "spec-invalid" // the spec lacks what the operation needs
	ReasonInitFailed  Reason = "init-failed"  // providers, modules or the backend are not to be had

	ReasonPlanStale     Reason = "plan-stale"     // the state has changed since the plan was made
	ReasonPlanDigest    Reason = "plan-digest"    // the saved plan is not the one that was approved
	ReasonPlanMissing   Reason = "plan-missing"   // the saved plan is not where it was put
	ReasonPlanTooLarge  Reason = "plan-too-large" // what the plan wrote beside the source is more than is kept
	ReasonPlanUnsaved   Reason = "plan-unsaved"   // the plan could not be put where an apply finds it
	ReasonPlanElsewhere Reason = "plan-elsewhere" // the saved plan is good for another place than where it was to be applied; nothing was changed

	ReasonBackendElsewhere Reason = "backend-elsewhere" // the tool would keep the state elsewhere than the runner does
	ReasonStateUnsaved     Reason = "state-unsaved"     // the tool could not save its state
	ReasonStateIncomplete  Reason = "state-incomplete"  // nor could it write down all of it for the runner to keep
	ReasonStateLocked      Reason = "state-locked"      // another job or person holds the lock on the state
	ReasonStateUnversioned Reason = "state-unversioned" // the bucket in which a state was to begin keeps no versions
	ReasonStateConflict    Reason = "state-conflict"    // where a state was to go is another, or a newer one
	ReasonStateMoving      Reason = "state-moving"      // the state was changed while it was copied
	ReasonStateUnverified  Reason = "state-unverified"  // the copy of a state does not read as it was written
	ReasonStateUnreadable  Reason = "state-unreadable"  // a state cannot be read without its module, which encrypts it
)

// Cause is how the step of a job ended that left no report, or why it never began,
// as far as an executor can see.
type Cause string

// The causes.
const (
	CauseExited       Cause = "exited"
	CauseKilled       Cause = "killed"
	CauseOutOfMemory  Cause = "out-of-memory"
	CauseVanished     Cause = "vanished"
	CauseLaunchFailed Cause = "launch-failed"
	// CauseMisconfigured: steps cannot be started as the runner's configuration says.
	CauseMisconfigured Cause = "misconfigured"
	// CauseImagePull: the image could not be had. An agent reports it as CauseLaunchFailed.
	CauseImagePull Cause = "image-pull"
)

// Causes lists those that an agent reports.
func Causes() []Cause {
	return []Cause{CauseExited, CauseKilled, CauseOutOfMemory, CauseLaunchFailed, CauseMisconfigured, CauseVanished}
}

// Reported returns the cause as an agent reports it. That tells apart what another
// attempt may mend; the message has the rest.
func (c Cause) Reported() Cause {
	if c == CauseImagePull {
		return CauseLaunchFailed
	}
	return c
}

// Reason returns the reason of an attempt that died of the cause.
func (c Cause) Reason() Reason { return Reason("step-" + c) }
