package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// ProblemDoc describes a type of problem for people who receive it.
type ProblemDoc struct {
	Code    fairlead.Code // the type without its prefix
	Status  int
	Meaning string
	Remedy  string // what to do next; may contain actions in braces
}

// Problems returns every type of problem that the APIs answer with, sorted by code.
func Problems() []ProblemDoc {
	all := slices.Concat(requestProblems(), callerProblems(), nounProblems(), runnerProblems(), faultProblems())
	slices.SortFunc(all, func(a, b ProblemDoc) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// catalogue holds Problems by code; it is never changed.
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

// requestProblems returns the problems of requests that are refused before package
// control handles them.
func requestProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeAnswerTooLarge, http.StatusRequestEntityTooLarge, "The answer is larger than AWS Lambda accepts, about 4.6 MB.", "Use the CLI or a runner of the control plane's version: they get large answers in parts, with the header Fairlead-Accept-Parts."},
		{fairlead.CodeBadCursor, http.StatusUnprocessableEntity, "This listing did not make the cursor.", "Start again from the first page."},
		{fairlead.CodeBodyNotStaged, http.StatusUnprocessableEntity, "The request names a body of which a part is missing or differs.", "Send all parts again, then repeat the request."},
		{fairlead.CodeBodyTooLarge, http.StatusRequestEntityTooLarge, "The body is larger than the route accepts.", "Send less. Logs are appended in parts of at most 1 MiB."},
		{fairlead.CodeIdempotencyKeyReused, http.StatusConflict, "The Idempotency-Key was used for another request within the last day.", "Use a new key for each request, and the same key only to repeat it."},
		{fairlead.CodeIdempotencyKeyTooLong, http.StatusUnprocessableEntity, "The Idempotency-Key is longer than 255 bytes.", "Use a shorter one, such as a UUID."},
		{fairlead.CodeInvalidRequest, http.StatusUnprocessableEntity, "Fields or parameters are unknown, missing, of the wrong type or out of bounds.", "`errors` names each of them. The OpenAPI document describes what the route accepts."},
		{fairlead.CodeMalformedRequest, http.StatusBadRequest, "The request is not well formed: broken JSON, a body that is missing or broke off, or a path that is not text.", "Repair the program that sent it."},
		{fairlead.CodeMethodNotAllowed, http.StatusMethodNotAllowed, "The path exists, but not with this method.", "The header `Allow` lists the methods of the path."},
		{fairlead.CodeNoRoute, http.StatusNotFound, "No route has this path.", "Check the URL and the version of the caller."},
		{fairlead.CodeRecordTooLarge, http.StatusRequestEntityTooLarge, "The request would store a record of more than 375,000 bytes.", "Make inputs, plans' summaries or the app's configuration smaller: keep large values in files or buckets, and pass their location."},
		{fairlead.CodeRequestTimeout, http.StatusRequestTimeout, "The body did not arrive in time.", "Repeat the request over a better connection."},
		{fairlead.CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, "The route does not accept the media type of the body.", "`detail` names the media types that it accepts."},
	}
}

