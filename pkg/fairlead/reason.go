package fairlead

// Reason is why a job, or a component of a deployment, did not succeed. It is stable and in
// kebab-case: reports, records and events carry it, and programs decide on it. Texts for people
// are rendered from it. If a problem prevented a job from being created or started, its Code is
// the Reason.
type Reason string

// Reasons of the control plane.
const (
	ReasonCanceled     Reason = "canceled"
	ReasonTimeout      Reason = "timeout"
	ReasonQueueTimeout Reason = "queue-timeout"     // no agent claimed the job
	ReasonStartTimeout Reason = "start-timeout"     // an agent claimed the job, and no step started
	ReasonNoOutput     Reason = "no-output-timeout" // the tool wrote no output for too long
	ReasonPoison       Reason = "poison"            // every attempt died
	ReasonStepDied     Reason = "step-died"         // the step died of an unknown cause; see Cause
	ReasonLeaseExpired Reason = "lease-expired"     // the step did not renew its lease

	ReasonPlanExpired     Reason = "plan-expired"          // the plan is too old to be applied
	ReasonNeedsOutputs    Reason = "needs-outputs"         // the component needs outputs of components that are not deployed yet
	ReasonNeedsFailed     Reason = "needs-failed"          // the component needs a component that failed
	ReasonVarsTooLarge    Reason = "variables-too-large"   // the variables exceed the size of a job
	ReasonVersionAltered  Reason = "version-altered"       // the record of the version differs from the published version
	ReasonJobAltered      Reason = "job-altered"           // the record of the job differs from the job as created
	ReasonStorageChanged  Reason = "state-storage-changed" // the runner keeps states in another storage than the install's state is in
	ReasonRegistryMissing Reason = "registry-missing"      // the runner has no registry for the component
)

// Reasons of a step, for every plugin.
const (
	ReasonInternal              Reason = "internal"                // a defect of the product
	ReasonInterrupted           Reason = "interrupted"             // the runner was stopped
	ReasonStale                 Reason = "stale"                   // the lease belongs to another attempt
	ReasonReportRefused         Reason = "report-refused"          // the control plane refused the step's final report
	ReasonRoleRefused           Reason = "role-refused"            // the step could not assume the role of the operation
	ReasonSecretUnavailable     Reason = "secret-unavailable"      // the step could not read a secret that the customer gives to the job
	ReasonInstallKeyUnavailable Reason = "install-key-unavailable" // the step could not read the customer's seed of the install keys
	ReasonValuesEncrypted       Reason = "values-encrypted"        // a value was encrypted for a key that the step does not have, or was altered
	ReasonPolicyDenied          Reason = "policy-denied"           // the customer's policy denies the job
	ReasonPolicyUnavailable     Reason = "policy-unavailable"      // the customer's policy or its ledger cannot be read, so nothing may run
	ReasonApprovalMissing       Reason = "approval-missing"        // the customer's policy asks for an approval of the customer, and there is none
	ReasonValuesMissing         Reason = "values-missing"          // the control plane does not have sensitive values that the spec names
	ReasonReferenceInvalid      Reason = "reference-invalid"       // a reference leads to a part that a sensitive value does not have, or its type does not fit
	ReasonValuesAltered         Reason = "values-altered"          // sensitive values differ from those that the spec names
	ReasonValuesUnavailable     Reason = "values-unavailable"      // the control plane does not return the sensitive values
	ReasonOutputsTooLarge       Reason = "outputs-too-large"       // the tool succeeded, and its outputs cannot be kept
	ReasonWorkspaceHeld         Reason = "workspace-held"          // another attempt of the component uses the folder
	ReasonArtifactMissing       Reason = "artifact-missing"        // the registry does not have the artifact
	ReasonArtifactUnavailable   Reason = "artifact-unavailable"    // the registry does not return the artifact
	ReasonArtifactInvalid       Reason = "artifact-invalid"        // the artifact is hostile or damaged
	ReasonLogNotShared          Reason = "log-not-shared"          // the agent's operator does not share its log
	ReasonInstallKeyMissing     Reason = "install-key-missing"     // a value was encrypted for a key that the runner does not have
	ReasonEncryptedDamaged      Reason = "encrypted-value-damaged" // an encrypted value was changed, or belongs to another place
	ReasonEncryptedForeign      Reason = "encrypted-value-foreign" // a value was not made by the customer's side, although it must
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
	ReasonSpecImage     Reason = "spec-image" // the step runs in another image than the spec names

	ReasonProvenanceInvalid Reason = "provenance-invalid" // no trusted key signed that a build made the artifact from the component's source
)

