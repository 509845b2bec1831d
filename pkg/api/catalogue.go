package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// ProblemDoc describes a type of problem for those who meet it.
type ProblemDoc struct {
	Code    fairlead.Code // the type without its prefix
	Status  int
	Meaning string
	Remedy  string // what to do; it may name actions
}

// Problems returns every type of problem that the APIs answer with, by code.
func Problems() []ProblemDoc {
	all := slices.Concat(requestProblems(), callerProblems(), nounProblems(), runnerProblems(), faultProblems())
	slices.SortFunc(all, func(a, b ProblemDoc) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// catalogue holds Problems by code; it is never written again.
var catalogue = func() map[fairlead.Code]ProblemDoc {
	m := map[fairlead.Code]ProblemDoc{}
	for _, d := range Problems() {
		if _, ok := m[d.Code]; ok {
			panic("api: two problems are called " + string(d.Code))
		}
		m[d.Code] = d
	}
	return m
}()

func statusOfCode(code fairlead.Code) int {
	d, ok := catalogue[code]
	if !ok {
		panic("api: no problem is called " + string(code))
	}
	return d.Status
}

// requestProblems are about requests that no use case has seen.
func requestProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeBadCursor, http.StatusUnprocessableEntity, "The cursor is not one that this listing gave out.", "Start again from the first page."},
		{fairlead.CodeBodyTooLarge, http.StatusRequestEntityTooLarge, "The body is larger than the route takes.", "Send less. Logs are appended in parts of at most 1 MiB."},
		{fairlead.CodeIdempotencyKeyReused, http.StatusConflict, "The Idempotency-Key was used for another request within the last day.", "Use a new key for each request, and the same key only to repeat it."},
		{fairlead.CodeIdempotencyKeyTooLong, http.StatusUnprocessableEntity, "The Idempotency-Key is longer than 255 bytes.", "Use a shorter one, such as a UUID."},
		{fairlead.CodeInvalidRequest, http.StatusUnprocessableEntity, "Fields or parameters are unknown, missing, of the wrong type or out of bounds.", "`errors` names each of them. The OpenAPI document says what the route takes."},
		{fairlead.CodeMalformedRequest, http.StatusBadRequest, "The request is not well formed: broken JSON, a body that is missing or broke off, or a path that is not text.", "Repair the program that sent it."},
		{fairlead.CodeMethodNotAllowed, http.StatusMethodNotAllowed, "The path is known, and the method is not one of it.", "The header `Allow` lists those that are."},
		{fairlead.CodeNoRoute, http.StatusNotFound, "There is nothing at the path.", "Check the URL and the version of the caller."},
		{fairlead.CodeRecordTooLarge, http.StatusRequestEntityTooLarge, "What the request would store is larger than one record may be (375,000 bytes).", "Make inputs, plans' summaries or the app's configuration smaller: keep large values in files or buckets, and pass where they are."},
		{fairlead.CodeRequestTimeout, http.StatusRequestTimeout, "The body did not arrive in time.", "Repeat the request over a better connection."},
		{fairlead.CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, "The body is of a media type that the route does not take.", "`detail` names those that it takes."},
	}
}