// callerProblems returns the problems of authentication and of callers' limits.
func callerProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeAWSIdentityUnavailable, http.StatusServiceUnavailable, "AWS STS, which verifies the proof of an AWS role, did not answer.", "Try again."},
		{fairlead.CodeEnrolmentRefused, http.StatusUnauthorized, "The enrolment token is wrong, expired, or used by another agent; or the agent's key was revoked.", "Make a new one with {runner.enrol}. An agent whose key was revoked makes a new key after identity.key and identity.json are removed from its data folder."},
		{fairlead.CodeInvalidKey, http.StatusUnprocessableEntity, "The public key is not 32 bytes of Ed25519.", "Repair the agent."},
		{fairlead.CodeLaunchTokenUsed, http.StatusForbidden, "Another step has used the launch token.", "End this step: another step runs the job."},
		{fairlead.CodeLoginRefused, http.StatusUnauthorized, "The control plane does not accept the token of a login: the ID token of a person, or the OIDC token of a program.", "Log in again with {session.login}. A program requests a new token from its platform. `detail` and `details.reason` have the reason."},
		{fairlead.CodeNotInvited, http.StatusForbidden, "The person has logged in at the issuer, and no org of this control plane has invited the person.", "Ask an owner of the org for an invitation of the email that `detail` names: {user.invite}."},
		{fairlead.CodeNotLogin, http.StatusConflict, "The request has an API token, and only a login can be ended.", "Revoke the token: {token.revoke}."},
		{fairlead.CodeOrgAmbiguous, http.StatusConflict, "Several orgs have invited the person.", "Name one of the orgs in `details.orgs`."},
		{fairlead.CodeOIDCIssuerUnavailable, http.StatusServiceUnavailable, "The issuer of an OIDC token did not answer with its keys, or its answer is not valid. The control plane's log has the reason.", "Try again. For an issuer that is not on the internet, put its keys into the service account with {account.update}, or into the settings of the issuer with {issuer.set}."},
		{fairlead.CodeOtherArtifact, http.StatusForbidden, "A step asked the registry for something other than the source of its own component.", "Use an API token, or ask for the repository that the job's spec names."},
		{fairlead.CodeOtherJob, http.StatusForbidden, "The token is for another job.", "Use the token of this job."},
		{fairlead.CodeOtherState, http.StatusForbidden, "A step asked for the state of another component.", "Use the address that the job's spec names."},
		{fairlead.CodeSessionRefused, http.StatusUnauthorized, "The agent could not prove that it belongs to the runner, or its key was revoked.", "Enrol it again with a new token: {runner.enrol}. An agent whose key was revoked needs a new key: remove identity.key and identity.json from its data folder first. For an AWS role or an OIDC token, `detail` and `details.reason` have the reason."},
		{fairlead.CodeStepRoleUnproven, http.StatusUnauthorized, "The token of a step is bound to the AWS role of the step's task, and the caller does not prove this role. Another program has the token, or the image of the runner's steps is older than its agent.", "Use the same release for the agent and the steps. `detail` and `details.reason` have the reason."},
		{fairlead.CodeRoleMissing, http.StatusForbidden, "No role of the caller permits this on this object.", "`detail` names the roles of the caller, and the hint names a role that permits it: docs/operations/people.md has the table. An owner creates a token with the role: {token.create}."},
		{fairlead.CodeTooManyAtOnce, http.StatusTooManyRequests, "The token or its org has reached its limit of requests at the same time. `details` names the limit.", "Repeat it after the seconds in `Retry-After`, and send fewer at the same time. {limits.show} shows the limits; the operator sets them (`--limit`)."},
		{fairlead.CodeTooManyRequests, http.StatusTooManyRequests, "The token or its org has reached its limit of requests a second. `details` names the limit.", "Repeat it after the seconds in `Retry-After`, and send fewer. {limits.show} shows the limits; the operator sets them (`--limit`). Give each program its own token: {token.create}."},
		{fairlead.CodeTooManyWaits, http.StatusTooManyRequests, "The token has reached its limit of long polls at the same time.", "Repeat it after the seconds in `Retry-After`, or without `wait_seconds`. {limits.show} shows the limits; the operator sets them (`--limit`)."},
		{fairlead.CodeTooManyWrongTokens, http.StatusTooManyRequests, "The token is wrong, and many wrong tokens come from the same address. Valid tokens from this address are still accepted.", "Send the right token. The control plane logs the number of wrong tokens of each address."},
		{fairlead.CodeWarmStepNotFound, http.StatusNotFound, "The runner has no such warm step. Its record is removed an hour after its end.", "End the step: it gets no job."},
		{fairlead.CodeWarmStepOver, http.StatusConflict, "A step that was started ahead gets no job: its deployment ended, it waited for five minutes, its claim no longer holds, or its agent ended it.", "End this step. The agent starts another one when it needs one."},
		{fairlead.CodeWarmTokenUsed, http.StatusForbidden, "Another step has used the token of the warm step.", "End this step: another step waits with this token."},
		{fairlead.CodeUnauthenticated, http.StatusUnauthorized, "The token is missing, wrong, expired, or for another purpose.", "Log in with {session.login}; an agent asks for a new session."},
	}
}

