package control

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/infra/internal/policy"
)

// Grant is one permission of a function: the actions, the resources, and the code that
// needs them. The functions' roles are made only from grants. The field By names a
// package. TestEachGrantHasACallSite checks that this package has a call for each
// action.
type Grant struct {
	Sid        string
	Deny       bool // a limit of other grants
	Actions    []string
	On         func(*builder) []string
	Conditions func(*builder) map[string]map[string]any // nil: none
	By         string                                   // the package of this module that makes the call; "lambda" if Lambda itself calls with the function's role
	Why        string
}

func (g Grant) statement(b *builder) policy.Statement {
	s := policy.Statement{Sid: g.Sid, Deny: g.Deny, Actions: g.Actions, Resources: g.On(b)}
	if g.Conditions != nil {
		s.Conditions = g.Conditions(b)
	}
	return s
}

// The resources of the grants.
func onTable(b *builder) []string    { return []string{b.served.arn} }
func onLogTable(b *builder) []string { return []string{*b.logTable.AttrArn()} }
func onCancels(b *builder) []string  { return []string{*b.cancels.AttrArn()} }
func onIndexes(b *builder) []string {
	return []string{b.served.arn + "/index/*"}
}
func onTableAndIndexes(b *builder) []string { return append(onTable(b), onIndexes(b)...) }
func onBlobs(b *builder) []string           { return []string{*b.blobs.AttrArn()} }
func inBlobs(b *builder) []string           { return []string{*b.blobs.AttrArn() + "/*"} }
func onArchive(b *builder) []string         { return []string{*b.archive.AttrArn()} }
func inArchive(b *builder) []string         { return []string{*b.archive.AttrArn() + "/*"} }
func onRunnerQueues(b *builder) []string {
	return []string{b.arn("sqs", b.queuePrefix()+runnerQueue+"*")}
}
func onInstallLogs(b *builder) []string {
	return []string{b.arn("logs", "log-group:"+b.logGroupPrefix()+"*")}
}
func onInstallLogStreams(b *builder) []string {
	return []string{b.arn("logs", "log-group:"+b.logGroupPrefix()+"*:log-stream:*")}
}
func onAppRepositories(b *builder) []string {
	return []string{b.arn("ecr", "repository/"+b.artifactPrefix()+"*")}
}
func onWebhooks(b *builder) []string { return []string{*b.webhooks.AttrArn()} }
func onSweeps(b *builder) []string   { return []string{*b.sweeps.AttrArn()} }
func onSessionRole(b *builder) []string {
	return []string{b.sessionRoleARN()}
}