// callerProblems are about who is calling.
func callerProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeAWSIdentityUnavailable, http.StatusServiceUnavailable, "AWS STS, which judges the proof of an AWS role, did not answer.", "Try again."},
		{fairlead.CodeEnrolmentRefused, http.StatusUnauthorized, "The enrolment token is wrong, expired, or used by another agent; or the agent's key was revoked.", "Make a new one with {runner.enrol}. An agent whose key was revoked makes another when identity.key and identity.json are removed from its data folder."},
		{fairlead.CodeInvalidKey, http.StatusUnprocessableEntity, "The public key is not 32 bytes of Ed25519.", "Repair the agent."},
		{fairlead.CodeLaunchTokenUsed, http.StatusForbidden, "The launch token has been traded by another step.", "End this step: another one runs the job."},
		{fairlead.CodeOIDCIssuerUnavailable, http.StatusServiceUnavailable, "The issuer of an OIDC token could not be asked for its keys, or what it answers is not as it must be. The control plane's log says why.", "Try again. An issuer that is not on the internet has its keys in the trust: {trust.update}."},
		{fairlead.CodeOtherArtifact, http.StatusForbidden, "A step asked the registry for something other than the source of its own component.", "Use an API token, or ask for the repository that the job's spec names."},
		{fairlead.CodeOtherJob, http.StatusForbidden, "The token is for another job.", "Use the token of this job."},
		{fairlead.CodeOtherState, http.StatusForbidden, "A step asked for the state of another component.", "Use the address that the job's spec names."},
		{fairlead.CodeSessionRefused, http.StatusUnauthorized, "The agent could not prove that it belongs to the runner, or its key was revoked.", "Enrol it again with a new token: {runner.enrol}. One whose key was revoked needs another: remove identity.key and identity.json from its data folder first. An agent with an AWS role or an OIDC token reads in `detail`, and `details.reason`, what is wrong with it."},
		{fairlead.CodeTooManyAtOnce, http.StatusTooManyRequests, "As many requests of this token are being answered as can be at once.", "Repeat it after the seconds that `Retry-After` says, and send fewer at once: 200 is the limit of an embedded control plane, unless its `--limit` says otherwise."},
		{fairlead.CodeTooManyRequests, http.StatusTooManyRequests, "The token sends more requests a second than one may.", "Repeat it after the seconds that `Retry-After` says, and send fewer: 300 a second is the limit of an embedded control plane, and 1,000 at once after a pause, unless its `--limit` says otherwise. Programs that work side by side have a token each: {token.create}."},
		{fairlead.CodeTooManyWaits, http.StatusTooManyRequests, "As many requests of this token wait for news as can at once.", "Repeat it after the seconds that `Retry-After` says, or without `wait_seconds`: 500 is the limit of an embedded control plane, unless its `--limit` says otherwise."},
		{fairlead.CodeTooManyWrongTokens, http.StatusTooManyRequests, "The token is wrong, and many wrong tokens come from the same address. Good tokens are taken from it all the same.", "Send the right token. The control plane logs how many wrong ones come from what address."},
		{fairlead.CodeUnauthenticated, http.StatusUnauthorized, "The token is missing, wrong, expired, or for another purpose.", "Log in with {session.login}; an agent asks for a new session."},
	}
}

