// Package control defines the control plane on AWS as one CloudFormation stack: the
// table, the functions with a role each, the API, queues, buckets, keys, the event
// bus, and alarms.
//
// The package uses CloudFormation's own resources and no constructs that grant
// permissions by themselves. So access.go lists each permission, and a person can
// review the template like code.
package control

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecr"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/nag"
)

const webhookTimeout = 5 * time.Second

// sweepSchedule is the shortest period of EventBridge. sweepDelays are delays after
// each scheduled sweep: the sweep starts again after each delay, so it runs every 12
// s. A dead host must be noticed within 60 s. Of these 60 s, the lease takes 45 s and
// the gap between two sweeps 12 s. AWS may take the remaining 3 s to deliver a message
// and to start a function.
const sweepSchedule = "rate(1 minute)"

func sweepDelays() []time.Duration {
	return []time.Duration{12 * time.Second, 24 * time.Second, 36 * time.Second, 48 * time.Second}
}

// builder holds the parts of a stack during its construction.
type builder struct {
	props Props
	name  string // of the control plane: "fairlead-" and the stage
	stack awscdk.Stack

	partition, region, account string
	parameters                 map[string]parameter

	dataKey, sealKey, tokensKey           key
	signingKey, spareKey                  key
	signs, idle                           string // ARNs of the key that signs, and of the other one
	table, logTable, cancels              awsdynamodb.CfnTable
	served                                servedTable
	accessLogs, blobs, archive, templates awss3.CfnBucket
	builds                                awss3.CfnBucket
	deadLetters                           map[string]awssqs.CfnQueue
	webhooks, sweeps                      awssqs.CfnQueue
	bus                                   awsevents.CfnEventBus
	runnerImages                          awsecr.CfnRepository
	api                                   awsapigatewayv2.CfnApi
	functions                             map[string]awslambda.CfnFunction
	versions                              map[string]awslambda.CfnVersion
	aliases                               map[string]awslambda.CfnAlias
	roles                                 map[string]awsiam.CfnRole
	logs                                  map[string]*string // names of the log groups of the functions and, as "api", of the access log
	sessionRole, publisherRole            awsiam.CfnRole
	builderRole                           awsiam.CfnRole
	routes                                []awsapigatewayv2.CfnRoute
	alarms                                *string // ARN of the topic
	build                                 build
	direct                                direct
	copies                                copies
}

// New adds the control plane's stack to the scope.
func New(scope constructs.Construct, props Props) (awscdk.Stack, error) {
	props, err := props.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	name := "fairlead-" + props.Stage
	env := &awscdk.Environment{}
	if props.Region != "" {
		env.Region = jsii.String(props.Region)
	}
	if props.Account != "" {
		env.Account = jsii.String(props.Account)
	}
	stack := awscdk.NewStack(scope, jsii.String(name), &awscdk.StackProps{
		StackName: jsii.String(name), Env: env, Description: jsii.String("Fairlead's control plane, stage " + props.Stage),
		TerminationProtection: jsii.Bool(true),
		Tags:                  &map[string]*string{"fairlead": jsii.String(props.Stage)},
		AnalyticsReporting:    jsii.Bool(false),
	})
	b := &builder{props: props, name: name, stack: stack,
		partition: *awscdk.Aws_PARTITION(), region: *stack.Region(), account: *stack.Account(),
		roles: map[string]awsiam.CfnRole{}, logs: map[string]*string{}}
	b.declare()
	b.keys()
	b.makeTable()
	b.makeLogTable()
	b.makeCancels()
	b.buckets()
	b.makeCopies()
	b.queues()
	b.makeBus()
	b.published()
	b.buildBucket()
	b.makeAPI()
	if err := b.makeFunctions(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	b.session()
	b.sources()
	b.connectAPI()
	if err := b.makeBuildRunner(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	if err := b.makeDirectLaunch(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	if err := b.canaries(b.watch()); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	b.reportFailedCopies()
	b.reportLateCopies()
	b.onlyAll(ParameterDirect, titles["direct"])
	b.outputs()
	if err := b.suppress(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return stack, nil
}

// Prefixes of the names of queues, log groups and repositories that the functions
// make.
func (b *builder) queuePrefix() string    { return b.name + "-" }
func (b *builder) logGroupPrefix() string { return "/" + b.name + "/install/" }
func (b *builder) artifactPrefix() string { return b.name + "/app/" }

// arn returns the ARN of a resource of this account and region.
func (b *builder) arn(service, resource string) string {
	return "arn:" + b.partition + ":" + service + ":" + b.region + ":" + b.account + ":" + resource
}

func (b *builder) outputs() {
	output := func(id, doc, value string) awscdk.CfnOutput {
		return awscdk.NewCfnOutput(b.stack, jsii.String(id), &awscdk.CfnOutputProps{Description: jsii.String(doc), Value: jsii.String(value)})
	}
	output("URL", "of the control plane", b.url())
	output("TableName", "DynamoDB table", b.served.name)
	output("RunnerRepository", "push the runner's image here", *b.runnerImages.AttrRepositoryUri())
	output("ControlAPIFunction", "invoke it to ask for an operator's token", *b.aliases["controlapi"].Ref())
	output("EventBus", "of domain events", *b.bus.Ref())
	output("AlarmTopic", "subscribe to it to receive alarms", *b.alarms)
	nag.Acknowledge(output("SigningKeyArn", "signs jobs; runners pin its public half", b.signs), "W1001", "each reference to a key is in a branch of the key's own condition; cfn-lint follows nested branches, and TestLint runs it")
	output("SpareSigningKeyArn", "the other key of which runners pin the public half", b.idle)
	output("BuildRunnerRoleArn", "role that a build runner has, or would have", b.roleARN(b.buildRunnerRole()))
	output("DirectLaunchRoleArn", "role that direct launch has, or would have; customers' roles trust it", b.roleARN(b.directRole()))
	output("KeyIds", "of the five keys, which are the same in every Region with replicas", b.keyIDs())
	output("BlobsBucket", "of states, plans and app versions", *b.blobs.Ref())
	output("LogArchiveBucket", "of the logs of ended jobs", *b.archive.Ref())
	output("TemplateBucket", "of the templates that customers install", *b.templates.Ref())
	published := func(id, doc, parameter, value string) {
		output(id, doc, value).SetCondition(b.parameters[parameter].isSet)
	}
	published("RunnerImage", "what customers' stacks start", ParameterDigest, b.ownImage())
	published("RunnerImageWithShell", "the same with a shell and git: for the parameter RunnerImage of a customer's stack", ParameterShell, b.imageOf(ParameterShell))
	published("TemplateKey", "of the current template", ParameterTemplate, templateKey(b.parameters[ParameterTemplate].value))
}