// Grants that several functions share.
var (
	readTable = Grant{Sid: "ReadTable", Actions: []string{"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}, On: onTableAndIndexes,
		By: "pkg/store/dynamo", Why: "reads of the table and its indexes; the code uses no Scan"}
	writeTable = Grant{Sid: "WriteTable", Actions: []string{"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem"}, On: onTable,
		By: "pkg/store/dynamo", Why: "each commit, as a single write or as a transaction; IAM authorizes each item of a transaction"}
	keepAudit = Grant{Sid: "KeepAudit", Deny: true, Actions: []string{"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}, On: onTable,
		Conditions: func(*builder) map[string]map[string]any {
			return map[string]map[string]any{"ForAnyValue:StringLike": {"dynamodb:LeadingKeys": auditKeys}}
		},
		By: "pkg/store/dynamo", Why: "only the function audit writes entries and checkpoints of the audit, and no function deletes them"}
	useBlobs = Grant{Sid: "UseBlobs", Actions: []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}, On: inBlobs,
		By: "pkg/blob/s3", Why: "encrypted states and plans; the bucket keeps a deleted version for a month"}
	listBlobs = Grant{Sid: "ListBlobs", Actions: []string{"s3:ListBucket"}, On: onBlobs,
		By: "pkg/blob/s3", Why: "distinguishes an absent blob from a forbidden one, and finds blobs that no record names"}
	sealValues = Grant{Sid: "SealValues", Actions: []string{"kms:GenerateDataKey", "kms:Decrypt"}, On: func(b *builder) []string { return []string{b.sealKey.arn} },
		By: "pkg/seal/kms", Why: "a new data key for each encryption, and its decryption"}
	deriveTokens = Grant{Sid: "DeriveTokensKey", Actions: []string{"kms:GenerateMac"}, On: func(b *builder) []string { return []string{b.tokensKey.arn} },
		Conditions: func(*builder) map[string]map[string]any {
			return map[string]map[string]any{"StringEquals": {"kms:MacAlgorithm": "HMAC_SHA_256"}}
		},
		By: "pkg/seal/kms", Why: "each process derives the tokens' key at its start; the key is not stored"}
	publicKey = Grant{Sid: "SigningPublicKey", Actions: []string{"kms:GetPublicKey"}, On: func(b *builder) []string { return []string{b.signs, b.idle} },
		By: "pkg/seal/kms", Why: "runners pin both public keys"}
	readLog = Grant{Sid: "ReadLog", Actions: []string{"dynamodb:GetItem", "dynamodb:Query"}, On: onLogTable,
		By: "pkg/joblog/dynamo", Why: "logs are read from their table, not from CloudWatch"}
	endLog = Grant{Sid: "EndLog", Actions: []string{"dynamodb:UpdateItem"}, On: onLogTable,
		By: "pkg/joblog/dynamo", Why: "ends the log of an abandoned attempt"}
	readArchive = Grant{Sid: "ReadArchive", Actions: []string{"s3:GetObject"}, On: inArchive,
		By: "pkg/blob/s3", Why: "the log of an ended job"}
	listArchive = Grant{Sid: "ListArchive", Actions: []string{"s3:ListBucket"}, On: onArchive,
		By: "pkg/blob/s3", Why: "distinguishes a missing archived log from a forbidden one, and finds archived logs of which the table lacks a record"}
	markCanceled = Grant{Sid: "MarkCanceled", Actions: []string{"dynamodb:PutItem"}, On: onCancels,
		By: "pkg/cancelmark/dynamo", Why: "the marker of a canceled job, which its step finds within two seconds"}
	wakeRunners = Grant{Sid: "WakeRunners", Actions: []string{"sqs:GetQueueUrl", "sqs:SendMessage"}, On: onRunnerQueues,
		By: "pkg/queue/sqs", Why: "a wake-up for a queued job"}
	readStream = Grant{Sid: "ReadStream", Actions: []string{"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"},
		On: func(b *builder) []string { return []string{b.served.stream} },
		By: "lambda", Why: "the event source mapping reads with the function's role"}
	// IAM's reference of DynamoDB has no resource for this action, and an example of its guide
	// names the table's streams. Only "*" is right for both.
	listStreams = Grant{Sid: "ListStreams", Actions: []string{"dynamodb:ListStreams"}, On: func(*builder) []string { return []string{"*"} },
		By: "lambda", Why: "the event source mapping finds the stream; the action knows no resource, and returns no more than names of streams"}
	makeSandboxQueues = Grant{Sid: "MakeSandboxQueues", Actions: []string{"sqs:CreateQueue", "sqs:TagQueue", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes"}, On: onRunnerQueues,
		By: "pkg/queue/sqs", Why: "creates the queue and dead-letter queue of a runner in a sandbox, which a deployment makes when the sandbox is applied"}
)

// auditKeys matches the partitions of the audit. TestAuditKeysMatch compares it with docs/contributing/table-items.md.
const auditKeys = "AUDIT#*"

// onlyAudit limits a grant to items of the audit.
func onlyAudit(*builder) map[string]map[string]any {
	return map[string]map[string]any{
		"ForAllValues:StringLike": {"dynamodb:LeadingKeys": auditKeys},
		"Null":                    {"dynamodb:LeadingKeys": "false"}, // an absent key would satisfy the first condition
	}
}

// access lists the grants of each function. Each function may also write its own log.
var access = map[string][]Grant{
	"controlapi": {
		readTable, writeTable, keepAudit, useBlobs, listBlobs, sealValues, deriveTokens, publicKey, wakeRunners, markCanceled,
		readLog, endLog, readArchive, listArchive,
		{Sid: "MakeRunnerQueues", Actions: []string{"sqs:CreateQueue", "sqs:TagQueue", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", "sqs:DeleteQueue"}, On: onRunnerQueues,
			By: "pkg/queue/sqs", Why: "creates and deletes the runner's queue and dead-letter queue with the runner"},
		{Sid: "MakeInstallLogs", Actions: []string{"logs:CreateLogGroup", "logs:PutRetentionPolicy", "logs:TagResource", "logs:DeleteLogGroup"}, On: onInstallLogs,
			By: "pkg/joblog/cloudwatch", Why: "creates and deletes the install's log group with the install"},
		{Sid: "SubscribeInstallLogs", Actions: []string{"logs:PutSubscriptionFilter"}, On: onInstallLogs,
			By: "pkg/joblog/cloudwatch", Why: "subscribes the log index to the log group; a destination in another account is not among the resources"},
		{Sid: "MakeAppRepositories", Actions: []string{"ecr:CreateRepository", "ecr:TagResource"}, On: onAppRepositories,
			By: "pkg/artifact/ecr", Why: "creates a component's repository before the first push"},
		{Sid: "LetPublish", Actions: []string{"sts:AssumeRole", "sts:TagSession"}, On: func(b *builder) []string { return []string{b.publisherRoleARN()} },
			By: "pkg/identity/awssession", Why: "credentials for the publisher of an app, limited to the app's repositories"},
	},
	"sessionapi": {
		readTable, writeTable, keepAudit, sealValues, deriveTokens, publicKey,
		{Sid: "OpenSessions", Actions: []string{"sts:AssumeRole", "sts:TagSession"}, On: onSessionRole,
			By: "pkg/identity/awssession", Why: "credentials of a runner's session, limited to its queue"},
	},
	"runnerapi": {
		readTable, writeTable, keepAudit, useBlobs, listBlobs, sealValues, deriveTokens, publicKey, wakeRunners, makeSandboxQueues, markCanceled,
		readLog,
		{Sid: "WriteLog", Actions: []string{"dynamodb:PutItem", "dynamodb:UpdateItem"}, On: onLogTable,
			By: "pkg/joblog/dynamo", Why: "a claim opens a log, and a step that cannot write to its log group appends through the API"},
		{Sid: "SignJobs", Actions: []string{"kms:Sign"}, On: func(b *builder) []string { return []string{b.signs} },
			Conditions: func(*builder) map[string]map[string]any {
				return map[string]map[string]any{"StringEquals": {"kms:SigningAlgorithm": "ED25519_SHA_512"}}
			},
			By: "pkg/seal/kms", Why: "signs a job spec when the step requests it, and the provenance of a build when its step reports it"},
		{Sid: "ClaimThroughTheAPI", Actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}, On: onRunnerQueues,
			By: "pkg/queue/sqs", Why: "a runner that cannot poll its queue itself claims by a long poll of the API"},
		{Sid: "OpenAttempts", Actions: []string{"sts:AssumeRole", "sts:TagSession"}, On: onSessionRole,
			By: "pkg/identity/awssession", Why: "credentials of an attempt, limited to its log and its app's artifacts"},
		{Sid: "LetBuild", Actions: []string{"sts:AssumeRole", "sts:TagSession"}, On: func(b *builder) []string { return []string{b.builderRoleARN()} },
			By: "pkg/identity/awssession", Why: "credentials of a build, limited to the repository of its component's built artifacts"},
	},
	"direct": {
		readTable,
		{Sid: "MakeEnrolments", Actions: []string{"dynamodb:PutItem", "dynamodb:ConditionCheckItem"}, On: onTable,
			By: "pkg/store/dynamo", Why: "each start of an agent of direct launch enrols it"},
		keepAudit,
		{Sid: "OpenConfigurations", Actions: []string{"kms:Decrypt"}, On: func(b *builder) []string { return []string{b.sealKey.arn} },
			By: "pkg/seal/kms", Why: "the credentials in the configurations of the runners"},
	},
	"dispatch": {
		wakeRunners, markCanceled,
		readStream, listStreams,
		{Sid: "SendEvents", Actions: []string{"events:PutEvents"}, On: func(b *builder) []string { return []string{*b.bus.AttrArn()} },
			Conditions: func(*builder) map[string]map[string]any {
				// A request has several entries. Each must have the source fairlead.
				return map[string]map[string]any{"ForAllValues:StringEquals": {"events:source": "fairlead"}, "Null": {"events:source": "false"}}
			},
			By: "pkg/eventbus/eventbridge", Why: "a domain event for each change of a job or deployment"},
		{Sid: "FailedBatches", Actions: []string{"sqs:SendMessage"}, On: func(b *builder) []string { return []string{*b.deadLetters["Dispatch"].AttrArn()} },
			By: "lambda", Why: "the event source mapping sends failed batches to the dead-letter queue"},
	},
	"audit": {
		{Sid: "ReadAudit", Actions: []string{"dynamodb:Query", "dynamodb:GetItem"}, On: onTable, Conditions: onlyAudit,
			By: "pkg/store/dynamo", Why: "the newest entries of a chain, and the last checkpoint"},
		{Sid: "WriteAudit", Actions: []string{"dynamodb:PutItem"}, On: onTable, Conditions: onlyAudit,
			By: "pkg/store/dynamo", Why: "appends an entry, or a checkpoint"},
		{Sid: "SignCheckpoints", Actions: []string{"kms:Sign"}, On: func(b *builder) []string { return []string{b.signs} },
			Conditions: func(*builder) map[string]map[string]any {
				return map[string]map[string]any{"StringEquals": {"kms:SigningAlgorithm": "ED25519_SHA_512"}}
			},
			By: "pkg/seal/kms", Why: "signs the checkpoints of the audit"},
		{Sid: "SigningPublicKey", Actions: []string{"kms:GetPublicKey"}, On: func(b *builder) []string { return []string{b.signs} },
			By: "pkg/seal/kms", Why: "the ID of the key that signs"},
		readStream, listStreams,
		{Sid: "FailedBatches", Actions: []string{"sqs:SendMessage"}, On: func(b *builder) []string { return []string{*b.deadLetters["Audit"].AttrArn()} },
			By: "lambda", Why: "the event source mapping sends failed batches to the dead-letter queue"},
	},
	"sweep": {
		readLog, endLog,
		readTable, writeTable, keepAudit, useBlobs, listBlobs, sealValues, wakeRunners, makeSandboxQueues, markCanceled,
		{Sid: "TakeDeadLetters", Actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage"}, On: func(b *builder) []string {
			return []string{b.arn("sqs", b.queuePrefix()+runnerQueue+"*"+deadSuffix)}
		}, By: "pkg/queue/sqs", Why: "messages that were received too often become an event"},
		{Sid: "StartAgain", Actions: []string{"sqs:SendMessage"}, On: onSweeps, By: "pkg/queue/sqs", Why: "a schedule runs at most once a minute; for shorter intervals the sweep sends messages to itself"},
		{Sid: "TakeSweeps", Actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}, On: onSweeps, By: "lambda", Why: "the event source mapping receives with the function's role"},
		{Sid: "FailedRuns", Actions: []string{"sqs:SendMessage"}, On: func(b *builder) []string { return []string{*b.deadLetters["Sweep"].AttrArn()} },
			By: "lambda", Why: "Lambda sends failed invocations to the dead-letter queue"},
	},
	"logindex": {
		{Sid: "ReadJob", Actions: []string{"dynamodb:GetItem"}, On: onTable, By: "pkg/store/dynamo", Why: "the job's install decides which log group may write its log"},
		readLog,
		{Sid: "WriteLog", Actions: []string{"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:BatchWriteItem"}, On: onLogTable,
			By: "pkg/joblog/dynamo", Why: "appends the subscriptions' lines and deletes archived ones"},
		{Sid: "ReadInstallLogs", Actions: []string{"logs:GetLogEvents"}, On: onInstallLogStreams,
			By: "pkg/joblog/cloudwatch", Why: "fills gaps, and the end of an abandoned log, from CloudWatch Logs"},
		{Sid: "WriteArchive", Actions: []string{"s3:PutObject"}, On: inArchive, By: "pkg/blob/s3", Why: "stores an ended log as one object"},
		readArchive, listArchive,
		{Sid: "FailedBatches", Actions: []string{"sqs:SendMessage"}, On: func(b *builder) []string { return []string{*b.deadLetters["LogIndex"].AttrArn()} },
			By: "lambda", Why: "Lambda sends failed batches to the dead-letter queue"},
	},
	"webhook": {
		{Sid: "ReadTable", Actions: []string{"dynamodb:GetItem", "dynamodb:Query"}, On: onTable, By: "pkg/store/dynamo", Why: "webhooks and their deliveries"},
		{Sid: "NoteAttempts", Actions: []string{"dynamodb:PutItem"}, On: onTable, By: "pkg/store/dynamo", Why: "records each attempt of a delivery"},
		keepAudit,
		{Sid: "OpenSecrets", Actions: []string{"kms:Decrypt"}, On: func(b *builder) []string { return []string{b.sealKey.arn} },
			By: "pkg/seal/kms", Why: "the secret that signs a webhook's requests"},
		{Sid: "TakeEvents", Actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}, On: onWebhooks, By: "lambda", Why: "the event source mapping receives with the function's role"},
		{Sid: "PauseEvents", Actions: []string{"sqs:ChangeMessageVisibility"}, On: onWebhooks, By: "pkg/queue/sqs", Why: "delays the retry of a failed attempt, longer each time"},
	},
}