// nounProblems are about what people work with.
//
// long: it is a table.
func nounProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeAppNameMismatch, http.StatusUnprocessableEntity, "The configuration names another app than the path.", "Publish it under its own name."},
		{fairlead.CodeAppNotFound, http.StatusNotFound, "There is no such app.", "{app.list} shows those that exist."},
		{fairlead.CodeArtifactMissing, http.StatusUnprocessableEntity, "A component comes without the sha256 digest of its artifact.", "Push the artifact first, and name its digest."},
		{fairlead.CodeArtifactUnknown, http.StatusUnprocessableEntity, "An artifact is named for a component that the configuration does not have.", "Name one artifact for each component and no more."},
		{fairlead.CodeComponentNotFound, http.StatusNotFound, "The deployment, or the install, has no such component.", "{deployment.show} and {install.show} list their components."},
		{fairlead.CodeDeployedSince, http.StatusConflict, "The install has been deployed since the deployment that was to be retried.", "Deploy it again with {install.deploy}."},
		{fairlead.CodeDeploymentNotFound, http.StatusNotFound, "There is no such deployment.", "{deployment.list} shows those that exist."},
		{fairlead.CodeDeploymentRuns, http.StatusConflict, "A deployment of the install is not over.", "`detail` names it: approve it if it awaits approval, wait for it, or cancel it."},
		{fairlead.CodeDeploymentState, http.StatusConflict, "The deployment is not in a state that allows this.", "{deployment.show} says where it is."},
		{fairlead.CodeInstallExists, http.StatusConflict, "There is an install of this name already.", "Choose another name, or change its inputs with {install.update}."},
		{fairlead.CodeInstallNotEmpty, http.StatusConflict, "Components of the install may still exist.", "Run {install.teardown} first, or leave everything where it is with {install.abandon}."},
		{fairlead.CodeInstallNotFound, http.StatusNotFound, "There is no such install.", "{install.list} shows those that exist."},
		{fairlead.CodeInvalidConfig, http.StatusUnprocessableEntity, "The app's configuration is not valid, or not in canonical form.", "Run {app.validate} on its folder."},
		{fairlead.CodeInvalidInput, http.StatusUnprocessableEntity, "The value of an input is not JSON.", "Repair the program that sent it."},
		{fairlead.CodeInvalidInputs, http.StatusUnprocessableEntity, "Inputs are unknown, missing or of the wrong type.", "`errors` names each; {app.show} lists what the app declares."},
		{fairlead.CodeInvalidKind, http.StatusUnprocessableEntity, "There is no such kind of deployment.", "Use `deploy` or `teardown`."},
		{fairlead.CodeInvalidName, http.StatusUnprocessableEntity, "The name is not one that things can have.", "Use 1 to 63 lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit."},
		{fairlead.CodeInvalidTrust, http.StatusUnprocessableEntity, "The AWS role that a runner is to trust is not named as it must be.", "Give the ARN that `aws iam get-role` prints, with its path, and the unique id (AROA and more)."},
		{fairlead.CodeInvalidOIDCTrust, http.StatusUnprocessableEntity, "The trust names no issuer, audience and claims that tokens can be held to, or any token would meet it.", "`detail` says what is wrong; docs/vendor/identity.md has an example for each platform."},
		{fairlead.CodeTrustExists, http.StatusConflict, "The runner has a trust of this name already.", "Choose another name, or change it with {trust.update}."},
		{fairlead.CodeAgentNotFound, http.StatusNotFound, "No agent has enrolled for the runner with such a key.", "{agent.list} shows those that have."},
		{fairlead.CodeTrustNotFound, http.StatusNotFound, "The runner has no such trust.", "{trust.list} shows those it has."},
		{fairlead.CodeTooManyTrusts, http.StatusConflict, "The runner has as many trusts as it can have.", "Delete one with {trust.delete}, or let one stand for several by a * in a claim."},
		{fairlead.CodeInvalidStorage, http.StatusUnprocessableEntity, "There is no such state storage.", "Use `local` or `http`."},
		{fairlead.CodeJobNotFound, http.StatusNotFound, "There is no such job.", "{job.list} shows those that exist."},
		{fairlead.CodeJobAltered, http.StatusConflict, "The record of the job was altered: its version is of another app than its install. The job has ended.", "Deploy the install again, and find out who can write the control plane's table."},
		{fairlead.CodeJobState, http.StatusConflict, "The job is not in a state that allows this.", "{job.show} says where it is."},
		{fairlead.CodeInvalidState, http.StatusUnprocessableEntity, "What was pushed is no Terraform state.", "Send the whole file as the tool wrote it."},
		{fairlead.CodeLockChanged, http.StatusConflict, "The state has another lock than the one that was looked at.", "Look at it first: {install.show}."},
		{fairlead.CodeLogNotFound, http.StatusNotFound, "The job has no log of this attempt.", "{job.show} lists its attempts."},
		{fairlead.CodeNotAwaitingApproval, http.StatusConflict, "There is no plan that waits for approval.", "{deployment.show} says where it is."},
		{fairlead.CodePlanChanged, http.StatusConflict, "The component has another plan than the one that was approved.", "Read the new plan before you approve it."},
		{fairlead.CodeQueueFull, http.StatusConflict, "Too many deployments of the install wait already.", "Cancel some of them: each would deploy the same install."},
		{fairlead.CodeInvalidAccount, http.StatusUnprocessableEntity, "It is no AWS account.", "Give the 12 digits of the customer's account."},
		{fairlead.CodeInvalidRegion, http.StatusUnprocessableEntity, "It is no region of AWS from which a runner can prove its role.", "Give a region such as `eu-central-1`, or none."},
		{fairlead.CodeNoPullLogin, http.StatusNotFound, "The registry of artifacts is the control plane's own.", "Use the lease token as the login."},
		{fairlead.CodeRegistryUnavailable, http.StatusServiceUnavailable, "The registry of artifacts gives no login now.", "Try again."},
		{fairlead.CodeLogAccessUnavailable, http.StatusServiceUnavailable, "Access to the log could not be had now.", "Write it through the API, or ask again."},
		{fairlead.CodeNoLogAccess, http.StatusNotFound, "The job has no way to its log but the API.", "Append to it with `append-job-log`."},
		{fairlead.CodeRunnerNotTaking, http.StatusConflict, "The runner takes no work now: it is disabled, draining, paused, or runs as many jobs as its configuration allows.", "Claim through the API without naming a job: that waits until it does."},
		{fairlead.CodeRunnerServesAnother, http.StatusConflict, "The install's runner is the one in another install's stack.", "Make a runner for this install, and create the install with it."},
		{fairlead.CodeRunnerTrustsAnother, http.StatusConflict, "The install's runner trusts another AWS role than the stack's.", "Replace it (`--replace`) if that stack is gone, or use another runner."},
		{fairlead.CodeStackNotFound, http.StatusNotFound, "The install has no runner stack.", "{install.ready-stack} readies it for one."},
		{fairlead.CodeStackNotPublished, http.StatusConflict, "The control plane knows no template and image that customers could install a runner from.", "Publish both, and set `FAIRLEAD_STACK_TEMPLATE_URL` and `FAIRLEAD_RUNNER_IMAGE`."},
		{fairlead.CodeStackRefused, http.StatusUnprocessableEntity, "What the runner reports of its stack is not what was asked for: another install, another external id, another account.", "{install.stack} prints the parameters that the customer's stack must have."},
		{fairlead.CodeRunnerExists, http.StatusConflict, "There is a runner of this name already.", "Choose another name, or enrol an agent of the one there is."},
		{fairlead.CodeRunnerNotFound, http.StatusNotFound, "There is no such runner.", "{runner.list} shows those that exist."},
		{fairlead.CodeStateLineage, http.StatusConflict, "The state is that of another component, or of another life of this one.", "Find the file that belongs to the component."},
		{fairlead.CodeStateOlder, http.StatusConflict, "The state is not newer than the one that is there.", "Nothing has to be pushed: later work has been saved since."},
		{fairlead.CodeNoState, http.StatusConflict, "The component is of a type that has no state.", "Nothing can be pushed; `detail` names the type."},
		{fairlead.CodeStateOnRunner, http.StatusConflict, "The state is on the runner's disk, which the control plane does not reach.", "Put the file in its place on the runner's host."},
		{fairlead.CodeBoundRunnerGone, http.StatusConflict, "The runner that the install is bound to was deleted, or no longer serves its group.", "{install.try-refresh} shows which one would take over."},
		{fairlead.CodeBrokenRule, http.StatusConflict, "The rule that decides where the install runs names a runner that is gone, or that does not serve the install.", "Delete the rule, or make one that names another runner."},
		{fairlead.CodeGroupExists, http.StatusConflict, "There is a group of this path already.", "{group.list} shows those that exist."},
		{fairlead.CodeGroupNotEmpty, http.StatusConflict, "The group holds something, or is being deleted.", "`detail` names what it holds: move or delete that first."},
		{fairlead.CodeGroupNotFound, http.StatusNotFound, "There is no such group.", "{group.list} shows those that exist; {group.create} makes one."},
		{fairlead.CodeInvalidGroup, http.StatusUnprocessableEntity, "The path is not one that groups can have.", "Write the names of groups with single slashes between them, up to 20 of them and 900 bytes: `customers/acme`."},
		{fairlead.CodeInvalidLabel, http.StatusUnprocessableEntity, "A label is not one that installs can have.", "Up to 16 labels; key and value are up to 63 letters, digits, dots, hyphens and underscores."},
		{fairlead.CodeInvalidMatch, http.StatusUnprocessableEntity, "No install could be matched with what the rule says, or it says it in another way than it must.", "`detail` and `hint` say how it is written."},
		{fairlead.CodeChannelNotFound, http.StatusNotFound, "There is no such update channel.", "{channel.list} shows those that there are."},
		{fairlead.CodeInvalidVersion, http.StatusUnprocessableEntity, "That is no version.", "Write it as v1.2.3."},
		{fairlead.CodeInvalidImage, http.StatusUnprocessableEntity, "The image is not named by its digest.", "Write IMAGE@sha256:…."},
		{fairlead.CodeInvalidMode, http.StatusUnprocessableEntity, "There is no such mode of a runner.", "Use `enabled`, `paused`, `draining` or `disabled`."},
		{fairlead.CodeInvalidRunner, http.StatusUnprocessableEntity, "The configuration of the runner is not valid.", "`errors` names each problem, with line and column; docs/reference/runner-file.md lists the fields."},
		{fairlead.CodeInvalidScope, http.StatusUnprocessableEntity, "Variables are set on one thing, and none or several are named.", "Name a runner, a group, an app or an install."},
		{fairlead.CodeInvalidVariable, http.StatusUnprocessableEntity, "A variable's name or value is not one that jobs can have, or there are too many.", "`detail` says which; names that begin with FAIRLEAD_ or TF_VAR_ are reserved."},
		{fairlead.CodeNamedRunnerGone, http.StatusConflict, "The runner that the install names is gone, or does not serve its group.", "{install.set-runner} names another."},
		{fairlead.CodeNoRunner, http.StatusConflict, "No runner serves the install.", "Make one, or a rule; {runner.explain} shows what was considered."},
		{fairlead.CodeOperatorOnly, http.StatusForbidden, "What is shared with every org is changed by whoever runs the control plane.", "Ask them, or make a runner of your own: it comes before a shared one."},
		{fairlead.CodeRuleExists, http.StatusConflict, "There is a rule for this match already.", "Delete it first: `detail` names it."},
		{fairlead.CodeRuleNotFound, http.StatusNotFound, "There is no such rule.", "{rule.list} shows those that exist."},
		{fairlead.CodeRunnerInUse, http.StatusConflict, "Installs or rules use the runner, or it is being deleted.", "`detail` names them: let the installs be placed elsewhere first."},
		{fairlead.CodeRunnerOutOfReach, http.StatusUnprocessableEntity, "The runner does not serve the group of the install, or all that the rule matches.", "Name another runner, or let the rule match on the runner's group."},
		{fairlead.CodeRunnerUnavailable, http.StatusConflict, "The runner that is to serve the install is disabled or draining, and no other takes its place by itself.", "Enable it with {runner.enable}, or name another in a rule."},
		{fairlead.CodeMigrateOrLose, http.StatusUnprocessableEntity, "A state cannot be both moved and given up.", "Say one of the two."},
		{fairlead.CodeNothingToMove, http.StatusConflict, "There is no state to be moved, or it is there already.", "Tell the runner first to keep states elsewhere, or refresh it with {install.move}."},
		{fairlead.CodeStateMoving, http.StatusConflict, "The state of the install is being moved.", "Wait for the job that the message names, or cancel it: the state is then where it was."},
		{fairlead.CodeStateMoved, http.StatusConflict, "The job has no state to move any more.", "Nothing is to be done."},
		{fairlead.CodeStateUnknown, http.StatusConflict, "A job of the install was lost, whose tool may still save its state.", "Deploy the install first, so that a plan shows what there is."},
		{fairlead.CodeStateOutOfReach, http.StatusConflict, "No runner reaches both the old and the new place of the state.", "Move the state to `http` or a bucket first, and then on."},
		{fairlead.CodeStateStorageChanged, http.StatusConflict, "The runner keeps states elsewhere than the install's state is.", "{install.migrate-state} moves the state. Or give the runner its state storage back."},
		{fairlead.CodeStateStorageChanges, http.StatusConflict, "With the other runner, the install's state would be in another place.", "{install.move} moves it, {install.lose-state} gives it up."},
		{fairlead.CodeDeliveryNotFound, http.StatusNotFound, "There is no such delivery, or it is older than 30 days.", "{webhook.deliveries} lists those there are."},
		{fairlead.CodeInvalidWebhookEvent, http.StatusUnprocessableEntity, "The pattern selects no events.", "Use a type such as `fairlead.job.failed`, `fairlead.job.*` or `*`."},
		{fairlead.CodeInvalidWebhookURL, http.StatusUnprocessableEntity, "Nothing can be sent to the URL.", "Use https, a host that is reached from the internet, and neither a user nor a fragment."},
		{fairlead.CodeInvalidExpiry, http.StatusUnprocessableEntity, "The token would have expired already.", "Name a time that is to come."},
		{fairlead.CodeLastToken, http.StatusConflict, "The token is the last by which the control plane, or what is shared with every org, can be used.", "Make another one first: {token.create-operator}."},
		{fairlead.CodeTokenExists, http.StatusConflict, "There is an API token of this name already.", "Choose another name, or revoke it first."},
		{fairlead.CodeTokenNotFound, http.StatusNotFound, "There is no such API token, or it was revoked.", "{token.list} shows those that exist."},
		{fairlead.CodeTooManyTokens, http.StatusConflict, "There are as many API tokens as there can be.", "Revoke one with {token.revoke}."},
		{fairlead.CodeTooManyWebhooks, http.StatusConflict, "There are as many webhooks as there can be.", "Delete one with {webhook.delete}."},
		{fairlead.CodeWebhookExists, http.StatusConflict, "There is a webhook of this name already.", "Choose another name, or delete it first."},
		{fairlead.CodeWebhookNotFound, http.StatusNotFound, "There is no such webhook.", "{webhook.list} shows those that exist."},
		{fairlead.CodeVersionNotFound, http.StatusNotFound, "There is no such version of an app.", "{app.show} names the newest."},
		{fairlead.CodeVersionAltered, http.StatusConflict, "The record of an app's version was altered: its content has another identifier. Nothing of it is deployed, and a job that is about to start for it has ended.", "Publish the app again from the same folder, which writes the record anew, and find out who can write the control plane's table. `details` names the app and the version."},
		{fairlead.CodeComponentTypeChanged, http.StatusUnprocessableEntity, "A component that is there is of another type in this version.", "Give the new component another name: the old one is destroyed then, by what made it."},
		{fairlead.CodeVersionOfOtherApp, http.StatusUnprocessableEntity, "The version is one of another app.", "Name a version of the app that is installed."},
	}
}