// nounProblems returns the problems of the objects that people work with.
//
// long: it is a table.
func nounProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeAppNameMismatch, http.StatusUnprocessableEntity, "The configuration and the path name different apps.", "Publish the app under the name in its configuration."},
		{fairlead.CodeAppDeleting, http.StatusConflict, "The deletion of the app has begun, and did not complete.", "Repeat the deletion with {app.delete}. Then the name is free."},
		{fairlead.CodeAppInUse, http.StatusConflict, "The app cannot be deleted while an install uses it.", "Tear down and forget the installs that `details.installs` names, then repeat the request."},
		{fairlead.CodeAppNotFound, http.StatusNotFound, "There is no such app.", "{app.list} shows those that exist."},
		{fairlead.CodeArtifactMissing, http.StatusUnprocessableEntity, "The request lacks the sha256 digest of a component's artifact.", "Push the artifact first, and name its digest."},
		{fairlead.CodeArtifactUnknown, http.StatusUnprocessableEntity, "The request names an artifact of a component that is not in the configuration.", "Name exactly one artifact for each component."},
		{fairlead.CodeBuildMissing, http.StatusUnprocessableEntity, "A component whose source is in a git repository has no build that succeeded.", "Publish the app with {app.publish}, which builds its components first."},
		{fairlead.CodeComponentNotFound, http.StatusNotFound, "The deployment, the install, or the version of an app has no such component.", "{deployment.show}, {install.show} and {app.show} list their components."},
		{fairlead.CodeDeployedSince, http.StatusConflict, "The install was deployed again after the deployment that you want to retry.", "Deploy it again with {install.deploy}."},
		{fairlead.CodeDeploymentNotFound, http.StatusNotFound, "There is no such deployment.", "{deployment.list} shows those that exist."},
		{fairlead.CodeDeploymentRuns, http.StatusConflict, "A deployment of the install has not ended.", "`detail` names it: approve it if it awaits approval, wait for it, or cancel it."},
		{fairlead.CodeDeploymentState, http.StatusConflict, "The deployment's state does not allow this.", "{deployment.show} shows its state."},
		{fairlead.CodeInstallExists, http.StatusConflict, "There is an install of this name already.", "Choose another name, or change its inputs with {install.update}."},
		{fairlead.CodeInstallNotEmpty, http.StatusConflict, "Components of the install may still exist.", "Run {install.teardown} first, or delete only the records with {install.abandon}."},
		{fairlead.CodeInstallNotFound, http.StatusNotFound, "There is no such install.", "{install.list} shows those that exist."},
		{fairlead.CodeInvalidConfig, http.StatusUnprocessableEntity, "The app's configuration is not valid, or not in canonical form.", "Run {app.validate} on its folder."},
		{fairlead.CodeInputNotEncrypted, http.StatusUnprocessableEntity, "A sensitive input or variable is in the clear, and only the customer's side may read it.", "Set an input with {install.update}: it encrypts with the key of the install, as the command that sets variables does."},
		{fairlead.CodeInputNotGenerated, http.StatusConflict, "The app generates a secret input that the install does not have, and the control plane must not know it.", "Deploy with {install.deploy}: the command makes the value and encrypts it."},
		{fairlead.CodeInvalidEncryptedValue, http.StatusUnprocessableEntity, "A value is not encrypted with the key of the install, or may not be encrypted.", "Encrypt it with the key that {install.show} prints. {install.update} does this."},
		{fairlead.CodeInvalidInstallKey, http.StatusUnprocessableEntity, "A runner reported a text that is not the key of an install.", "Repair the runner."},
		{fairlead.CodeInvalidInput, http.StatusUnprocessableEntity, "The value of an input is not JSON.", "Repair the program that sent it."},
		{fairlead.CodeInvalidParams, http.StatusUnprocessableEntity, "Params of an action are unknown, missing or of the wrong type.", "`errors` names each; {app.show} lists what the app declares."},
		{fairlead.CodeInvalidInputs, http.StatusUnprocessableEntity, "Inputs are unknown, missing or of the wrong type.", "`errors` names each; {app.show} lists what the app declares."},
		{fairlead.CodeInvalidKind, http.StatusUnprocessableEntity, "The kind of deployment does not exist.", "Use `deploy` or `teardown`."},
		{fairlead.CodeInvalidName, http.StatusUnprocessableEntity, "The name is not valid.", "Use 1 to 63 lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit. For a version of an app, use 1 to 64 letters, digits and . - _ +, and begin with a letter or digit."},
		{fairlead.CodeInvalidTrust, http.StatusUnprocessableEntity, "The name or id of the AWS role that the runner should trust is not valid.", "Give the ARN that `aws iam get-role` prints, with its path, and the unique id (AROA and more)."},
		{fairlead.CodeInvalidOIDCTrust, http.StatusUnprocessableEntity, "The rule of a service account, or the trust of a runner in the sandbox, lacks an issuer, an audience or claims to check tokens against, or every token would match it.", "`detail` says what is wrong; docs/vendor/identity.md has an example for each platform."},
		{fairlead.CodeServiceAccountExists, http.StatusConflict, "The org has a service account of this name already.", "Choose another name, or change it with {account.update}."},
		{fairlead.CodeActionComponents, http.StatusConflict, "The variables of the action use outputs of a component that is not deployed.", "Deploy the install with {install.deploy}. Then run the action again."},
		{fairlead.CodeActionNotFound, http.StatusNotFound, "The version that the install has deployed declares no action with this name, or no whole deployment has succeeded.", "{app.show} lists the actions of the newest version; {install.deploy} deploys it."},
		{fairlead.CodeActionRunning, http.StatusConflict, "A run of the action has not ended, so the schedule of the action skipped a time. The API shows this as `skipped` of the action, not as an answer.", "{deployment.show} shows the run."},
		{fairlead.CodeAgentNotFound, http.StatusNotFound, "No agent with this key has enrolled for the runner.", "{agent.list} shows the enrolled agents."},
		{fairlead.CodeServiceAccountInUse, http.StatusConflict, "The service account is assigned to runners.", "`detail` names them. Take it from them with {runner.unassign}."},
		{fairlead.CodeServiceAccountNotFound, http.StatusNotFound, "There is no such service account, the caller may not see it, or the runner does not have it.", "{account.list} shows those that the caller may see."},
		{fairlead.CodeServiceAccountUnfit, http.StatusConflict, "The service account is of a group that does not contain the runner's, or the runner is shared.", "Assign a service account of the runner's group, or of a group above it: {account.list}. An agent of a shared runner proves its identity by a key or an AWS role."},
		{fairlead.CodeTooManyVersionNames, http.StatusConflict, "The version has reached its limit of names.", "Use a name that it has: {app.show} shows them."},
		{fairlead.CodeTooManyServiceAccounts, http.StatusConflict, "The runner has reached its limit of service accounts.", "Take one from it with {runner.unassign}, or use one whose claim has a *."},
		{fairlead.CodeInvalidRole, http.StatusUnprocessableEntity, "The role does not exist, or is for a group and an app at once.", "Use owner, deployer, approver or viewer, for the whole org, a group, or an app."},
		{fairlead.CodeInvalidStorage, http.StatusUnprocessableEntity, "The state storage does not exist.", "Use `local` or `http`."},
		{fairlead.CodeJobNotFound, http.StatusNotFound, "There is no such job.", "{job.list} shows those that exist."},
		{fairlead.CodeJobAltered, http.StatusConflict, "The record of the job was altered: its version is of another app than its install. The job has ended.", "Deploy the install again, and find out who can write the control plane's table."},
		{fairlead.CodeJobState, http.StatusConflict, "The job's state does not allow this.", "{job.show} shows its state."},
		{fairlead.CodeInvalidState, http.StatusUnprocessableEntity, "The pushed file is not a Terraform state.", "Send the whole file as the tool wrote it."},
		{fairlead.CodeLockChanged, http.StatusConflict, "The state's lock is not the one that the request names.", "{install.show} shows the current lock."},
		{fairlead.CodeLogExpired, http.StatusNotFound, "The log table removed the log of this attempt before it was archived.", "The vendor's operator replays the dead letters, which archives the log from CloudWatch Logs. This works until `logRetentionDays` have passed."},
		{fairlead.CodeLogNotFound, http.StatusNotFound, "The job has no log of this attempt.", "{job.show} lists its attempts."},
		{fairlead.CodeNotAwaitingApproval, http.StatusConflict, "No plan of the deployment awaits approval.", "{deployment.show} shows its state."},
		{fairlead.CodeInvalidApproval, http.StatusUnprocessableEntity, "A signed approval is too large.", "Sign the approval again."},
		{fairlead.CodeSignatureRequired, http.StatusConflict, "The customer's policy asks for an approval that the customer signs.", "A person of the customer approves the plan with their key."},
		{fairlead.CodePlanChanged, http.StatusConflict, "The component's plan is not the one that the request approves.", "Read the new plan before you approve it."},
		{fairlead.CodeProvenanceInvalid, http.StatusConflict, "No key of the control plane signed that a build made the component's artifact from the source that the version names.", "Publish the app again with {app.publish}. Also find out who can write to the control plane's table."},
		{fairlead.CodeProvenanceNotFound, http.StatusNotFound, "No build made the component's artifact, or a build of an earlier control plane did.", "{app.show} shows which components are built. Publish the app again with {app.publish} to build such a component again."},
		{fairlead.CodeValuesNotFound, http.StatusNotFound, "The spec of the job names no such values.", "Ask only for the values that the spec names."},
		{fairlead.CodePlanExpired, http.StatusConflict, "The plan is too old to be approved.", "Plan again: {deployment.retry} does so after the deployment has ended."},
		{fairlead.CodeQueueFull, http.StatusConflict, "The install has too many queued deployments.", "Cancel some of them."},
		{fairlead.CodeInvalidAccount, http.StatusUnprocessableEntity, "The value is not an AWS account.", "Give the 12 digits of the customer's account."},
		{fairlead.CodeInvalidRegion, http.StatusUnprocessableEntity, "The value is not an AWS region from which a runner can prove its role, or it is in another AWS partition than the control plane.", "Give a region of the control plane's partition, such as `eu-central-1`, or none."},
		{fairlead.CodeNoPullLogin, http.StatusNotFound, "The artifacts are in the control plane's own registry.", "Use the lease token as the login."},
		{fairlead.CodeRegistryUnavailable, http.StatusServiceUnavailable, "The registry of artifacts issues no login now.", "Try again."},
		{fairlead.CodeImageBuildsUnavailable, http.StatusServiceUnavailable, "Access to the service that builds images is not available now.", "Try again in a moment."},
		{fairlead.CodeLogAccessUnavailable, http.StatusServiceUnavailable, "Direct access to the log is not available now.", "Write the log through the API, or ask again."},
		{fairlead.CodeNoMarker, http.StatusNotFound, "The warm step has no marker.", "Ask for its job with `await-job`."},
		{fairlead.CodeNoImageBuilds, http.StatusNotFound, "No service of the control plane builds images for this job.", "Build the image on the runner."},
		{fairlead.CodeNoLogAccess, http.StatusNotFound, "The job can write its log only through the API.", "Append to it with `append-job-log`."},
		{fairlead.CodeRunnerNotTaking, http.StatusConflict, "The runner accepts no jobs now: it is disabled, draining, paused, runs as many jobs as its configuration allows, or the agent runs another version than its configuration pins (detail `pinned_version`).", "Claim through the API without a job's name: the claim waits until the runner accepts jobs."},
		{fairlead.CodeRunnerServesAnother, http.StatusConflict, "The install's runner belongs to another install's stack.", "Make a runner for this install, and create the install with it."},
		{fairlead.CodeRunnerTrustsAnother, http.StatusConflict, "The install's runner trusts another AWS role than the stack's.", "If that stack is gone, replace it: {install.replace-stack}. Otherwise use another runner."},
		{fairlead.CodeStackNotFound, http.StatusNotFound, "The install has no runner stack.", "{install.ready-stack} prepares it for one."},
		{fairlead.CodeStackNotPublished, http.StatusConflict, "The control plane has no template and image from which customers can install a runner.", "Publish both, and set `FAIRLEAD_STACK_TEMPLATE_URL` and `FAIRLEAD_RUNNER_IMAGE`."},
		{fairlead.CodeStackRefused, http.StatusUnprocessableEntity, "The runner reports a stack with another install, external id or account than the expected one.", "{install.stack} prints the parameters that the customer's stack must have."},
		{fairlead.CodeRunnerExists, http.StatusConflict, "There is a runner of this name already.", "Choose another name, or enrol an agent for the existing runner."},
		{fairlead.CodeRunnerKindRefused, http.StatusConflict, "The app's version needs a runner of another kind.", "Name another runner with {install.set-runner}. `details.kinds` are the kinds that the version can use, `details.kind` is that of the runner."},
		{fairlead.CodeRunnerNotFound, http.StatusNotFound, "There is no such runner.", "{runner.list} shows those that exist."},
		{fairlead.CodeStateLineage, http.StatusConflict, "The lineage of the state differs: it belongs to another component, or to an earlier state of this one.", "Find the file that belongs to the component."},
		{fairlead.CodeStateInClear, http.StatusConflict, "The stored state is encrypted with the install's key, and the pushed one is not.", "A person with the customer's seed pushes it with a key file, which encrypts it."},
		{fairlead.CodeStateOlder, http.StatusConflict, "The state is not newer than the current one.", "You need not push it: a later state was saved."},
		{fairlead.CodeNoState, http.StatusConflict, "Components of this type have no state.", "You cannot push a state; `detail` names the type."},
		{fairlead.CodeStateOnRunner, http.StatusConflict, "The state is on the runner's disk, which the control plane cannot reach.", "Copy the file to its place on the runner's host."},
		{fairlead.CodeBoundRunnerGone, http.StatusConflict, "The runner that the install is bound to was deleted, or no longer serves its group.", "{install.try-refresh} shows which one would take over."},
		{fairlead.CodeBrokenRule, http.StatusConflict, "The rule that applies to the install names a runner that was deleted, or that does not serve the install.", "Delete the rule, or create one that names another runner."},
		{fairlead.CodeGroupExists, http.StatusConflict, "There is a group of this path already.", "{group.list} shows those that exist."},
		{fairlead.CodeGroupNotEmpty, http.StatusConflict, "The group is not empty, or is being deleted.", "`detail` names its content: move or delete that first."},
		{fairlead.CodeGroupNotFound, http.StatusNotFound, "There is no such group.", "{group.list} shows those that exist; {group.create} makes one."},
		{fairlead.CodeInvalidGroup, http.StatusUnprocessableEntity, "The path of the group is not valid.", "Write the names of groups with single slashes between them, up to 20 of them and 900 bytes: `customers/acme`."},
		{fairlead.CodeInvalidLabel, http.StatusUnprocessableEntity, "A label is not valid.", "Up to 16 labels; key and value are up to 63 letters, digits, dots, hyphens and underscores."},
		{fairlead.CodeInvalidMatch, http.StatusUnprocessableEntity, "The rule cannot match an install, or its form is not valid.", "`detail` and `hint` show the right form."},
		{fairlead.CodeChannelNotFound, http.StatusNotFound, "There is no such update channel.", "{channel.list} shows those that exist."},
		{fairlead.CodeInvalidVersion, http.StatusUnprocessableEntity, "The version is not valid.", "Write it as v1.2.3."},
		{fairlead.CodeInvalidImage, http.StatusUnprocessableEntity, "The image is not named by its digest.", "Write IMAGE@sha256:…."},
		{fairlead.CodeInvalidMode, http.StatusUnprocessableEntity, "The mode of the runner does not exist.", "Use `enabled`, `paused`, `draining` or `disabled`."},
		{fairlead.CodeInvalidRunner, http.StatusUnprocessableEntity, "The configuration of the runner is not valid.", "`errors` names each problem, with line and column; docs/reference/runner-file.md lists the fields."},
		{fairlead.CodeInvalidScope, http.StatusUnprocessableEntity, "The request must name exactly one object that has the variables.", "Name a runner, a group, an app or an install."},
		{fairlead.CodeInvalidVariable, http.StatusUnprocessableEntity, "The name or value of a variable is not valid, or there are too many variables.", "`detail` names it; names that begin with FAIRLEAD_ or TF_VAR_ are reserved."},
		{fairlead.CodeNamedRunnerGone, http.StatusConflict, "The runner that the install names was deleted, or does not serve its group.", "{install.set-runner} names another."},
		{fairlead.CodeNoBuildRunner, http.StatusConflict, "No runner of the org builds apps.", "Set `runner_configuration.builds` to true in the configuration of one of your own runners, with {runner.configure}."},
		{fairlead.CodeNoRunner, http.StatusConflict, "No runner serves the install.", "Create a runner or a rule; {runner.explain} shows which were considered."},
		{fairlead.CodeOperatorOnly, http.StatusForbidden, "Only the operator of the control plane can change what is shared with every org.", "Ask the operator, or create your own runner: it has precedence over a shared one."},
		{fairlead.CodeRuleExists, http.StatusConflict, "There is a rule for this match already.", "Delete it first: `detail` names it."},
		{fairlead.CodeRuleNotFound, http.StatusNotFound, "There is no such rule.", "{rule.list} shows those that exist."},
		{fairlead.CodeRunnerInUse, http.StatusConflict, "Installs or rules use the runner, or it is being deleted.", "`detail` names them: let the installs be placed elsewhere first."},
		{fairlead.CodeRunnerOutOfReach, http.StatusUnprocessableEntity, "The runner does not serve the group of the install, or not all installs that the rule matches.", "Name another runner, or make the rule match the runner's group."},
		{fairlead.CodeRunnerUnavailable, http.StatusConflict, "The runner that serves the install is disabled or draining, and no other runner takes over automatically.", "Enable it with {runner.enable}, or name another in a rule."},
		{fairlead.CodeMigrateOrLose, http.StatusUnprocessableEntity, "A state cannot be both moved and abandoned.", "Choose one of the two."},
		{fairlead.CodeNothingToMove, http.StatusConflict, "There is no state to move, or it was moved already.", "First change the state storage in the runner's configuration, or refresh the runner with {install.move}."},
		{fairlead.CodeStateMoving, http.StatusConflict, "The state of the install is being moved.", "Wait for the job that the message names, or cancel it: then the state stays in its old place."},
		{fairlead.CodeStateMoved, http.StatusConflict, "The job has no state to move any more.", "You need not do anything."},
		{fairlead.CodeStateUnknown, http.StatusConflict, "A job of the install was lost, and its tool may still save its state.", "Deploy the install first: the plan shows the current resources."},
		{fairlead.CodeStateOutOfReach, http.StatusConflict, "No runner reaches both the old and the new place of the state.", "Move the state to `http` or a bucket first, and then to the new place."},
		{fairlead.CodeStateStorageChanged, http.StatusConflict, "The install's state is not in the runner's current state storage.", "{install.migrate-state} moves the state. Or restore the runner's old state storage."},
		{fairlead.CodeSeedMissing, http.StatusConflict, "The other runner lacks a seed, so it cannot decrypt the install's values.", "The customer adds the seeds of the old runner to those of the new one. {install.lose-key} gives the values up."},
		{fairlead.CodeStateStorageChanges, http.StatusConflict, "The other runner keeps the install's state in another place.", "{install.move} moves the state, {install.lose-state} abandons it."},
		{fairlead.CodeRegistryMissing, http.StatusConflict, "A component of the app keeps images in the registry of its install, and the runner has none.", "Set `registry` in the runner's configuration: {runner.configure}."},
		{fairlead.CodeDeliveryNotFound, http.StatusNotFound, "There is no such delivery, or it is older than 30 days.", "{webhook.deliveries} lists those that exist."},
		{fairlead.CodeInvalidWebhookEvent, http.StatusUnprocessableEntity, "The pattern selects no events.", "Use a type such as `fairlead.job.failed`, `fairlead.job.*` or `*`."},
		{fairlead.CodeInvalidWebhookURL, http.StatusUnprocessableEntity, "The control plane cannot send to the URL.", "Use https and a host on the internet, without a user and without a fragment."},
		{fairlead.CodeInvalidExpiry, http.StatusUnprocessableEntity, "The token would have expired already.", "Name a time in the future."},
		{fairlead.CodeLastToken, http.StatusConflict, "The token is the last valid one of the control plane, or the last valid one of an operator.", "Make another one first: {token.create-operator}."},
		{fairlead.CodeTokenExists, http.StatusConflict, "There is an API token of this name already.", "Choose another name, or revoke it first."},
		{fairlead.CodeTokenNotFound, http.StatusNotFound, "There is no such API token, or it was revoked.", "{token.list} shows those that exist."},
		{fairlead.CodeInvalidEmail, http.StatusUnprocessableEntity, "The text is no email, or one with characters that the email of a user cannot have.", "Write it as name@example.com."},
		{fairlead.CodeInvalidIssuer, http.StatusUnprocessableEntity, "The settings of an issuer at which people log in are not valid.", "`detail` has the reason: docs/operations/people.md has examples."},
		{fairlead.CodeIssuerNotFound, http.StatusNotFound, "People cannot log in at an issuer of this name.", "An operator sets issuers with {issuer.set}."},
		{fairlead.CodeLastOwner, http.StatusConflict, "The user is the last with full access to the org or the control plane.", "Invite another owner first: {user.invite}. The invited person must have logged in once."},
		{fairlead.CodeTooManyIssuers, http.StatusConflict, "The limit of issuers at which people log in is reached.", "Delete one."},
		{fairlead.CodeTooManyUsers, http.StatusConflict, "The limit of users of an org is reached.", "Delete those who are not needed: {user.list} shows them."},
		{fairlead.CodeKeyNotFound, http.StatusNotFound, "Runners trust no signing key of this identifier.", "{key.list} shows those that they trust."},
		{fairlead.CodeKeySetRefused, http.StatusUnprocessableEntity, "The key set is not signed by the spare key, or does not follow the newest one.", "`detail` has the reason. Begin again with {key.list}."},
		{fairlead.CodeKeysElsewhere, http.StatusConflict, "The control plane cannot use its spare key.", "Sign the change with the spare key from your own machine: {key.rotate-with}."},
		{fairlead.CodeKeysOverlap, http.StatusConflict, "Two signing keys are valid already.", "Revoke the earlier one first: {key.revoke}."},
		{fairlead.CodeSigningKeyUnusable, http.StatusServiceUnavailable, "The control plane cannot use a signing key that its runners trust.", "Let it sign with the first key that {key.list} prints. Or restore the folder `keys` from a backup."},
		{fairlead.CodeOrgExists, http.StatusConflict, "There is, or was, an org of this name.", "Choose another name."},
		{fairlead.CodeOrgNotEmpty, http.StatusConflict, "The org has objects, or is the org of the first start.", "`detail` names what it has: delete it first."},
		{fairlead.CodeOrgNotFound, http.StatusNotFound, "There is no such org.", "Check its name. An operator can list all."},
		{fairlead.CodeUserExists, http.StatusConflict, "The org has a user with this email already.", "Change its roles with {user.update}."},
		{fairlead.CodeUserNotFound, http.StatusNotFound, "There is no such user, or the caller may not see it.", "{user.list} shows those that the caller may see."},
		{fairlead.CodeQuotaReached, http.StatusConflict, "The org has as many apps, installs, runners, groups, rules or service accounts as its quota allows. `details` names the quota and the limit.", "Delete what is no longer used, or ask the operator of the control plane for a larger quota."},
		{fairlead.CodeTooManyTokens, http.StatusConflict, "The limit of API tokens is reached.", "Revoke one with {token.revoke}."},
		{fairlead.CodeTooManyWebhooks, http.StatusConflict, "The limit of webhooks is reached.", "Delete one with {webhook.delete}."},
		{fairlead.CodeWebhookRotated, http.StatusConflict, "Another request rotated the keys of the webhook after the request with this idempotency key, so its secret is not valid any more.", "Rotate the keys again."},
		{fairlead.CodeWebhookExists, http.StatusConflict, "There is a webhook of this name already.", "Choose another name, or delete it first."},
		{fairlead.CodeWebhookNotFound, http.StatusNotFound, "There is no such webhook.", "{webhook.list} shows those that exist."},
		{fairlead.CodeVersionNameTaken, http.StatusConflict, "Another version of the app has the name. A name never moves to another version, so that it always means one content.", "Publish it under another name, or without a name. `details.version` is the version that has the name."},
		{fairlead.CodeVersionNotFound, http.StatusNotFound, "There is no such version of an app.", "{app.show} names the newest."},
		{fairlead.CodeVersionAltered, http.StatusConflict, "The record of an app's version was altered: its content does not match its identifier. The control plane does not deploy it, and ends a job that is about to start for it.", "Publish the app again from the same folder, which writes the record again, and find out who can write the control plane's table. `details` names the app and the version."},
		{fairlead.CodeSandboxRunnerMissing, http.StatusUnprocessableEntity, "The runner in the sandbox made a deployed component, and this version runs the component outside.", "Keep `sandbox.runner` as it was, or first deploy a version without the component, which destroys it."},
		{fairlead.CodeComponentTypeChanged, http.StatusUnprocessableEntity, "A deployed component has another type in this version.", "Give the new component another name: then the old one is destroyed with its old type."},
		{fairlead.CodeVersionOfOtherApp, http.StatusUnprocessableEntity, "The version belongs to another app.", "Name a version of the app that is installed."},
	}
}