// Tags of a runner's session. The session role's permissions refer to these tags. They
// limit the session even if the session policy, which is narrower, is missing.
const (
	TagRunner  = "fairlead-runner"
	TagInstall = "fairlead-install"
	TagApp     = "fairlead-app"
)

// The prefix that pkg/control gives to the name of a runner's queue, and the suffixes
// that pkg/queue/sqs gives to the queue and to its dead-letter queue.
// TestRunnerQueueNamesMatch compares them with those packages.
const (
	runnerQueue = "runner-"
	liveSuffix  = "-q"
	deadSuffix  = "-dead"
)

// tagged returns the policy variable with the session's value of a tag.
func tagged(tag string) string { return "${aws:PrincipalTag/" + tag + "}" }

// sessionAccess returns the upper limit of the permissions of a runner's session.
func (b *builder) sessionAccess() []policy.Statement {
	return []policy.Statement{
		{Sid: "OwnQueue", Actions: []string{"sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"},
			Resources: []string{b.arn("sqs", b.queuePrefix()+runnerQueue+tagged(TagRunner)+liveSuffix)}},
		{Sid: "OwnLog", Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"},
			Resources: []string{b.arn("logs", "log-group:"+b.logGroupPrefix()+tagged(TagInstall)+":log-stream:*")}},
		{Sid: "OwnArtifacts", Actions: []string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"},
			Resources: []string{b.ownRepositories()}},
		{Sid: "OwnCancelMarkers", Actions: []string{"dynamodb:GetItem"}, Resources: onCancels(b),
			// A marker's key starts with its install; package awssession limits a session to one marker.
			Conditions: map[string]map[string]any{
				"ForAllValues:StringLike": {"dynamodb:LeadingKeys": tagged(TagInstall) + "/*"},
				"Null":                    {"dynamodb:LeadingKeys": "false"}, // an absent key would satisfy the first condition
			}},
		registryLogin(),
	}
}