// runnerProblems are about what agents and steps do.
func runnerProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeInvalidHeartbeat, http.StatusUnprocessableEntity, "The heartbeat names too many jobs, or a negative capacity.", "Repair the agent."},
		{fairlead.CodeInvalidLock, http.StatusUnprocessableEntity, "The lock info is not JSON with an ID of 1 to 200 bytes, or larger than 8 KiB.", "Send what Terraform's http backend sends."},
		{fairlead.CodeInvalidOutcome, http.StatusUnprocessableEntity, "There is no such outcome of a job.", "Use `succeeded`, `failed` or `canceled`."},
		{fairlead.CodeInvalidReason, http.StatusUnprocessableEntity, "There is no such reason for the end of a step.", "Use one that the OpenAPI document lists."},
		{fairlead.CodeLogDiverged, http.StatusConflict, "Other bytes are stored at this offset.", "Stop: two writers append to one log."},
		{fairlead.CodeLogFenced, http.StatusConflict, "The log of this attempt has ended.", "Stop: the attempt is over."},
		{fairlead.CodeLogFull, http.StatusRequestEntityTooLarge, "The log has reached its limit.", "Go on without it, and say at the end that it was truncated."},
		{fairlead.CodeLogOffset, http.StatusConflict, "The bytes before this offset are not there, or the log is shorter than its writer says.", "Go on at `details.want`."},
		{fairlead.CodePlanMissing, http.StatusUnprocessableEntity, "A plan job is said to have succeeded and comes without a plan.", "Repair the runner."},
		{fairlead.CodePlanNotFound, http.StatusNotFound, "The saved plan is gone: its deployment is over.", "Plan again with a new deployment."},
		{fairlead.CodeOutputsTooLarge, http.StatusRequestEntityTooLarge, "The outputs of a component are larger than 16 MiB in all.", "Keep large values in files or buckets, and output where they are."},
		{fairlead.CodePlanTooLarge, http.StatusRequestEntityTooLarge, "The saved plan is larger than 64 MiB.", "Split the component."},
		{fairlead.CodeSessionNotFound, http.StatusNotFound, "The session has been forgotten.", "Ask for a new session."},
		{fairlead.CodeStaleEpoch, http.StatusConflict, "The lease has been given to somebody else, or the job is over.", "Kill the tool and stop: whatever is reported is not recorded any more."},
		{fairlead.CodeStateDigestMismatch, http.StatusUnprocessableEntity, "The state does not have the MD5 that its header says.", "Send it again; it was damaged on the way."},
		{fairlead.CodeStateLocked, http.StatusLocked, "Another job holds the lock of the state. To Terraform's http backend the answer is the holder's lock info in place of a problem.", "Wait for the job that `details.job` names. A lock whose job is over is broken by itself."},
		{fairlead.CodeStateNotLocked, http.StatusConflict, "The state is not locked, or not by this job.", "A step takes the lock before it writes; a person has nothing to unlock."},
		{fairlead.CodeStateTooLarge, http.StatusRequestEntityTooLarge, "The state is larger than 64 MiB.", "Split the component."},
	}
}