// Reasons of plugins.
const (
	ReasonToolMissing       Reason = "tool-missing"       // the tool is not on this machine
	ReasonToolFailed        Reason = "tool-failed"        // the tool ran and failed
	ReasonToolKilled        Reason = "tool-killed"        // a signal that the runner did not send ended the tool
	ReasonPluginProtocol    Reason = "plugin-protocol"    // a plugin's program does not keep the protocol of plugins
	ReasonDiskFull          Reason = "disk-full"          // the runner's disk has no space for the state; nothing was changed
	ReasonEnvInvalid        Reason = "env-invalid"        // the spec sets a variable that it must not set
	ReasonSpecInvalid       Reason = "spec-invalid"       // the spec lacks something that the operation needs
	ReasonSourceUnavailable Reason = "source-unavailable" // the repository or registry does not return the source of a component, or of a module that it calls
	ReasonSourceInvalid     Reason = "source-invalid"     // a component's source is not what its type needs
	ReasonInitFailed        Reason = "init-failed"        // the tool could not get providers, modules or the backend

	ReasonPlanStale     Reason = "plan-stale"     // the state has changed since the plan was made
	ReasonPlanDigest    Reason = "plan-digest"    // the saved plan is not the plan that was approved
	ReasonPlanMissing   Reason = "plan-missing"   // the saved plan is not in its place
	ReasonPlanTooLarge  Reason = "plan-too-large" // the plan wrote more files next to the source than are kept
	ReasonPlanUnsaved   Reason = "plan-unsaved"   // the plan could not be saved for the apply
	ReasonPlanElsewhere Reason = "plan-elsewhere" // the saved plan is valid in another place only; nothing was changed

	ReasonBackendElsewhere Reason = "backend-elsewhere" // the tool would keep the state in another place than the runner does
	ReasonStateUnsaved     Reason = "state-unsaved"     // the tool could not save its state
	ReasonStateIncomplete  Reason = "state-incomplete"  // the tool could not save its state, and only a part of it was salvaged
	ReasonStateLocked      Reason = "state-locked"      // another job or person holds the lock on the state
	ReasonStateUnversioned Reason = "state-unversioned" // the bucket for a new state keeps no versions
	ReasonStateConflict    Reason = "state-conflict"    // the destination of a state holds another or a newer state
	ReasonStateMoving      Reason = "state-moving"      // the state changed while it was copied
	ReasonStateUnverified  Reason = "state-unverified"  // the copy of a state differs from the original
	ReasonStateUnreadable  Reason = "state-unreadable"  // the state is encrypted and cannot be read without its module
)

// Reasons of plugins that change a Kubernetes cluster.
const (
	ReasonClusterUnreachable Reason = "cluster-unreachable" // the cluster's API server does not answer
	ReasonClusterForbidden   Reason = "cluster-forbidden"   // the runner's role in the cluster does not permit a request
	ReasonKindUnknown        Reason = "kind-unknown"        // the cluster does not have the kind of an object
	ReasonObjectRefused      Reason = "object-refused"      // the API server refused an object
	ReasonObjectOwned        Reason = "object-owned"        // an object or a release belongs to another owner
	ReasonNotReady           Reason = "not-ready"           // objects did not become ready
	ReasonDeletionStuck      Reason = "deletion-stuck"      // a deleted object does not go

	ReasonClusterUnknown    Reason = "cluster-unknown"     // no connection to a cluster is configured
	ReasonAdmissionRefused  Reason = "admission-refused"   // a rule of the cluster refuses an object: a webhook, a policy or a quota
	ReasonObjectImmutable   Reason = "object-immutable"    // a change needs a new object, and the old one holds data
	ReasonNamespaceMissing  Reason = "namespace-missing"   // neither the cluster nor the component has an object's namespace
	ReasonManifestInvalid   Reason = "manifest-invalid"    // a file of the component does not describe objects
	ReasonInventoryTooLarge Reason = "inventory-too-large" // the component has too many objects for its inventory
	ReasonInventoryUnusable Reason = "inventory-unusable"  // the record of the component's objects cannot be read
	ReasonHelmFailed        Reason = "helm-failed"         // Helm failed for another reason than these
	ReasonChartInvalid      Reason = "chart-invalid"       // the chart is hostile, damaged, or does not render
	ReasonChartIncomplete   Reason = "chart-incomplete"    // the chart lacks subcharts
	ReasonValuesInvalid     Reason = "values-invalid"      // the values do not fit the chart's schema
	ReasonReleaseTooLarge   Reason = "release-too-large"   // Kubernetes cannot store the release's record
	ReasonHookFailed        Reason = "hook-failed"         // a hook of the chart failed
	ReasonHookTimeout       Reason = "hook-timeout"        // a hook of the chart did not complete in time
	ReasonImageNotInBundle  Reason = "image-not-in-bundle" // an object has an image that the lock of a closed app does not have
)