// ownRepositories returns the ARN pattern of the repositories of the session's app.
func (b *builder) ownRepositories() string {
	return b.arn("ecr", "repository/"+b.artifactPrefix()+tagged(TagApp)+"/*")
}

// registryLogin allows the login to ECR. IAM cannot limit this action to a
// resource. The other statements limit what can be pulled or pushed.
func registryLogin() policy.Statement {
	return policy.Statement{Sid: "RegistryLogin", Actions: []string{"ecr:GetAuthorizationToken"}, Resources: []string{"*"}}
}

// publisherAccess returns the upper limit of the permissions of a publisher's
// session.
func (b *builder) publisherAccess() []policy.Statement {
	return []policy.Statement{
		{Sid: "OwnArtifacts", Actions: slices.Concat(readImages, pushImages), Resources: []string{b.ownRepositories()}},
		{Sid: "NoBuiltArtifacts", Deny: true, Actions: pushImages, Resources: []string{b.arn("ecr", "repository/"+b.artifactPrefix()+"*/"+builtFolder)}},
		registryLogin(),
	}
}

// builderAccess returns the upper limit of the permissions of a build's session.
func (b *builder) builderAccess() []policy.Statement {
	return []policy.Statement{
		{Sid: "OwnBuiltArtifacts", Actions: slices.Concat(readImages, pushImages), Resources: []string{b.ownRepositories() + "/" + builtFolder}},
		// The folder of an app from which an image is built is packed in the component's repository.
		{Sid: "OwnFolders", Actions: readImages, Resources: []string{b.ownRepositories()}},
		registryLogin(),
		// A build of an image gets what its project declares, and no other commands, role or machine.
		{Sid: "StartImageBuilds", Actions: []string{"codebuild:StartBuild"}, Resources: []string{b.arn("codebuild", "project/"+b.imageProject())},
			Conditions: map[string]map[string]any{"Null": {"codebuild:source.buildspec": "true"}}},
		{Sid: "FollowImageBuilds", Actions: []string{"codebuild:BatchGetBuilds", "codebuild:StopBuild"}, Resources: []string{b.arn("codebuild", "project/"+b.imageProject())}},
		{Sid: "OwnBuildFiles", Actions: []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}, Resources: []string{*b.builds.AttrArn() + "/" + buildsFolder + tagged(TagApp) + "/*"}},
		{Sid: "OwnBuildLogs", Actions: []string{"logs:GetLogEvents"}, Resources: []string{b.arn("logs", "log-group:"+b.imageLogGroup()+":log-stream:"+tagged(TagApp)+"/*")}},
	}
}