// faultProblems are nobody's fault but the server's or its world's.
func faultProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeCommitTooLarge, http.StatusRequestEntityTooLarge, "The change touches more records than one commit holds.", "Make what components are given smaller, or cut the app in two."},
		{fairlead.CodeDataBusy, http.StatusServiceUnavailable, "The database stayed locked by another program.", "Look for a backup or another tool that has the file open, then repeat the request."},
		{fairlead.CodeDataCorrupt, http.StatusInternalServerError, "A database file is damaged.", "Restore it from a backup. It was left as it is."},
		{fairlead.CodeDataIO, http.StatusServiceUnavailable, "The disk failed to read or write.", "Check the disk and the system's log, then repeat the request."},
		{fairlead.CodeDataReadOnly, http.StatusServiceUnavailable, "The data folder cannot be written.", "Check its owner, its mode, and how its file system is mounted."},
		{fairlead.CodeDiskFull, http.StatusServiceUnavailable, "The disk is full. Everything that was confirmed is stored.", "Free some space and repeat the request."},
		{fairlead.CodeInternal, http.StatusInternalServerError, "A fault in the control plane.", "Look into its log under the request id, and report it."},
		{fairlead.CodeInterrupted, http.StatusServiceUnavailable, "The control plane stopped, or lost its database, while the request waited.", "Repeat the request."},
		{fairlead.CodeSealedValueDamaged, http.StatusInternalServerError, "A sealed value cannot be opened: it was changed, or moved.", "Restore the data folder as a whole from one backup."},
		{fairlead.CodeSealingKeyMissing, http.StatusInternalServerError, "The key that a value was sealed with is not among those that the server has.", "Restore `keys/seal.key` from the backup that belongs to the data."},
		{fairlead.CodeStoreUnavailable, http.StatusServiceUnavailable, "The database cannot be reached, or is throttled.", "Repeat the request."},
		{fairlead.CodeTableMissing, http.StatusInternalServerError, "The database has no such table.", "Deploy the control plane's stack, or correct the name of the table."},
		{fairlead.CodeTokenReused, http.StatusInternalServerError, "A fault in the control plane: a commit's token was used twice.", "Look into its log under the request id, and report it."},
		{fairlead.CodeTooManyConflicts, http.StatusServiceUnavailable, "Others kept changing the same records.", "Repeat the request."},
	}
}
