package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
)

const (
	sqs     = "arn:aws:sqs:eu-central-1:111122223333:fairlead-test-runner-"
	logs    = "arn:aws:logs:eu-central-1:111122223333:log-group:/fairlead-test/install/"
	ecr     = "arn:aws:ecr:eu-central-1:111122223333:repository/fairlead-test/"
	session = "arn:aws:iam::111122223333:role/fairlead-test-runner-session-eu-central-1"
	publish = "arn:aws:iam::111122223333:role/fairlead-test-publisher-eu-central-1"
	build   = "arn:aws:iam::111122223333:role/fairlead-test-builder-eu-central-1"

	project  = "arn:aws:codebuild:eu-central-1:111122223333:project/fairlead-test-image-build"
	imageLog = "arn:aws:logs:eu-central-1:111122223333:log-group:/fairlead-test/image-build:log-stream:"
)

// alias returns the ARN of the alias of a function, by which every caller invokes it.
func alias(function string) string {
	return "arn:aws:lambda:eu-central-1:111122223333:function:fairlead-test-" + function + ":live"
}

// Each row is a permission that the product needs, or an attack that must fail.
func TestWhoMayDoWhat(t *testing.T) {
	s := stack(t)
	table, blobs, archive := s.ARN("Table"), s.ARN("Blobs"), s.ARN("LogArchive")
	builds := s.ARN("Builds") + "/builds/"
	ed25519 := map[string]any{"kms:SigningAlgorithm": "ED25519_SHA_512"}
	type tags = map[string]any
	runnerA := tags{"aws:PrincipalTag/fairlead-runner": "run_a", "aws:PrincipalTag/fairlead-install": "ins_a", "aws:PrincipalTag/fairlead-app": "app_a"}
	publisherA := tags{"aws:PrincipalTag/fairlead-app": "app_a"}
	rows := []struct {
		role, action, resource string
		context                map[string]any
		allowed                bool
		what                   string
	}{
		// A runner's session.
		{"SessionRole", "sqs:ReceiveMessage", sqs + "run_a-q", runnerA, true, "a runner polls its queue"},
		{"SessionRole", "sqs:DeleteMessage", sqs + "run_a-q", runnerA, true, "a runner takes a wake-up off its queue"},
		{"SessionRole", "sqs:ReceiveMessage", sqs + "run_b-q", runnerA, false, "a runner reads the wake-ups of another"},
		{"SessionRole", "sqs:DeleteMessage", sqs + "run_b-q", runnerA, false, "a runner delays another by deleting its wake-ups"},
		{"SessionRole", "sqs:ReceiveMessage", sqs + "run_a-dead", runnerA, false, "a runner reads its dead-letter queue and hides its failures"},
		{"SessionRole", "sqs:ReceiveMessage", sqs + "run_ab-q", runnerA, false, "a runner reads the queue of a runner whose id has its id as prefix"},
		{"SessionRole", "sqs:SendMessage", sqs + "run_a-q", runnerA, false, "a runner sends itself work"},
		{"SessionRole", "sqs:SendMessage", sqs + "run_b-q", runnerA, false, "a runner sends another work"},
		{"SessionRole", "sqs:PurgeQueue", sqs + "run_a-q", runnerA, false, "a runner empties its queue"},
		{"SessionRole", "sqs:SetQueueAttributes", sqs + "run_a-q", runnerA, false, "a runner opens its queue to others"},
		{"SessionRole", "logs:PutLogEvents", logs + "ins_a:log-stream:job_1/1", runnerA, true, "a step writes its log"},
		{"SessionRole", "logs:CreateLogStream", logs + "ins_a:log-stream:job_1/1", runnerA, true, "a step opens its log"},
		{"SessionRole", "logs:PutLogEvents", logs + "ins_b:log-stream:job_1/1", runnerA, false, "a runner writes into another install's log"},
		{"SessionRole", "logs:GetLogEvents", logs + "ins_b:log-stream:job_1/1", runnerA, false, "a runner reads another install's log"},
		{"SessionRole", "logs:DeleteLogStream", logs + "ins_a:log-stream:job_1/1", runnerA, false, "a runner removes what it logged"},
		{"SessionRole", "ecr:BatchGetImage", ecr + "app/app_a/web", runnerA, true, "a step fetches its app's artifact"},
		{"SessionRole", "ecr:BatchGetImage", ecr + "app/app_b/web", runnerA, false, "a runner fetches another vendor app"},
		{"SessionRole", "ecr:PutImage", ecr + "app/app_a/web", runnerA, false, "a runner replaces the app that all customers get"},
		{"SessionRole", "ecr:BatchGetImage", ecr + "app/app_ab/web", runnerA, false, "a runner fetches an app whose identifier has the same prefix"},
		{"PublisherRole", "ecr:PutImage", ecr + "app/app_a/web", publisherA, true, "a publisher pushes"},
		{"PublisherRole", "ecr:InitiateLayerUpload", ecr + "app/app_a/web", publisherA, true, "a publisher pushes"},
		{"PublisherRole", "ecr:PutImage", ecr + "app/app_b/web", publisherA, false, "a publisher replaces another tenant's app"},
		{"PublisherRole", "ecr:BatchGetImage", ecr + "app/app_b/web", publisherA, false, "a publisher reads another tenant's source"},
		{"PublisherRole", "ecr:PutImage", ecr + "runner", publisherA, false, "a publisher replaces the runner that all customers start"},
		{"PublisherRole", "ecr:PutImage", ecr + "app/app_a/web", nil, false, "a session without a tag pushes"},
		{"PublisherRole", "ecr:BatchDeleteImage", ecr + "app/app_a/web", publisherA, false, "a publisher takes away what customers run"},
		{"PublisherRole", "ecr:CreateRepository", ecr + "app/app_a/web", publisherA, false, "a publisher makes repositories"},
		{"PublisherRole", "sqs:SendMessage", sqs + "run_a-q", publisherA, false, "a publisher sends work"},
		{"PublisherRole", "ecr:PutImage", ecr + "app/app_a/web/built", publisherA, false, "a publisher pushes in place of a build"},
		{"PublisherRole", "ecr:InitiateLayerUpload", ecr + "app/app_a/web/built", publisherA, false, "a publisher uploads in place of a build"},
		{"PublisherRole", "ecr:BatchGetImage", ecr + "app/app_a/web/built", publisherA, true, "a publisher reads what a build pushed"},
		{"SessionRole", "ecr:BatchGetImage", ecr + "app/app_a/web/built", runnerA, true, "a step fetches what a build pushed"},
		{"SessionRole", "ecr:PutImage", ecr + "app/app_a/web/built", runnerA, false, "a step pushes in place of a build"},
		{"BuilderRole", "ecr:PutImage", ecr + "app/app_a/web/built", publisherA, true, "a build pushes"},
		{"BuilderRole", "ecr:InitiateLayerUpload", ecr + "app/app_a/web/built", publisherA, true, "a build uploads"},
		{"BuilderRole", "ecr:PutImage", ecr + "app/app_a/web", publisherA, false, "a build replaces what a person published"},
		{"BuilderRole", "ecr:BatchGetImage", ecr + "app/app_a/web", publisherA, true, "a build reads the packed folder of its app"},
		{"BuilderRole", "ecr:BatchGetImage", ecr + "app/app_b/web", publisherA, false, "a build reads the folder of another app"},
		{"BuilderRole", "ecr:PutImage", ecr + "app/app_b/web/built", publisherA, false, "a build pushes to another app"},
		{"BuilderRole", "ecr:BatchGetImage", ecr + "app/app_b/web/built", publisherA, false, "a build reads another tenant's artifact"},
		{"BuilderRole", "ecr:PutImage", ecr + "app/app_a/web/built", nil, false, "a build's session without a tag pushes"},
		{"BuilderRole", "ecr:CreateRepository", ecr + "app/app_a/web/built", publisherA, false, "a build makes repositories"},
		{"BuilderRole", "codebuild:StartBuild", project, publisherA, true, "a build lets CodeBuild build its image"},
		{"BuilderRole", "codebuild:StartBuild", project, merge(publisherA, map[string]any{"codebuild:source.buildspec": "true"}), false, "a build runs other commands than the project's"},
		{"BuilderRole", "codebuild:StartBuild", project + "s", publisherA, false, "a build starts another project"},
		{"BuilderRole", "codebuild:BatchGetBuilds", project, publisherA, true, "a build follows its image"},
		{"BuilderRole", "codebuild:StopBuild", project, publisherA, true, "a canceled build stops its image"},
		{"BuilderRole", "codebuild:UpdateProject", project, publisherA, false, "a build gives the project another role"},
		{"BuilderRole", "codebuild:ListBuildsForProject", project, publisherA, false, "a build finds the builds of others"},
		{"BuilderRole", "iam:PassRole", s.ARN("BuildRunnerImagesRole"), publisherA, false, "a build starts a project with another role"},
		{"BuilderRole", "s3:PutObject", builds + "app_a/job_1/1/1/context.tar.gz", publisherA, true, "a build stores its context"},
		{"BuilderRole", "s3:GetObject", builds + "app_b/job_1/1/1/context.tar.gz", publisherA, false, "a build reads the Dockerfile of another app"},
		{"BuilderRole", "s3:PutObject", builds + "app_b/job_1/1/1/layout.tar", publisherA, false, "a build replaces the image of another app"},
		{"BuilderRole", "s3:PutObject", blobs + "/builds/app_a/x", publisherA, false, "a build writes to another bucket"},
		{"BuilderRole", "s3:ListBucket", s.ARN("Builds"), publisherA, false, "a build lists what others build"},
		{"BuilderRole", "s3:GetObject", builds + "app_a/job_1/1/1/layout.tar", nil, false, "a session without a tag reads an image"},
		{"BuilderRole", "logs:GetLogEvents", imageLog + "app_a/job_1/1/uuid", publisherA, true, "a build reads the log of its image"},
		{"BuilderRole", "logs:GetLogEvents", imageLog + "app_b/job_1/1/uuid", publisherA, false, "a build reads the log of another app's image"},
		{"PublisherRole", "codebuild:StartBuild", project, publisherA, false, "a publisher starts a build"},
		{"RunnerAPIRole", "codebuild:StartBuild", project, nil, false, "the Runner API starts a build by itself"},
		{"BuildRunnerRole", "codebuild:StartBuild", project, nil, false, "the build runner starts a build without a job"},

		// What a Dockerfile can use: the role of the project.
		{"BuildRunnerImagesRole", "logs:PutLogEvents", imageLog + "app_a/job_1/1/uuid", nil, true, "CodeBuild writes the log of a build"},
		{"BuildRunnerImagesRole", "logs:GetLogEvents", imageLog + "app_b/job_1/1/uuid", nil, false, "a Dockerfile reads the log of another app's image"},
		{"BuildRunnerImagesRole", "logs:PutLogEvents", logs + "ins_a:log-stream:job_1/1", nil, false, "a Dockerfile writes an install's log"},
		{"BuildRunnerImagesRole", "s3:GetObject", builds + "app_a/job_1/1/1/context.tar.gz", nil, false, "a Dockerfile reads the bucket without the step's URL"},
		{"BuildRunnerImagesRole", "s3:PutObject", builds + "app_a/job_1/1/1/layout.tar", nil, false, "a Dockerfile writes the bucket without the step's URL"},
		{"BuildRunnerImagesRole", "ecr:PutImage", ecr + "app/app_a/web/built", nil, false, "a Dockerfile pushes"},
		{"BuildRunnerImagesRole", "ecr:GetAuthorizationToken", "*", nil, false, "a Dockerfile logs in to the registry"},
		{"BuildRunnerImagesRole", "sts:AssumeRole", build, nil, false, "a Dockerfile becomes a build"},
		{"BuildRunnerImagesRole", "codebuild:StartBuild", project, nil, false, "a Dockerfile starts builds"},
		{"RunnerAPIRole", "ecr:PutImage", ecr + "app/app_a/web/built", nil, false, "the Runner API pushes by itself"},
		{"ControlAPIRole", "ecr:PutImage", ecr + "app/app_a/web", nil, false, "the Control API pushes by itself"},
		{"SessionRole", "ecr:PutImage", ecr + "runner", runnerA, false, "a runner replaces the runner that all customers start"},
		{"SessionRole", "dynamodb:GetItem", table, runnerA, false, "a runner reads the vendor's table"},
		{"SessionRole", "s3:GetObject", blobs + "/state/x", runnerA, false, "a runner reads sealed states of others"},
		{"SessionRole", "kms:Decrypt", s.ARN("SealKey"), runnerA, false, "a runner opens sealed values"},
		{"SessionRole", "kms:Sign", s.ARN("SigningKey"), merge(runnerA, ed25519), false, "a runner signs a job for another"},
		{"SessionRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "a session without tags reads a queue"},
		{"SessionRole", "logs:PutLogEvents", logs + "ins_a:log-stream:x", nil, false, "a session without tags writes a log"},

		// The functions.
		{"RunnerAPIRole", "kms:Sign", s.ARN("SigningKey"), ed25519, true, "a job spec is signed"},
		{"RunnerAPIRole", "kms:Sign", s.ARN("SpareSigningKey"), ed25519, false, "the spare key signs while the first is in use"},
		{"SessionAPIRole", "kms:GetPublicKey", s.ARN("SpareSigningKey"), nil, true, "an enrolled runner pins the spare key too"},
		{"RunnerAPIRole", "kms:Sign", s.ARN("SigningKey"), map[string]any{"kms:SigningAlgorithm": "ED25519_PH_SHA_512"}, false, "signing by another algorithm than runners verify"},
		{"WebhookRole", "kms:Decrypt", s.ARN("SealKey"), nil, true, "the secret of an endpoint is opened"},
		{"WebhookRole", "kms:Decrypt", s.ARN("DataKey"), nil, false, "the table's key is used without the table"},
		{"WebhookRole", "kms:Decrypt", s.ARN("DataKey"), map[string]any{"kms:CallerAccount": "111122223333", "kms:ViaService": "dynamodb.eu-central-1.amazonaws.com"}, true, "the table is read with its key"},
		{"RunnerAPIRole", "kms:GenerateMac", s.ARN("TokensKey"), map[string]any{"kms:MacAlgorithm": "HMAC_SHA_256"}, true, "the key of tokens is derived"},
		{"DispatchRole", "kms:GenerateMac", s.ARN("TokensKey"), map[string]any{"kms:MacAlgorithm": "HMAC_SHA_256"}, false, "dispatch mints tokens"},
		{"RunnerAPIRole", "kms:Sign", s.ARN("SealKey"), ed25519, false, "signing with another key"},
		{"SessionAPIRole", "kms:GetPublicKey", s.ARN("SigningKey"), nil, true, "an enrolled runner pins the public key"},
		{"SessionAPIRole", "kms:Sign", s.ARN("SigningKey"), ed25519, false, "the function of strangers signs jobs"},
		{"SessionAPIRole", "s3:GetObject", blobs + "/state/x", nil, false, "the function of strangers reads states"},
		{"SessionAPIRole", "dynamodb:GetItem", s.ARN("LogTable"), nil, false, "the function of strangers reads logs"},
		{"SessionAPIRole", "sqs:SendMessage", sqs + "run_a-q", nil, false, "the function of strangers sends work"},
		{"SessionAPIRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "the function of strangers takes work"},
		{"SessionAPIRole", "dynamodb:PutItem", s.ARN("Cancels"), nil, false, "the function of strangers cancels jobs"},
		{"SessionAPIRole", "sts:AssumeRole", publish, nil, false, "the function of strangers publishes"},
		{"ControlAPIRole", "kms:Sign", s.ARN("SigningKey"), ed25519, false, "the Control API signs jobs"},
		{"SweepRole", "kms:Sign", s.ARN("SigningKey"), ed25519, false, "the sweep signs jobs"},
		{"ControlAPIRole", "kms:GetPublicKey", s.ARN("SigningKey"), nil, true, "the public key goes into a customer's stack"},
		{"ControlAPIRole", "dynamodb:GetItem", table, nil, true, "the API reads"},
		{"ControlAPIRole", "dynamodb:Query", table + "/index/list", nil, true, "the API lists"},
		{"ControlAPIRole", "dynamodb:Scan", table, nil, false, "a scan of all tenants"},
		{"ControlAPIRole", "dynamodb:DeleteTable", table, nil, false, "the API removes the table"},
		{"ControlAPIRole", "dynamodb:ExportTableToPointInTime", table, nil, false, "the API copies the table out"},
		{"DispatchRole", "dynamodb:GetItem", table, nil, false, "dispatch reads more than the stream"},
		{"DispatchRole", "dynamodb:PutItem", table, nil, false, "dispatch writes"},
		{"DispatchRole", "dynamodb:ListStreams", "*", nil, true, "Lambda finds the stream with dispatch's role"},
		{"DispatchRole", "dynamodb:GetRecords", table + "/stream/2026-01-01T00:00:00.000", nil, true, "Lambda reads the stream with dispatch's role"},
		{"DispatchRole", "dynamodb:GetRecords", "arn:aws:dynamodb:eu-central-1:111122223333:table/other/stream/2026-01-01T00:00:00.000", nil, false, "dispatch reads the stream of another table"},
		{"DispatchRole", "sqs:SendMessage", sqs + "run_a-q", nil, true, "dispatch resends a lost wake-up"},
		{"DispatchRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "dispatch takes wake-ups"},
		{"DispatchRole", "events:PutEvents", s.ARN("Bus"), map[string]any{"events:source": []any{"fairlead"}}, true, "dispatch sends an event"},
		{"DispatchRole", "events:PutEvents", s.ARN("Bus"), map[string]any{"events:source": []any{"fairlead", "billing"}}, false, "dispatch sends an event with another source"},
		{"SweepRole", "sqs:ReceiveMessage", sqs + "run_a-dead", nil, true, "the sweep reads dead letters"},
		{"SweepRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "the sweep takes a runner's wake-ups"},
		{"SweepRole", "sqs:SendMessage", s.ARN("Sweeps"), nil, true, "the sweep starts itself again"},
		{"SweepRole", "sqs:ReceiveMessage", s.ARN("Sweeps"), nil, true, "Lambda receives with the sweep's role"},
		{"SweepRole", "sqs:SendMessage", s.ARN("Webhooks"), nil, false, "the sweep sends a forged event"},
		{"DispatchRole", "sqs:SendMessage", s.ARN("Sweeps"), nil, false, "dispatch starts the sweep"},
		{"AuditRole", "dynamodb:PutItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"AUDIT#default#org"}}, true, "audit appends an entry"},
		{"AuditRole", "dynamodb:Query", table, map[string]any{"dynamodb:LeadingKeys": []any{"AUDIT#default"}}, true, "audit reads the last checkpoint"},
		{"AuditRole", "dynamodb:PutItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"TOKEN#x"}}, false, "audit makes a token"},
		{"AuditRole", "dynamodb:PutItem", table, nil, false, "audit writes without a key"},
		{"AuditRole", "dynamodb:Query", table, map[string]any{"dynamodb:LeadingKeys": []any{"ORG#default#INSTALL"}}, false, "audit reads installs"},
		{"AuditRole", "dynamodb:DeleteItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"AUDIT#default#org"}}, false, "audit deletes an entry"},
		{"AuditRole", "kms:Sign", s.ARN("SigningKey"), map[string]any{"kms:SigningAlgorithm": "ED25519_SHA_512"}, true, "audit signs a checkpoint"},
		{"ControlAPIRole", "dynamodb:PutItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"AUDIT#default#org"}}, false, "controlapi writes an entry of the audit"},
		{"ControlAPIRole", "dynamodb:PutItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"TOKEN#x", "AUDIT#default#org"}}, false, "controlapi hides an entry in a transaction"},
		{"ControlAPIRole", "dynamodb:PutItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"TOKEN#x"}}, true, "controlapi makes a token"},
		{"SweepRole", "dynamodb:DeleteItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"AUDIT#default#org"}}, false, "the sweep deletes an entry"},
		{"RunnerAPIRole", "dynamodb:UpdateItem", table, map[string]any{"dynamodb:LeadingKeys": []any{"AUDIT#default"}}, false, "runnerapi changes a checkpoint"},
		{"WebhookRole", "sqs:SendMessage", s.ARN("Sweeps"), nil, false, "the webhook function starts the sweep"},
		{"SessionRole", "sqs:SendMessage", s.ARN("Sweeps"), runnerA, false, "a runner starts the sweep"},
		{"SessionRole", "sqs:ReceiveMessage", s.ARN("Sweeps"), runnerA, false, "a runner keeps the sweep from being started"},
		{"LogIndexRole", "s3:PutObject", archive + "/job_1", nil, true, "a log is archived"},
		{"LogIndexRole", "s3:DeleteObject", archive + "/job_1", nil, false, "an archived log is removed"},
		{"LogIndexRole", "dynamodb:GetItem", table, nil, true, "the owner of a job is looked up"},
		{"LogIndexRole", "dynamodb:PutItem", table, nil, false, "the log index writes the table of jobs"},
		{"LogIndexRole", "dynamodb:BatchWriteItem", s.ARN("LogTable"), nil, true, "what was archived is dropped"},
		{"LogIndexRole", "dynamodb:DeleteTable", s.ARN("LogTable"), nil, false, "the logs are removed"},
		{"LogIndexRole", "logs:GetLogEvents", logs + "ins_a:log-stream:job_1/1", nil, true, "a log is repaired from the record"},
		{"LogIndexRole", "logs:DeleteLogGroup", logs + "ins_a", nil, false, "the record is removed"},
		{"SweepRole", "dynamodb:UpdateItem", s.ARN("LogTable"), nil, true, "the log of a lost attempt is ended"},
		{"DispatchRole", "dynamodb:GetItem", s.ARN("LogTable"), nil, false, "dispatch reads logs"},
		{"WebhookRole", "dynamodb:GetItem", s.ARN("LogTable"), nil, false, "the webhook function reads logs"},
		{"SessionRole", "dynamodb:GetItem", s.ARN("LogTable"), runnerA, false, "a runner reads logs of others"},
		{"ControlAPIRole", "s3:GetObject", archive + "/logs/job_1/1.gz", nil, true, "a log that is over is read"},
		{"ControlAPIRole", "s3:PutObject", archive + "/logs/job_1/1.gz", nil, false, "the API rewrites a log that is over"},
		{"LogIndexRole", "s3:GetObject", blobs + "/state/x", nil, false, "the log's function reads states"},
		{"WebhookRole", "dynamodb:PutItem", table, nil, true, "an attempt is recorded"},
		{"WebhookRole", "dynamodb:DeleteItem", table, nil, false, "the webhook function removes records"},
		{"WebhookRole", "sqs:ChangeMessageVisibility", s.ARN("Webhooks"), nil, true, "an event is delayed before the next attempt"},
		{"WebhookRole", "s3:GetObject", blobs + "/state/x", nil, false, "the webhook function reads states"},
		{"WebhookRole", "sqs:SendMessage", sqs + "run_a-q", nil, false, "the webhook function wakes runners"},
		{"WebhookRole", "kms:GenerateDataKey", s.ARN("SealKey"), nil, false, "the webhook function seals"},
		{"ControlAPIRole", "sqs:CreateQueue", sqs + "run_a-q", nil, true, "a runner's queue is made"},
		{"ControlAPIRole", "sqs:CreateQueue", "arn:aws:sqs:eu-central-1:111122223333:other", nil, false, "a queue of another name is made"},
		{"RunnerAPIRole", "sqs:CreateQueue", sqs + "run_a-q", nil, true, "the report of a step makes the runner in a sandbox"},
		{"RunnerAPIRole", "sqs:TagQueue", sqs + "run_a-q", nil, true, "the queue of the runner in a sandbox gets its tags"},
		{"RunnerAPIRole", "sqs:DeleteQueue", sqs + "run_a-q", nil, false, "the Runner API deletes queues"},
		{"RunnerAPIRole", "sqs:CreateQueue", "arn:aws:sqs:eu-central-1:111122223333:other", nil, false, "the Runner API makes a queue of another name"},
		{"SweepRole", "sqs:CreateQueue", sqs + "run_a-q", nil, true, "the sweep makes a queue that a dead function did not make"},
		{"SweepRole", "sqs:DeleteQueue", sqs + "run_a-q", nil, false, "the sweep deletes queues"},
		{"DispatchRole", "sqs:CreateQueue", sqs + "run_a-q", nil, false, "dispatch makes queues"},
		{"ControlAPIRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "the Control API takes wake-ups"},
		{"ControlAPIRole", "logs:PutSubscriptionFilter", logs + "ins_a", nil, true, "an install's log is indexed"},
		{"ControlAPIRole", "logs:PutSubscriptionFilter", "arn:aws:logs:eu-central-1:999999999999:destination:spy", nil, false, "an install's log is sent to another account"},
		{"ControlAPIRole", "sts:AssumeRole", session, nil, false, "the Control API opens a runner's session"},
		{"RunnerAPIRole", "ecr:PutImage", ecr + "app/app_a/web", nil, false, "the Runner API publishes"},
		{"RunnerAPIRole", "s3:DeleteBucket", blobs, nil, false, "the blobs are removed"},

		// The build runner's role, which has no permissions, and its execution role.
		{"BuildRunnerRole", "sts:AssumeRole", session, nil, false, "the build runner opens a session without the Runner API"},
		{"BuildRunnerRole", "sts:AssumeRole", publish, nil, false, "the build runner publishes without the Control API"},
		{"BuildRunnerRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "the build runner takes a customer's wake-ups"},
		{"BuildRunnerRole", "sqs:SendMessage", sqs + "run_a-q", nil, false, "the build runner wakes a customer's runner"},
		{"BuildRunnerRole", "logs:PutLogEvents", logs + "ins_a:log-stream:job_1/1", nil, false, "the build runner writes a customer's log"},
		{"BuildRunnerRole", "logs:GetLogEvents", logs + "ins_a:log-stream:job_1/1", nil, false, "the build runner reads a customer's log"},
		{"BuildRunnerRole", "ecr:PutImage", ecr + "app/app_a/web", nil, false, "code in a build replaces an app"},
		{"BuildRunnerRole", "ecr:PutImage", ecr + "runner", nil, false, "code in a build replaces the runner that all customers start"},
		{"BuildRunnerRole", "ecr:GetAuthorizationToken", "*", nil, false, "code in a build logs in to the registry"},
		{"BuildRunnerRole", "dynamodb:GetItem", table, nil, false, "code in a build reads the vendor's table"},
		{"BuildRunnerRole", "s3:GetObject", blobs + "/state/x", nil, false, "code in a build reads states"},
		{"BuildRunnerRole", "s3:PutObject", s.ARN("Templates") + "/runner/x.yaml", nil, false, "code in a build replaces the template that customers install"},
		{"BuildRunnerRole", "kms:Decrypt", s.ARN("SealKey"), nil, false, "code in a build opens sealed values"},
		{"BuildRunnerRole", "kms:Sign", s.ARN("SigningKey"), ed25519, false, "code in a build signs a job"},
		{"ReleasesRole", "lambda:UpdateAlias", s.ARN("RunnerAPI") + ":live", nil, true, "a release moves the alias"},
		{"ReleasesRole", "cloudwatch:DescribeAlarms", "*", nil, true, "a release looks at its alarms"},
		{"ReleasesRole", "lambda:UpdateFunctionCode", s.ARN("RunnerAPI"), nil, false, "a release brings code of its own"},
		{"ReleasesRole", "lambda:InvokeFunction", s.ARN("ControlAPI") + ":live", nil, false, "a release asks for an operator's token"},
		{"BuildRunnerRole", "lambda:InvokeFunction", s.ARN("ControlAPI"), nil, false, "code in a build asks for an operator's token"},
		{"BuildRunnerExecutionRole", "ecr:BatchGetImage", ecr + "runner", nil, true, "ECS pulls the runner's image"},
		{"BuildRunnerExecutionRole", "ecr:BatchGetImage", ecr + "app/app_a/web", nil, false, "ECS pulls an app"},
		{"BuildRunnerExecutionRole", "ecr:PutImage", ecr + "runner", nil, false, "the execution role replaces the image"},
		{"BuildRunnerExecutionRole", "logs:PutLogEvents", strings.TrimSuffix(s.ARN("BuildRunnerLog"), "*") + "log-stream:runner/runner/1", nil, true, "ECS writes the build runner's own log"},
		{"BuildRunnerExecutionRole", "logs:PutLogEvents", logs + "ins_a:log-stream:job_1/1", nil, false, "the execution role writes a customer's log"},
		{"BuildRunnerExecutionRole", "secretsmanager:GetSecretValue", "arn:aws:secretsmanager:eu-central-1:111122223333:secret:x", nil, false, "the execution role reads a secret"},
		{"RunnerAPIRole", "ecs:UpdateService", "arn:aws:ecs:eu-central-1:111122223333:service/buildrunnercluster/x", nil, false, "a function starts the build runner from another image"},
		{"DirectAgentsRole", "lambda:InvokeFunction", alias("direct"), nil, true, "direct launch asks for its runners"},
		{"DirectAgentsRole", "lambda:InvokeFunction", strings.TrimSuffix(alias("direct"), ":live"), nil, false, "direct launch invokes a version that no alias names"},
		{"DirectAgentsRole", "lambda:InvokeFunction", alias("controlapi"), nil, false, "direct launch asks for an operator's token"},
		{"DirectAgentsRole", "lambda:InvokeFunction", alias("runnerapi"), nil, false, "direct launch forges a request of a runner"},
		{"DirectAgentsRole", "sts:AssumeRole", "arn:aws:iam::444455556666:role/fairlead-direct-jobs", nil, true, "direct launch becomes the role that a customer made for it"},
		{"DirectAgentsRole", "sts:AssumeRole", "arn:aws:iam::444455556666:role/fairlead/ins_a/provision", nil, false, "direct launch becomes the role of an operation in a customer's stack"},
		{"DirectAgentsRole", "sts:AssumeRole", "arn:aws:iam::444455556666:role/admin", nil, false, "direct launch becomes another role of a customer"},
		{"DirectAgentsRole", "sts:AssumeRole", session, nil, false, "direct launch opens a session without the Runner API"},
		{"DirectAgentsRole", "sts:AssumeRole", publish, nil, false, "direct launch publishes"},
		{"DirectAgentsRole", "sts:GetWebIdentityToken", "*", map[string]any{"sts:IdentityTokenAudience": []any{"api://AzureADTokenExchange"}}, true, "direct launch reaches a cluster in Azure"},
		{"DirectAgentsRole", "sts:GetWebIdentityToken", "*", map[string]any{"sts:IdentityTokenAudience": []any{"https://elsewhere.example"}}, false, "direct launch proves its identity to another audience"},
		{"DirectAgentsRole", "dynamodb:GetItem", table, nil, false, "direct launch reads the vendor's table"},
		{"DirectAgentsRole", "kms:Decrypt", s.ARN("SealKey"), nil, false, "direct launch opens sealed values itself"},
		{"DirectAgentsRole", "kms:Sign", s.ARN("SigningKey"), ed25519, false, "direct launch signs a job"},
		{"DirectAgentsRole", "sqs:ReceiveMessage", sqs + "run_a-q", nil, false, "direct launch takes an installed runner's wake-ups"},
		{"DirectAgentsRole", "s3:GetObject", blobs + "/state/x", nil, false, "direct launch reads states"},
		{"DirectAgentsRole", "ecr:PutImage", ecr + "runner", nil, false, "direct launch replaces the runner that all customers start"},
		{"DirectRole", "kms:Decrypt", s.ARN("SealKey"), nil, true, "the function opens a configuration"},
		{"DirectRole", "kms:GenerateDataKey", s.ARN("SealKey"), nil, false, "the function seals"},
		{"DirectRole", "kms:Sign", s.ARN("SigningKey"), ed25519, false, "the function signs a job"},
		{"DirectRole", "dynamodb:PutItem", table, nil, true, "the function makes an enrolment"},
		{"DirectRole", "dynamodb:DeleteItem", table, nil, false, "the function removes records"},
		{"DirectRole", "sts:AssumeRole", "arn:aws:iam::444455556666:role/fairlead-direct-jobs", nil, false, "the function uses a customer's role"},
		{"BuildRunnerRole", "lambda:InvokeFunction", alias("direct"), nil, false, "code in a build asks for customers' credentials"},
		{"SessionRole", "lambda:InvokeFunction", alias("direct"), runnerA, false, "a runner asks for customers' credentials"},
		{"ControlAPIRole", "lambda:InvokeFunction", alias("direct"), nil, false, "a function asks for customers' credentials"},
		{"ControlAPIRole", "iam:PassRole", s.ARN("BuildRunnerRole"), nil, false, "a function passes on the build runner's role"},
	}
	for _, role := range []string{"ControlAPIRole", "SessionAPIRole", "RunnerAPIRole", "DirectRole", "DispatchRole", "AuditRole", "SweepRole", "LogIndexRole", "WebhookRole", "SessionRole", "BuildRunnerRole", "BuildRunnerExecutionRole", "BuildRunnerImagesRole", "BuilderRole", "DirectAgentsRole", "DirectAgentsExecutionRole"} {
		for action, resource := range map[string]string{
			"iam:CreateUser": "arn:aws:iam::111122223333:user/x", "iam:PutRolePolicy": session, "iam:PassRole": session,
			"lambda:UpdateFunctionCode": s.ARN("ControlAPI"), "kms:ScheduleKeyDeletion": s.ARN("SealKey"), "kms:PutKeyPolicy": s.ARN("SigningKey"),
			"s3:PutBucketPolicy": blobs, "s3:DeleteObjectVersion": blobs + "/x", "dynamodb:UpdateTable": table,
		} {
			rows = append(rows, struct {
				role, action, resource string
				context                map[string]any
				allowed                bool
				what                   string
			}{role, action, resource, runnerA, false, "a function changes its own infrastructure"})
		}
	}
	var questions []infratest.Question
	for _, r := range rows {
		questions = append(questions, infratest.Question{Principal: s.ARN(r.role), Action: r.action, Resource: r.resource, Account: infratest.Account,
			Context: r.context, Identity: s.Policies(r.role)})
	}
	// A role's policy for a key counts only if the key's policy delegates to the
	// account.
	for i, q := range questions {
		for id, r := range s.Resources {
			if r.Type == "AWS::KMS::Key" && q.Resource == s.ARN(id) {
				questions[i].ResourceP = r.Properties["KeyPolicy"].(map[string]any)
			}
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s: %s may %s on %s: %t, want %t", r.what, r.role, r.action, r.resource, allowed, r.allowed)
		}
	}
	t.Logf("%d questions", len(rows))
}

func merge(ms ...map[string]any) map[string]any {
	out := map[string]any{}
	for _, m := range ms {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// Only sessionapi may open a runner's session and only runnerapi an attempt's, and only with
// all tags and a runner's name.
func TestOnlyTwoFunctionsOpenSessions(t *testing.T) {
	s := stack(t)
	good := map[string]any{"sts:RoleSessionName": "run_a", "aws:RequestTag/fairlead-runner": "run_a", "aws:RequestTag/fairlead-install": "ins_a",
		"aws:RequestTag/fairlead-app": "app_a", "aws:TagKeys": []any{"fairlead-runner", "fairlead-install", "fairlead-app"}}
	queue := map[string]any{"sts:RoleSessionName": "run_a", "aws:RequestTag/fairlead-runner": "run_a", "aws:TagKeys": []any{"fairlead-runner"}}
	without := func(key string) map[string]any {
		m := merge(good)
		delete(m, key)
		return m
	}
	rows := []struct {
		what, principal string
		identity        []map[string]any
		context         map[string]any
		allowed         bool
	}{
		{"sessionapi, for a queue", s.ARN("SessionAPIRole"), s.Policies("SessionAPIRole"), queue, true},
		{"sessionapi, for an attempt", s.ARN("SessionAPIRole"), s.Policies("SessionAPIRole"), good, false},
		{"runnerapi, for a queue", s.ARN("RunnerAPIRole"), s.Policies("RunnerAPIRole"), queue, false},
		{"runnerapi, for an attempt", s.ARN("RunnerAPIRole"), s.Policies("RunnerAPIRole"), good, true},
		{"the Control API", s.ARN("ControlAPIRole"), s.Policies("ControlAPIRole"), good, false},
		{"the webhook function", s.ARN("WebhookRole"), s.Policies("WebhookRole"), good, false},
		{"a runner's session, to be another runner", session, s.Policies("SessionRole"), good, false},
		{"a stranger's administrator", "arn:aws:iam::999999999999:role/admin", []map[string]any{allowAll()}, good, false},
		{"an administrator of the vendor, without a function", "arn:aws:iam::111122223333:role/admin", []map[string]any{allowAll()}, good, false},
		{"without the runner's tag", s.ARN("RunnerAPIRole"), s.Policies("RunnerAPIRole"), without("aws:RequestTag/fairlead-runner"), false},
		{"for an attempt, without the install's tag", s.ARN("RunnerAPIRole"), s.Policies("RunnerAPIRole"), without("aws:RequestTag/fairlead-install"), false},
		{"for an attempt, without the app's tag", s.ARN("RunnerAPIRole"), s.Policies("RunnerAPIRole"), without("aws:RequestTag/fairlead-app"), false},
		{"for an attempt, with a name that is not a runner's", s.ARN("RunnerAPIRole"), s.Policies("RunnerAPIRole"), merge(good, map[string]any{"sts:RoleSessionName": "admin"}), false},
		{"for a queue, with a name that is not a runner's", s.ARN("SessionAPIRole"), s.Policies("SessionAPIRole"), merge(queue, map[string]any{"sts:RoleSessionName": "admin"}), false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		questions = append(questions, infratest.Question{Principal: r.principal, Action: "sts:AssumeRole", Resource: session, Account: infratest.Account,
			Context: r.context, Identity: r.identity, ResourceP: s.Resources["SessionRole"].Properties["AssumeRolePolicyDocument"].(map[string]any)})
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s: %t, want %t", r.what, allowed, r.allowed)
		}
	}
}

// Only the Control API may open a publisher's session, and only with the app's tag and
// name.
func TestOnlyControlAPIPublishes(t *testing.T) {
	onlyOneFunctionOpens(t, "PublisherRole", "ControlAPIRole", "RunnerAPIRole")
}

// Only the Runner API may open a build's session, and only with the app's tag and name.
func TestOnlyRunnerAPIStartsBuilds(t *testing.T) {
	onlyOneFunctionOpens(t, "BuilderRole", "RunnerAPIRole", "ControlAPIRole")
}

// onlyOneFunctionOpens checks that the function's role may open sessions of the role opened, and that the role other,
// sessions and people may not.
func onlyOneFunctionOpens(t *testing.T, opened, function, other string) {
	t.Helper()
	s := stack(t)
	target := publish
	if opened == "BuilderRole" {
		target = build
	}
	good := map[string]any{"sts:RoleSessionName": "app_a", "aws:RequestTag/fairlead-app": "app_a", "aws:TagKeys": []any{"fairlead-app"}}
	untagged := merge(good)
	delete(untagged, "aws:RequestTag/fairlead-app")
	rows := []struct {
		what, principal string
		identity        []map[string]any
		context         map[string]any
		allowed         bool
	}{
		{"its function, for an app", s.ARN(function), s.Policies(function), good, true},
		{"another function", s.ARN(other), s.Policies(other), good, false},
		{"a runner's session", session, s.Policies("SessionRole"), good, false},
		{"a session of the role, another app", target, s.Policies(opened), good, false},
		{"an administrator of the vendor, without the function", "arn:aws:iam::111122223333:role/admin", []map[string]any{allowAll()}, good, false},
		{"without the app's tag", s.ARN(function), s.Policies(function), untagged, false},
		{"with a name that is not an app's", s.ARN(function), s.Policies(function), merge(good, map[string]any{"sts:RoleSessionName": "admin"}), false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		questions = append(questions, infratest.Question{Principal: r.principal, Action: "sts:AssumeRole", Resource: target, Account: infratest.Account,
			Context: r.context, Identity: r.identity, ResourceP: s.Resources[opened].Properties["AssumeRolePolicyDocument"].(map[string]any)})
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s: %t, want %t", r.what, allowed, r.allowed)
		}
	}
}

func allowAll() map[string]any {
	return map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "*", "Resource": "*"}}}
}

// The bucket policies refuse these requests, even if the caller's own policies
// allow them.
func TestBucketsRefuse(t *testing.T) {
	s := stack(t)
	for _, id := range []string{"Blobs", "LogArchive", "AccessLogs", "Templates", "Builds"} {
		policy := s.Resources[id+"Policy"].Properties["PolicyDocument"].(map[string]any)
		question := func(principal, transport string) infratest.Question {
			return infratest.Question{Principal: principal, Action: "s3:GetObject", Resource: s.ARN(id) + "/x", Account: infratest.Account,
				Context: map[string]any{"aws:SecureTransport": transport}, Identity: []map[string]any{allowAll()}, ResourceP: policy}
		}
		got := infratest.Ask(t, []infratest.Question{
			question("arn:aws:iam::111122223333:role/admin", "true"), question("arn:aws:iam::111122223333:role/admin", "false"),
			question("arn:aws:iam::999999999999:role/admin", "true"),
		})
		if want := "[true false false]"; fmt.Sprint(got) != want {
			t.Errorf("%s: an administrator, one without TLS, a stranger: %v, want %s", id, got, want)
		}
	}
}

// Only the configured accounts can read the image and the template. Another account
// cannot read them, even if its own policies allow the request.
func TestOnlyCustomersReadPublishedFiles(t *testing.T) {
	const customer, stranger, tls, plain = "444455556666", "999999999999", "true", "false"
	listed, open := stack(t), withReaders(t, control.AnyAccount)
	images := func(s infratest.Stack) map[string]any {
		return s.Resources["RunnerImages"].Properties["RepositoryPolicyText"].(map[string]any)
	}
	templates := func(s infratest.Stack) map[string]any {
		return s.Resources["TemplatesPolicy"].Properties["PolicyDocument"].(map[string]any)
	}
	template := listed.ARN("Templates") + "/runner/x.yaml"
	rows := []struct {
		what, account, action, resource, transport string // an empty account: a request without a signature
		policy                                     map[string]any
		allowed                                    bool
	}{
		{"a customer's task pulls the image", customer, "ecr:BatchGetImage", listed.ARN("RunnerImages"), tls, images(listed), true},
		{"a customer replaces the image", customer, "ecr:PutImage", listed.ARN("RunnerImages"), tls, images(listed), false},
		{"a stranger pulls the image", stranger, "ecr:BatchGetImage", listed.ARN("RunnerImages"), tls, images(listed), false},
		{"a customer's console reads the template", customer, "s3:GetObject", template, tls, templates(listed), true},
		{"a customer reads the template without TLS", customer, "s3:GetObject", template, plain, templates(listed), false},
		{"a customer replaces the template of others", customer, "s3:PutObject", template, tls, templates(listed), false},
		{"a customer lists the bucket", customer, "s3:ListBucket", listed.ARN("Templates"), tls, templates(listed), false},
		{"a customer reads the policy with all accounts", customer, "s3:GetBucketPolicy", listed.ARN("Templates"), tls, templates(listed), false},
		{"a stranger reads the template", stranger, "s3:GetObject", template, tls, templates(listed), false},
		{"a request without a signature reads the template", "", "s3:GetObject", template, tls, templates(listed), false},

		{"any account pulls the image", stranger, "ecr:BatchGetImage", listed.ARN("RunnerImages"), tls, images(open), true},
		{"any account replaces the image", stranger, "ecr:PutImage", listed.ARN("RunnerImages"), tls, images(open), false},
		{"any account reads the template", stranger, "s3:GetObject", template, tls, templates(open), true},
		{"any account reads the template without TLS", stranger, "s3:GetObject", template, plain, templates(open), false},
		{"any account lists the bucket", stranger, "s3:ListBucket", listed.ARN("Templates"), tls, templates(open), false},
		{"any account replaces the template of others", stranger, "s3:PutObject", template, tls, templates(open), false},
		{"the open bucket answers a request without a signature", "", "s3:GetObject", template, tls, templates(open), false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		context := map[string]any{"aws:SecureTransport": r.transport}
		if r.account == "" { // the simulator has no anonymous principal
			r.account, context["aws:PrincipalAccount"] = stranger, nil
		}
		questions = append(questions, infratest.Question{Principal: "arn:aws:iam::" + r.account + ":role/admin", Action: r.action, Resource: r.resource,
			Account: infratest.Account, Context: context, Identity: []map[string]any{allowAll()}, ResourceP: r.policy})
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s: %t, want %t", r.what, allowed, r.allowed)
		}
	}
}

// S3 and ECR refuse a policy that names a principal that no longer exists. A closed
// account would block each later deployment of the vendor.
func TestClosedAccountBlocksNoDeployment(t *testing.T) {
	s := stack(t)
	for _, document := range []any{s.Resources["RunnerImages"].Properties["RepositoryPolicyText"], s.Resources["TemplatesPolicy"].Properties["PolicyDocument"]} {
		for _, st := range infratest.Statements(document) {
			if st["Principal"] != "*" || st["Condition"] == nil {
				t.Errorf("the statement %v names a principal, or has no condition: %v", st["Sid"], st)
			}
		}
	}
}

// After the operator rotated the keys, the functions sign with the key of the operator, and with no key of the stack.
func TestFunctionsSignWithTheLaterKeyOnly(t *testing.T) {
	const later = "arn:aws:kms:eu-central-1:111122223333:key/mrk-0123456789abcdef0123456789abcdef"
	values := given()
	values[control.ParameterLaterKey] = later
	s, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	ed25519 := map[string]any{"kms:SigningAlgorithm": "ED25519_SHA_512"}
	keyPolicy := s.Resources["SigningKey"].Properties["KeyPolicy"].(map[string]any) // the account decides, as for a key that the operator makes
	var questions []infratest.Question
	for _, role := range []string{"RunnerAPIRole", "AuditRole"} {
		for _, key := range []string{later, s.ARN("SigningKey"), s.ARN("SpareSigningKey")} {
			questions = append(questions, infratest.Question{Principal: s.ARN(role), Action: "kms:Sign", Resource: key, Account: infratest.Account, Context: ed25519, Identity: s.Policies(role), ResourceP: keyPolicy})
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if q := questions[i]; allowed != (q.Resource == later) {
			t.Errorf("%s signs with %s: %t", q.Principal, q.Resource, allowed)
		}
	}
	if got, err := s.Output("SigningKeyArn"); err != nil || got != later {
		t.Errorf("the stack's output has %q, %v", got, err)
	}
	if accepted := infratest.Accepts(t, synth(t).template, control.ParameterLaterKey, []string{"none", later, "alias/spare", "", later + ","}); !slices.Equal(accepted, []bool{true, true, false, false, false}) {
		t.Errorf("the parameter accepts %v", accepted)
	}
}

// withReaders returns the stack whose image and template these accounts read.
func withReaders(t *testing.T, readers string) infratest.Stack {
	t.Helper()
	values := given()
	values[control.ParameterReaders] = readers
	s, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