// buildsFolder begins the keys of the objects of image builds; the app's identifier follows.
// TestBuildPrefixesMatch compares it with pkg/identity/awssession.
const buildsFolder = "builds/"

// builtFolder ends the names of the repositories to which only builds push.
// TestBuiltRepositoryNamesMatch compares it with pkg/control.
const builtFolder = "built"

// The actions of a push. A push also reads what the repository has already.
var (
	readImages = []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}
	pushImages = []string{"ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage"}
)

// appTrust lets only the function open sessions, each for one app.
func (b *builder) appTrust(sid, function string) map[string]any {
	app := map[string]any{"aws:RequestTag/" + TagApp: "app_*"} // the pattern also requires the tag
	named := map[string]any{"sts:RoleSessionName": "app_*", "aws:RequestTag/" + TagApp: "app_*"}
	return policy.Document(
		policy.Statement{Sid: sid, Principal: policy.AWS(function), Actions: []string{"sts:AssumeRole"},
			Conditions: map[string]map[string]any{"StringLike": named}},
		policy.Statement{Sid: "WithItsTag", Principal: policy.AWS(function), Actions: []string{"sts:TagSession"},
			Conditions: map[string]map[string]any{
				"StringLike":                app,
				"ForAllValues:StringEquals": {"aws:TagKeys": []string{TagApp}},
			}},
	)
}