// runnerProblems returns the problems of requests by agents and steps.
func runnerProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeInvalidHeartbeat, http.StatusUnprocessableEntity, "The heartbeat names too many jobs, or a negative capacity.", "Repair the agent."},
		{fairlead.CodeInvalidLock, http.StatusUnprocessableEntity, "The lock info is not JSON with an ID of 1 to 200 bytes, or larger than 8 KiB.", "Send what Terraform's http backend sends."},
		{fairlead.CodeInvalidOutcome, http.StatusUnprocessableEntity, "The outcome of a job does not exist.", "Use `succeeded`, `failed` or `canceled`."},
		{fairlead.CodeInvalidReason, http.StatusUnprocessableEntity, "The reason for the end of a step does not exist.", "Use one that the OpenAPI document lists."},
		{fairlead.CodeLogCut, http.StatusRequestEntityTooLarge, "The runner has used up its budget of log bytes.", "Go on without the log, and report at the end that it was truncated."},
		{fairlead.CodeLogDiverged, http.StatusConflict, "Other bytes are stored at this offset.", "Stop: two writers append to one log."},
		{fairlead.CodeLogFenced, http.StatusConflict, "The log of this attempt has ended.", "Stop: the attempt is over."},
		{fairlead.CodeLogFull, http.StatusRequestEntityTooLarge, "The log has reached its limit.", "Go on without the log, and report at the end that it was truncated."},
		{fairlead.CodeLogOffset, http.StatusConflict, "The bytes before this offset are missing, or the log is shorter than its writer reports.", "Go on at `details.want`."},
		{fairlead.CodePlanMissing, http.StatusUnprocessableEntity, "A plan job reports success without a plan.", "Repair the runner."},
		{fairlead.CodePlanNotFound, http.StatusNotFound, "The saved plan was deleted: its deployment has ended.", "Plan again with a new deployment."},
		{fairlead.CodeOutputsTooLarge, http.StatusRequestEntityTooLarge, "The outputs of a component are larger than 16 MiB in all.", "Keep large values in files or buckets, and output their location."},
		{fairlead.CodeProvenanceRefused, http.StatusUnprocessableEntity, "A build reports success with a provenance that is not that of its job and its artifact.", "Update the agent of the build runner."},
		{fairlead.CodePlanTooLarge, http.StatusRequestEntityTooLarge, "The saved plan is larger than 64 MiB.", "Split the component."},
		{fairlead.CodeSessionNotFound, http.StatusNotFound, "The record of the session was deleted.", "Ask for a new session."},
		{fairlead.CodeStaleEpoch, http.StatusConflict, "Another attempt has the lease, or the job has ended.", "Kill the tool and stop: the control plane no longer records this attempt's reports."},
		{fairlead.CodeStateDigestMismatch, http.StatusUnprocessableEntity, "The MD5 of the state is not the one in the header.", "Send it again: it was damaged in transfer."},
		{fairlead.CodeStateLocked, http.StatusLocked, "Another job holds the lock of the state. Terraform's http backend gets the holder's lock info in place of a problem.", "Wait for the job that `details.job` names. The next job breaks a lock whose job has ended."},
		{fairlead.CodeStateNotLocked, http.StatusConflict, "The state is not locked, or not by this job.", "A step must take the lock before it writes; a person need not unlock anything."},
		{fairlead.CodeStateTooLarge, http.StatusRequestEntityTooLarge, "The state is larger than 64 MiB.", "Split the component."},
	}
}

