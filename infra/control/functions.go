package control

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3assets"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// Functions lists the control plane's functions: the names of the folders with their
// builds, and of their mains under functions/.
var Functions = []string{"controlapi", "sessionapi", "runnerapi", "direct", "dispatch", "audit", "sweep", "logindex", "webhook"}

// titles maps each function to the prefix of its logical ids.
var titles = map[string]string{
	"controlapi": "ControlAPI", "sessionapi": "SessionAPI", "runnerapi": "RunnerAPI", "direct": "Direct", "dispatch": "Dispatch", "audit": "Audit", "sweep": "Sweep", "logindex": "LogIndex", "webhook": "Webhook",
}

// timeouts of the functions, in seconds. The HTTP API waits for 30 s.
var timeouts = map[string]float64{
	"controlapi": 29, "sessionapi": 29, "runnerapi": 29, "direct": 29, "dispatch": 30, "audit": 60, "sweep": 55, "logindex": 60, "webhook": 60,
}

// environments returns the environment of each function. Each value is the struct
// that the function's main loads.
func (b *builder) environments() map[string]any {
	const level = "info"
	url, version := b.url(), *b.when(ParameterVersion, b.parameters[ParameterVersion].value, "unknown").ToString()
	return map[string]any{
		"controlapi": &config.ControlAPI{
			URL: url, Table: b.served.name, LogTable: *b.logTable.Ref(), CancelTable: *b.cancels.Ref(), Blobs: *b.blobs.Ref(), LogArchive: *b.archive.Ref(),
			QueuePrefix: b.queuePrefix(), LogGroupPrefix: b.logGroupPrefix(), LogRetention: b.props.LogDays,
			LogSubscriber: b.aliasARN("logindex"), ArtifactPrefix: b.artifactPrefix(), PublisherRole: b.publisherRoleARN(),
			SealKey: b.sealKey.arn, SigningKey: b.signs, SpareKey: b.idle, TokensKey: b.tokensKey.arn,
			RunnerImage: b.runnerImage(), StackTemplateURL: b.templateURL(), DirectLaunch: config.Switch(b.launchesDirectly()), Quotas: b.props.Quotas, OrgRate: b.props.OrgRate, Version: version, LogLevel: level, Traces: b.props.Traces,
		},
		"sessionapi": &config.SessionAPI{
			URL: url, OtherURLs: b.otherURLs(), Table: b.served.name, QueuePrefix: b.queuePrefix(),
			SealKey: b.sealKey.arn, SigningKey: b.signs, SpareKey: b.idle, TokensKey: b.tokensKey.arn,
			SessionRole: b.sessionRoleARN(), Version: version, LogLevel: level, Traces: b.props.Traces,
		},
		"runnerapi": &config.RunnerAPI{
			URL: url, OtherURLs: b.otherURLs(), Table: b.served.name, LogTable: *b.logTable.Ref(), CancelTable: *b.cancels.Ref(), Blobs: *b.blobs.Ref(),
			QueuePrefix: b.queuePrefix(), LogGroupPrefix: b.logGroupPrefix(), ArtifactPrefix: b.artifactPrefix(),
			SealKey: b.sealKey.arn, SigningKey: b.signs, TokensKey: b.tokensKey.arn,
			SessionRole: b.sessionRoleARN(), BuilderRole: b.builderRoleARN(), ImageProject: b.imageProject(), ImageBucket: *b.builds.Ref(), ImageLogGroup: b.imageLogGroup(), LogBurst: b.props.LogBurst, LogPerHour: b.props.LogPerHour, Version: version, LogLevel: level, Traces: b.props.Traces,
		},
		"direct":   &config.Direct{Table: b.served.name, SealKey: b.sealKey.arn, Version: version, LogLevel: level, Traces: b.props.Traces},
		"dispatch": &config.Dispatch{CancelTable: *b.cancels.Ref(), QueuePrefix: b.queuePrefix(), EventBus: *b.bus.Ref(), Version: version, LogLevel: level, Traces: b.props.Traces},
		"audit":    &config.Audit{Table: b.served.name, SigningKey: b.signs, Version: version, LogLevel: level, Traces: b.props.Traces},
		"sweep": &config.Sweep{
			Table: b.served.name, LogTable: *b.logTable.Ref(), CancelTable: *b.cancels.Ref(), Blobs: *b.blobs.Ref(), QueuePrefix: b.queuePrefix(),
			Queue: *b.sweeps.Ref(), Delays: sweepDelays(), SealKey: b.sealKey.arn, Version: version, LogLevel: level, Traces: b.props.Traces,
		},
		"logindex": &config.LogIndex{Table: b.served.name, LogTable: *b.logTable.Ref(), LogArchive: *b.archive.Ref(), LogGroupPrefix: b.logGroupPrefix(),
			LogBurst: b.props.LogBurst, LogPerHour: b.props.LogPerHour, Version: version, LogLevel: level, Traces: b.props.Traces},
		"webhook": &config.Webhook{Table: b.served.name, Queue: *b.webhooks.Ref(), SealKey: b.sealKey.arn, Timeout: webhookTimeout, Version: version, LogLevel: level, Traces: b.props.Traces},
	}
}