// sessionTrust lets only sessionapi open runners' sessions and only runnerapi those of
// attempts, with a runner's name and tags. A session for a queue has the runner's tag alone, because the runner may serve
// many installs. A session for an attempt also has the tags of its install and app.
func (b *builder) sessionTrust(sessionapi, runnerapi string) map[string]any {
	request := func(tag string) string { return "aws:RequestTag/" + tag }
	queue := map[string]any{request(TagRunner): "run_*"} // a pattern also requires the tag
	attempt := map[string]any{request(TagRunner): "run_*", request(TagInstall): "ins_*", request(TagApp): "app_*"}
	alone := map[string]any{request(TagInstall): "true", request(TagApp): "true"}
	named := func(tags map[string]any) map[string]any {
		tags = maps.Clone(tags)
		tags["sts:RoleSessionName"] = "run_*"
		return tags
	}
	keys := func(tags ...string) map[string]any { return map[string]any{"aws:TagKeys": tags} }
	sessions, attempts := policy.AWS(sessionapi), policy.AWS(runnerapi)
	return policy.Document(
		policy.Statement{Sid: "SessionAPIOpensSessions", Principal: sessions, Actions: []string{"sts:AssumeRole"},
			Conditions: map[string]map[string]any{"StringLike": named(queue), "Null": alone}},
		policy.Statement{Sid: "WithTheRunnersTag", Principal: sessions, Actions: []string{"sts:TagSession"},
			Conditions: map[string]map[string]any{"StringLike": queue, "ForAllValues:StringEquals": keys(TagRunner)}},
		policy.Statement{Sid: "RunnerAPIOpensAttempts", Principal: attempts, Actions: []string{"sts:AssumeRole"},
			Conditions: map[string]map[string]any{"StringLike": named(attempt)}},
		policy.Statement{Sid: "WithAllThreeTags", Principal: attempts, Actions: []string{"sts:TagSession"},
			Conditions: map[string]map[string]any{"StringLike": attempt, "ForAllValues:StringEquals": keys(TagRunner, TagInstall, TagApp)}},
	)
}