// faultProblems returns the problems that the server or its environment causes.
func faultProblems() []ProblemDoc {
	return []ProblemDoc{
		{fairlead.CodeCommitTooLarge, http.StatusRequestEntityTooLarge, "The change needs more records than one commit can hold.", "Make the variables of components smaller, or split the app in two."},
		{fairlead.CodeDataBusy, http.StatusServiceUnavailable, "The database stayed locked by another program.", "Check whether a backup or another tool has the file open, then repeat the request."},
		{fairlead.CodeDataCorrupt, http.StatusInternalServerError, "A database file is damaged.", "Restore the file from a backup. It was not changed."},
		{fairlead.CodeDataIO, http.StatusServiceUnavailable, "The disk failed to read or write.", "Check the disk and the system's log, then repeat the request."},
		{fairlead.CodeDataReadOnly, http.StatusServiceUnavailable, "The data folder cannot be written.", "Check its owner, its mode, and how its file system is mounted."},
		{fairlead.CodeDiskFull, http.StatusServiceUnavailable, "The disk is full. All confirmed changes are stored.", "Free some space and repeat the request."},
		{fairlead.CodeInternal, http.StatusInternalServerError, "A fault in the control plane.", "Look into its log under the request id, and report it."},
		{fairlead.CodeInterrupted, http.StatusServiceUnavailable, "The control plane stopped, or lost its database, while the request waited.", "Repeat the request."},
		{fairlead.CodeNewerSchema, http.StatusServiceUnavailable, "A newer version of the control plane wrote the record, in a form that this version cannot read. Nothing was changed.", "Upgrade the control plane. If an upgrade is running, repeat the request when it is complete."},
		{fairlead.CodeSealedValueDamaged, http.StatusInternalServerError, "A sealed value cannot be opened: it was changed, or moved to another place.", "Restore the data folder as a whole from one backup."},
		{fairlead.CodeSealingKeyMissing, http.StatusInternalServerError, "The server does not have the key with which a value was sealed.", "Restore `keys/seal.key` from the backup that belongs to the data."},
		{fairlead.CodeStoreUnavailable, http.StatusServiceUnavailable, "The database cannot be reached, or is throttled.", "Repeat the request."},
		{fairlead.CodeTableMissing, http.StatusInternalServerError, "The database has no such table.", "Deploy the control plane's stack, or correct the name of the table."},
		{fairlead.CodeTokenReused, http.StatusInternalServerError, "A fault in the control plane: a commit's token was used twice.", "Look into its log under the request id, and report it."},
		{fairlead.CodeTooManyConflicts, http.StatusServiceUnavailable, "Other requests kept changing the same records.", "Repeat the request."},
	}
}