// functionARN returns the ARN of a function. It is built from the name, not from a
// reference, so that functions can name each other without a circular dependency.
func (b *builder) functionARN(name string) string {
	return b.arn("lambda", "function:"+b.name+"-"+name)
}

func (b *builder) roleARN(name string) string {
	return "arn:" + b.partition + ":iam::" + b.account + ":role/" + name
}

func (b *builder) sessionRoleARN() string { return b.roleARN(b.sessionRoleName()) }

func (b *builder) sessionRoleName() string { return b.name + "-runner-session-" + b.region }

func (b *builder) publisherRoleARN() string { return b.roleARN(b.publisherRoleName()) }

func (b *builder) publisherRoleName() string { return b.name + "-publisher-" + b.region }

func (b *builder) builderRoleARN() string { return b.roleARN(b.builderRoleName()) }

func (b *builder) builderRoleName() string { return b.name + "-builder-" + b.region }

// makeFunctions makes the functions, each with its own role and log group.
func (b *builder) makeFunctions() error {
	b.functions, b.versions, b.aliases = map[string]awslambda.CfnFunction{}, map[string]awslambda.CfnVersion{}, map[string]awslambda.CfnAlias{}
	environments := b.environments()
	for _, name := range Functions {
		if err := b.function(name, environments[name]); err != nil {
			return fmt.Errorf("function %s: %w", name, err)
		}
	}
	return nil
}