// Reasons of plugins that copy images between registries.
const (
	ReasonRegistryUnreachable Reason = "registry-unreachable" // a registry does not answer, or drops connections
	ReasonRegistryForbidden   Reason = "registry-forbidden"   // the runner's login to a registry does not permit a request
	ReasonRegistryLimited     Reason = "registry-limited"     // a registry limits the number of requests
	ReasonImageMissing        Reason = "image-missing"        // a registry does not have an image, or the image lacks a platform
	ReasonImageDamaged        Reason = "image-damaged"        // a registry returned other content than the digest names
	ReasonSignatureInvalid    Reason = "signature-invalid"    // no signature of an image verifies with the component's keys
)

// Reasons of builds that make an image from a Dockerfile.
const (
	ReasonBuildFailed        Reason = "build-failed"        // an instruction of the Dockerfile failed, or the Dockerfile is not valid
	ReasonBuilderMissing     Reason = "builder-missing"     // no image builder is configured on the build runner
	ReasonBuilderUnavailable Reason = "builder-unavailable" // the image builder does not answer, or ended before the build did
	ReasonImageInvalid       Reason = "image-invalid"       // the image builder made something else than the image that was asked for
)

// RegistryReasons lists the reasons of plugins that copy images between registries.
func RegistryReasons() []Reason {
	return []Reason{ReasonRegistryUnreachable, ReasonRegistryForbidden, ReasonRegistryLimited, ReasonImageMissing, ReasonImageDamaged, ReasonSignatureInvalid}
}

// ClusterReasons lists the reasons of plugins that change a Kubernetes cluster.
func ClusterReasons() []Reason {
	return []Reason{
		ReasonClusterUnknown, ReasonClusterUnreachable, ReasonClusterForbidden, ReasonAdmissionRefused, ReasonObjectRefused,
		ReasonObjectImmutable, ReasonObjectOwned, ReasonNotReady, ReasonDeletionStuck, ReasonKindUnknown, ReasonNamespaceMissing,
		ReasonManifestInvalid, ReasonInventoryTooLarge, ReasonInventoryUnusable, ReasonHelmFailed, ReasonChartInvalid,
		ReasonChartIncomplete, ReasonValuesInvalid, ReasonReleaseTooLarge, ReasonHookFailed, ReasonHookTimeout,
		ReasonImageNotInBundle,
	}
}

// ReasonsAfterChange lists the reasons of ClusterReasons and RegistryReasons that a plugin can report after its first change. Their advice does not
// state that nothing was changed.
func ReasonsAfterChange() []Reason {
	return []Reason{
		ReasonClusterUnreachable, ReasonClusterForbidden, ReasonAdmissionRefused, ReasonObjectRefused, ReasonNotReady, ReasonDeletionStuck,
		ReasonKindUnknown, ReasonNamespaceMissing, ReasonInventoryUnusable, ReasonHelmFailed, ReasonHookFailed, ReasonHookTimeout,
		ReasonRegistryUnreachable, ReasonRegistryForbidden, ReasonRegistryLimited, ReasonImageMissing, ReasonImageDamaged,
	}
}

// Cause is why the step of a job ended without a report, or why the step never started. It contains
// only what an executor can determine.
type Cause string

// The causes.
const (
	CauseExited       Cause = "exited"
	CauseKilled       Cause = "killed"
	CauseOutOfMemory  Cause = "out-of-memory"
	CauseVanished     Cause = "vanished"
	CauseLaunchFailed Cause = "launch-failed"
	// CauseMisconfigured: the runner's configuration makes it impossible to start steps.
	CauseMisconfigured Cause = "misconfigured"
	// CauseImagePull: the image could not be pulled. An agent reports it as CauseLaunchFailed.
	CauseImagePull Cause = "image-pull"
	// CauseImageUnavailable: the image that the component names could not be pulled, or has no build
	// for the machine's processor.
	CauseImageUnavailable Cause = "image-unavailable"
	// CauseImageRefused: the runner does not start jobs in the image that the component names.
	CauseImageRefused Cause = "image-refused"
	// CauseInstallRefused: the runner starts jobs as processes of another install.
	CauseInstallRefused Cause = "install-refused"
)

// Causes lists the causes that an agent reports.
func Causes() []Cause {
	return []Cause{CauseExited, CauseKilled, CauseOutOfMemory, CauseLaunchFailed, CauseMisconfigured, CauseImageUnavailable, CauseImageRefused, CauseInstallRefused, CauseVanished}
}

// Reported returns the cause that an agent reports for c. Two reported causes differ only if the
// difference decides whether another attempt may help. The message contains the other details.
func (c Cause) Reported() Cause {
	if c == CauseImagePull {
		return CauseLaunchFailed
	}
	return c
}

// Reason returns the reason of an attempt that died of the cause.
func (c Cause) Reason() Reason { return Reason("step-" + string(c)) }