func (b *builder) function(name string, environment any) error {
	folder := filepath.Join(b.props.Functions, name)
	if _, err := os.Stat(filepath.Join(folder, "bootstrap")); err != nil {
		return fmt.Errorf("no build: %w", err)
	}
	variables, err := config.Environ(environment)
	if err != nil {
		return err
	}
	id := titles[name]
	group := awslogs.NewCfnLogGroup(b.stack, jsii.String(id+"Log"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String("/aws/lambda/" + b.name + "-" + name), RetentionInDays: jsii.Number(float64(b.props.LogDays)),
	})
	group.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)

	statements := []policy.Statement{{Sid: "OwnLog", Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"}, Resources: []string{*group.AttrArn()}}}
	for _, g := range access[name] {
		statements = append(statements, g.statement(b))
	}
	role := awsiam.NewCfnRole(b.stack, jsii.String(id+"Role"), &awsiam.CfnRoleProps{
		Description:              jsii.String(b.name + ": what the function " + name + " may do"),
		AssumeRolePolicyDocument: policy.Trust("lambda.amazonaws.com", nil),
		Policies:                 []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("calls"), PolicyDocument: policy.Document(statements...)}},
	})

	code := awss3assets.NewAsset(b.stack, jsii.String(id+"Code"), &awss3assets.AssetProps{Path: jsii.String(folder)})
	f := awslambda.NewCfnFunction(b.stack, jsii.String(id), &awslambda.CfnFunctionProps{
		FunctionName: jsii.String(b.name + "-" + name),
		Code:         &awslambda.CfnFunction_CodeProperty{S3Bucket: code.S3BucketName(), S3Key: code.S3ObjectKey()},
		Runtime:      jsii.String("provided.al2023"), Handler: jsii.String("bootstrap"), Architectures: jsii.Strings("arm64"),
		MemorySize: jsii.Number(float64(b.props.MemoryMB)), Timeout: jsii.Number(timeouts[name]),
		Role: role.AttrArn(),
		// Without the level, Lambda writes two or three lines of its own for each
		// invocation, which cost more than the invocation.
		LoggingConfig: &awslambda.CfnFunction_LoggingConfigProperty{LogGroup: group.Ref(), LogFormat: jsii.String("JSON"), SystemLogLevel: jsii.String("WARN")},
		Environment:   &awslambda.CfnFunction_EnvironmentProperty{Variables: variables},
	})
	if n, ok := reserved[name]; ok {
		f.AddPropertyOverride(jsii.String("ReservedConcurrentExecutions"), b.when(ParameterReserves, n, awscdk.Aws_NO_VALUE()))
	}
	code.AddResourceMetadata(f, jsii.String("Code"))
	b.functions[name], b.roles[name], b.logs[name] = f, role, group.Ref()
	return b.publish(name, f, *code.AssetHash(), role.AttrArn(), b.props.MemoryMB, timeouts[name], variables)
}

// session makes the role of all runners' sessions, and the roles of the sessions of publishers
// and builds.
func (b *builder) session() {
	role := func(id, name, purpose string, trust map[string]any, own []policy.Statement) awsiam.CfnRole {
		return awsiam.NewCfnRole(b.stack, jsii.String(id), &awsiam.CfnRoleProps{
			RoleName: jsii.String(name), Description: jsii.String(b.name + ": " + purpose),
			AssumeRolePolicyDocument: trust, MaxSessionDuration: jsii.Number(3600),
			Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("own"), PolicyDocument: policy.Document(own...)}},
		})
	}
	b.publisherRole = role("PublisherRole", b.publisherRoleName(), "a publisher's session; its tag decides what it may push to",
		b.appTrust("ControlAPILetsPublish", *b.roles["controlapi"].AttrArn()), b.publisherAccess())
	b.builderRole = role("BuilderRole", b.builderRoleName(), "a build's session; its tag decides to which app it may push",
		b.appTrust("RunnerAPILetsBuild", *b.roles["runnerapi"].AttrArn()), b.builderAccess())
	b.sessionRole = role("SessionRole", b.sessionRoleName(), "a runner's session; its tags decide what it may use",
		b.sessionTrust(*b.roles["sessionapi"].AttrArn(), *b.roles["runnerapi"].AttrArn()), b.sessionAccess())
}

// dispatched lists the key prefixes of the items whose changes go to dispatch;
// docs/contributing/table-items.md lists the items. TestDispatchMatchesAnnouncedItems
// compares the list with the store's.
var dispatched = []struct{ partition, sort string }{
	{"JOB#", "JOB"}, {"DEPLOYMENT#", "DEPLOYMENT"}, {"INSTALL#", "STATE#"}, {"WEBHOOK#", "DELIVERY#"},
	{"RUNNER#", "WATCH"},
}

// finalEvents are the events that report the end of a job. After such an event, no
// process writes the job's log. TestArchiveRuleMatchesFinalEvents compares them with
// the store's.
var finalEvents = []any{"fairlead.job.succeeded", "fairlead.job.failed", "fairlead.job.canceled", "fairlead.job.lost"}

// sources makes the event sources of the functions.
func (b *builder) sources() {
	var filters []*awslambda.CfnEventSourceMapping_FilterProperty
	for _, d := range dispatched {
		filters = append(filters, &awslambda.CfnEventSourceMapping_FilterProperty{Pattern: jsii.String(fmt.Sprintf(
			`{"eventName":["INSERT","MODIFY"],"dynamodb":{"Keys":{%q:{"S":[{"prefix":%q}]},%q:{"S":[{"prefix":%q}]}}}}`,
			dynamo.AttrPartition, d.partition, dynamo.AttrSort, d.sort))})
	}
	awslambda.NewCfnEventSourceMapping(b.stack, jsii.String("DispatchSource"), &awslambda.CfnEventSourceMappingProps{
		FunctionName: b.aliases["dispatch"].Ref(), EventSourceArn: jsii.String(b.served.stream), StartingPosition: jsii.String("TRIM_HORIZON"),
		FilterCriteria: &awslambda.CfnEventSourceMapping_FilterCriteriaProperty{Filters: filters},
		// A record that cannot be sent delays its shard for at most an hour. Then
		// Lambda reports its batch in the dead-letter queue.
		BatchSize: jsii.Number(100), BisectBatchOnFunctionError: jsii.Bool(true), FunctionResponseTypes: jsii.Strings("ReportBatchItemFailures"),
		MaximumRetryAttempts: jsii.Number(20), MaximumRecordAgeInSeconds: jsii.Number(3600), ParallelizationFactor: jsii.Number(2),
		DestinationConfig: &awslambda.CfnEventSourceMapping_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventSourceMapping_OnFailureProperty{Destination: b.deadLetters["Dispatch"].AttrArn()},
		},
	})
	b.queuePolicy("DispatchDeadLetters", b.deadLetters["Dispatch"])

	awslambda.NewCfnEventSourceMapping(b.stack, jsii.String("AuditSource"), &awslambda.CfnEventSourceMappingProps{
		FunctionName: b.aliases["audit"].Ref(), EventSourceArn: jsii.String(b.served.stream), StartingPosition: jsii.String("TRIM_HORIZON"),
		FilterCriteria: &awslambda.CfnEventSourceMapping_FilterCriteriaProperty{Filters: []*awslambda.CfnEventSourceMapping_FilterProperty{{Pattern: jsii.String(fmt.Sprintf(
			`{"eventName":["INSERT","MODIFY"],"dynamodb":{"NewImage":{%q:{"B":[{"exists":true}]}}}}`, dynamo.AttrNote))}}},
		// One checkpoint for what a minute brings. No entry may be lost: the stream keeps a record for a day, and Lambda tries as long.
		BatchSize: jsii.Number(500), MaximumBatchingWindowInSeconds: jsii.Number(60), FunctionResponseTypes: jsii.Strings("ReportBatchItemFailures"),
		MaximumRetryAttempts: jsii.Number(-1), MaximumRecordAgeInSeconds: jsii.Number(-1),
		DestinationConfig: &awslambda.CfnEventSourceMapping_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventSourceMapping_OnFailureProperty{Destination: b.deadLetters["Audit"].AttrArn()},
		},
	})
	b.queuePolicy("AuditDeadLetters", b.deadLetters["Audit"])

	every := awsevents.NewCfnRule(b.stack, jsii.String("SweepSchedule"), &awsevents.CfnRuleProps{
		Description: jsii.String("the sweep, every minute; in between it starts itself"), ScheduleExpression: jsii.String(sweepSchedule), State: jsii.String("ENABLED"),
		Targets: []*awsevents.CfnRule_TargetProperty{{
			Id: jsii.String("sweep"), Arn: b.aliases["sweep"].Ref(),
			RetryPolicy:      &awsevents.CfnRule_RetryPolicyProperty{MaximumRetryAttempts: jsii.Number(2), MaximumEventAgeInSeconds: jsii.Number(60)},
			DeadLetterConfig: &awsevents.CfnRule_DeadLetterConfigProperty{Arn: b.deadLetters["Sweep"].AttrArn()},
		}},
	})
	b.queuePolicy("SweepDeadLetters", b.deadLetters["Sweep"], every.AttrArn())
	b.allow("SweepPermission", "sweep", "events.amazonaws.com", *every.AttrArn())
	b.onFailure("Sweep", "sweep", 0) // the next sweep does the same work
	awslambda.NewCfnEventSourceMapping(b.stack, jsii.String("SweepSource"), &awslambda.CfnEventSourceMappingProps{
		FunctionName: b.aliases["sweep"].Ref(), EventSourceArn: b.sweeps.AttrArn(), BatchSize: jsii.Number(1),
		// Concurrent sweeps look at the same jobs, so more concurrent sweeps do not finish
		// earlier. Two is the lowest value that Lambda accepts.
		ScalingConfig: &awslambda.CfnEventSourceMapping_ScalingConfigProperty{MaximumConcurrency: jsii.Number(2)},
	})
	b.queuePolicy("Sweeps", b.sweeps)

	b.allow("LogIndexPermission", "logindex", "logs.amazonaws.com", b.arn("logs", "log-group:"+b.logGroupPrefix()+"*:*"))
	over := awsevents.NewCfnRule(b.stack, jsii.String("JobOverRule"), &awsevents.CfnRuleProps{
		Description: jsii.String("the logs of a job that is over are archived"), EventBusName: b.bus.Ref(), State: jsii.String("ENABLED"),
		EventPattern: map[string]any{"source": []any{"fairlead"}, "detail-type": finalEvents},
		Targets: []*awsevents.CfnRule_TargetProperty{{
			Id: jsii.String("logindex"), Arn: b.aliases["logindex"].Ref(),
			DeadLetterConfig: &awsevents.CfnRule_DeadLetterConfigProperty{Arn: b.deadLetters["LogIndex"].AttrArn()},
		}},
	})
	b.allow("LogIndexArchives", "logindex", "events.amazonaws.com", *over.AttrArn())
	b.onFailure("LogIndex", "logindex", 2)
	b.queuePolicy("LogIndexDeadLetters", b.deadLetters["LogIndex"], over.AttrArn())

	awslambda.NewCfnEventSourceMapping(b.stack, jsii.String("WebhookSource"), &awslambda.CfnEventSourceMappingProps{
		FunctionName: b.aliases["webhook"].Ref(), EventSourceArn: b.webhooks.AttrArn(), BatchSize: jsii.Number(10),
		FunctionResponseTypes: jsii.Strings("ReportBatchItemFailures"),
		// Slow endpoints must not use up the concurrent invocations that the account
		// permits.
		ScalingConfig: &awslambda.CfnEventSourceMapping_ScalingConfigProperty{MaximumConcurrency: jsii.Number(10)},
	})
}

// allow lets a service invoke a function for one source.
func (b *builder) allow(id, function, service, source string) {
	awslambda.NewCfnPermission(b.stack, jsii.String(id), &awslambda.CfnPermissionProps{
		Action: jsii.String("lambda:InvokeFunction"), FunctionName: b.aliases[function].Ref(),
		Principal: jsii.String(service), SourceArn: jsii.String(source), SourceAccount: jsii.String(b.account),
	})
}

// onFailure sends an asynchronous invocation that finally failed to the dead-letter
// queue.
func (b *builder) onFailure(id, function string, retries float64) {
	config := awslambda.NewCfnEventInvokeConfig(b.stack, jsii.String(id+"OnFailure"), &awslambda.CfnEventInvokeConfigProps{
		FunctionName: b.functions[function].Ref(), Qualifier: jsii.String(alias), MaximumRetryAttempts: jsii.Number(retries),
		DestinationConfig: &awslambda.CfnEventInvokeConfig_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventInvokeConfig_OnFailureProperty{Destination: b.deadLetters[id].AttrArn()},
		},
	})
	config.AddResourceDependency(b.aliases[function], nil)
}
