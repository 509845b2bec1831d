package runnerstack

import (
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/pkg/awsaction"
)

// Modes of the runner's network.
const (
	publicIP = "NewVpcPublicIp" // no NAT gateway: a public address, but no incoming connections
	nat      = "NewVpcNat"      // private subnets behind a NAT gateway
	existing = "ExistingVpc"
)

const enabled, paused, disabled = "Enabled", "Paused", "Disabled"

// Isolation of jobs.
const (
	eachTask = "Task"    // a task of its own for each job
	process  = "Process" // processes in the agent's task
)

// Parameters that `fairlead install stack` sets if an earlier stack left states behind.
const existingBucket, existingKey = "ExistingStateBucket", "ExistingStateKey"

// existingSeed names the seed of the install keys. The control plane does not set it.
const existingSeed = "ExistingInstallKey"

// Secrets of the customer for jobs.
const (
	jobSecrets = "JobSecrets"
	// secretEntry is the pattern of one secret: NAME=ARN or NAME=ARN#KEY.
	secretEntry = `([a-z][a-z0-9-]*/)?(var\.)?[A-Za-z_][A-Za-z0-9_]*=arn:aws[a-z-]*:(ssm:[a-z0-9-]+:[0-9]{12}:parameter/|secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)[A-Za-z0-9/_+.@-]+(#[A-Za-z0-9_.-]+)?`
	maxSecrets  = 8
)

// parameters are the template's parameters. None is a secret, so none is hidden from
// the customer.
type parameters struct {
	controlPlaneURL, installID, runnerID, externalID, trustedKeys, image awscdk.CfnParameter
	state, network                                                       awscdk.CfnParameter
	vpcCIDR, vpc, subnets, assignPublicIP                                awscdk.CfnParameter
	appUses, appActions, readOnlyPolicy, plansReadData                   awscdk.CfnParameter
	isolation, size, warmTasks, logDays, secrets, images, policy         awscdk.CfnParameter
	stateBucket, stateKey, seed, logKey, flowLogs, serviceRole           awscdk.CfnParameter
	sizes                                                                awscdk.CfnMapping
	operationActions                                                     map[string]awscdk.CfnParameter // by operation

	isEnabled, isPaused, readsData, newVPC, hasNAT, needsPublicIP, hasTasks, keepsWarm awscdk.CfnCondition
	newBucket, newKey, hasLogKey, hasFlowLogs, newServiceRole, hasSecrets, hasPolicy   awscdk.CfnCondition
	newSeed                                                                            awscdk.CfnCondition
	hasOwnActions                                                                      map[string]awscdk.CfnCondition // by operation
	hasImage                                                                           []awscdk.CfnCondition          // by the place in the list of images
}

// defaultActions are the actions of an app, and of the roles that it makes, unless the
// customer or the app's declaration sets others. IAM is not included: separate statements
// permit roles. cdk-nag cannot read actions that are a parameter, so each has its reason here.
var defaultActions = []struct{ action, why string }{
	{"acm:*", "certificates of load balancers and APIs"},
	{"apigateway:*", "APIs of the app"},
	{"application-autoscaling:*", "the number of tasks, and the capacity of tables, follow the load"},
	{"autoscaling:*", "groups of machines, such as nodes of a cluster"},
	{"cloudfront:*", "distributions before buckets and load balancers"},
	{"cloudwatch:*", "alarms and dashboards of the app"},
	{"dynamodb:*", "tables of the app"},
	{"ec2:*", "networks, security groups and machines"},
	{"ecr:*", "repositories of the app's own images"},
	{"ecs:*", "services and tasks of the app"},
	{"eks:*", "clusters of the app"},
	{"elasticache:*", "caches of the app"},
	{"elasticfilesystem:*", "shared file systems of tasks"},
	{"elasticloadbalancing:*", "load balancers before services"},
	{"events:*", "rules that start tasks and functions"},
	{"kms:*", "keys of the app's data"},
	{"lambda:*", "functions of the app"},
	{"logs:*", "log groups of functions and tasks"},
	{"rds:*", "databases of the app"},
	{"route53:*", "DNS records of the app"},
	{"s3:*", "buckets of the app"},
	{"scheduler:*", "schedules of tasks and functions"},
	{"secretsmanager:*", "passwords of databases"},
	{"servicediscovery:*", "names of services in a VPC"},
	{"sns:*", "notifications between parts of the app"},
	{"sqs:*", "queues of the app"},
	{"ssm:*", "parameters of the app, and public ids of machine images"},
	{"ssmmessages:*", "shells in the app's own containers, which ECS Exec opens"},
	{"states:*", "state machines of the app"},
	{"tag:*", "modules look up resources by their tags"},
	{"xray:*", "traces of functions and services"},
}

func defaultAppActions() string {
	var out []string
	for _, d := range defaultActions {
		out = append(out, d.action)
	}
	return strings.Join(out, ",")
}

// parameters asks for the parameters, in groups.
//
// long: one row for each parameter
func (b *builder) parameters() {
	groups := []struct {
		label string
		ids   []string
	}{
		{label: "From your vendor: do not change", ids: []string{"ControlPlaneUrl", "InstallId", "RunnerId", "ExternalId", "TrustedKeys", "RunnerImage"}},
		{label: "On and off", ids: []string{"RunnerState"}},
		{label: "Network", ids: []string{"NetworkMode", "VpcCidr", "VpcId", "SubnetIds", "AssignPublicIp", "FlowLogs"}},
		{label: "What the app may do", ids: []string{"AppUses", "AppActions", "ProvisionActions", "DeployActions", "DeprovisionActions", "ReadOnlyPolicyArn", "PlansReadData", jobSecrets, "Policy"}},
		{label: "Jobs", ids: []string{"Isolation", scriptImages, "RunnerSize", "WarmTasks", "LogRetentionDays"}},
		{label: "States and keys: empty makes new ones", ids: []string{existingBucket, existingKey, existingSeed, "LogKeyArn"}},
		{label: "For a new account", ids: []string{"EcsServiceLinkedRole"}},
	}
	ask := func(id, kind, doc string, props awscdk.CfnParameterProps) awscdk.CfnParameter {
		props.Type, props.Description = jsii.String(kind), jsii.String(doc)
		return awscdk.NewCfnParameter(b.stack, jsii.String(id), &props)
	}
	pattern := func(p, says string) awscdk.CfnParameterProps {
		return awscdk.CfnParameterProps{AllowedPattern: jsii.String(p), ConstraintDescription: jsii.String(says)}
	}
	choice := func(first string, more ...string) awscdk.CfnParameterProps {
		return awscdk.CfnParameterProps{Default: first, AllowedValues: jsii.Strings(append([]string{first}, more...)...)}
	}
	p := &b.p
	p.controlPlaneURL = ask("ControlPlaneUrl", "String", "URL of the vendor's control plane.", pattern(`^https://[a-z0-9.-]+(:[0-9]+)?$`, "an https URL without a path"))
	p.installID = ask("InstallId", "String", "Identifier of this install.", pattern(`^ins_[0-9a-z]{26}$`, "ins_ and 26 letters and digits"))
	p.runnerID = ask("RunnerId", "String", "Identifier of the runner, which the control plane identifies by this stack's role.", pattern(`^run_[0-9a-z]{26}$`, "run_ and 26 letters and digits"))
	p.externalID = ask("ExternalId", "String", "External id of this install, from the control plane. It is not a secret.",
		pattern(`^[\w+=,.@:/-]{16,256}$`, "16 to 256 characters, as the control plane gave them"))
	p.trustedKeys = ask("TrustedKeys", "String", "Public keys, separated by commas. The runner runs only jobs that one of them signed.",
		pattern(`^[A-Za-z0-9+/=_:-]{32,}(,[A-Za-z0-9+/=_:-]{32,})*$`, "public keys as the control plane gave them, separated by commas"))
	p.image = ask("RunnerImage", "String", "Runner image for arm64, by digest.", pattern(`^[a-z0-9./:_-]+@sha256:[0-9a-f]{64}$`, "an image with its sha256 digest; not a tag, which can move"))

	p.state = ask("RunnerState", "String", "Paused: the runner starts no jobs. Disabled: the runner stops and loses its roles, also for running jobs, which may only save their state. The app is not changed.", choice(enabled, paused, disabled))

	p.network = ask("NetworkMode", "String", "NewVpcPublicIp has no NAT gateway, which costs more than the runner; nothing can connect to the runner in any mode. AWS allows 5 VPCs a region unless you ask for more: if they are used up, take ExistingVpc, for example with the default VPC, its subnets, and AssignPublicIp ENABLED.", choice(publicIP, nat, existing))
	cidr := pattern(`^(10|172|192)\.[0-9]{1,3}\.[0-9]{1,3}\.0/2[0-4]$`, "a private network of /20 to /24")
	cidr.Default = "10.249.0.0/24"
	p.vpcCIDR = ask("VpcCidr", "String", "Network of a new VPC.", cidr)
	p.vpc = ask("VpcId", "String", "Existing VPC; only with ExistingVpc.", awscdk.CfnParameterProps{Default: "", AllowedPattern: jsii.String(`^(vpc-[0-9a-f]+)?$`)})
	p.subnets = ask("SubnetIds", "CommaDelimitedList", "Subnets of the existing VPC, with a way to the internet; only with ExistingVpc.", awscdk.CfnParameterProps{Default: ""})
	p.assignPublicIP = ask("AssignPublicIp", "String", "Whether the runner gets a public address in the existing VPC: if its subnets have no NAT gateway.", choice("DISABLED", "ENABLED"))

	p.flowLogs = ask("FlowLogs", "String", "Enabled records the connections of a new VPC in a log group. CloudWatch Logs bills them.", choice(disabled, enabled))

	optional := func(p, says string) awscdk.CfnParameterProps {
		props := pattern(p, says)
		props.Default = ""
		return props
	}
	const keyARN = `^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-z0-9-]+)?$`
	p.stateBucket = ask(existingBucket, "String", "Existing bucket with the states of this install: that of its earlier stack, which stays when a stack is deleted. Its bucket policy must be unchanged.",
		optional(`^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$`, "the name of a bucket, or empty"))
	p.stateKey = ask(existingKey, "String", "Existing KMS key of this region that encrypts states and plans: a key of yours, or that of the earlier stack's bucket. Its policy must let IAM policies of this account decide.",
		optional(keyARN, "the ARN of a KMS key, or empty"))
	p.seed = ask(existingSeed, "String", "Name of a secret of yours in Secrets Manager of this region, with the seed of the install keys: at least 43 letters and digits. Its keys encrypt secrets, so that your vendor cannot read them. That of an earlier stack stays when the stack is deleted. Empty: the stack makes one. Only with Isolation Task.",
		optional(`^([A-Za-z0-9/_+.@-]{1,256})?$`, "the name of a secret, or empty"))
	p.logKey = ask("LogKeyArn", "String", "KMS key of yours that encrypts the runner's own log and the flow logs. Its policy must let CloudWatch Logs of this region use it.", optional(keyARN, "the ARN of a KMS key, or empty"))
	p.serviceRole = ask("EcsServiceLinkedRole", "String", "ECS needs the role AWSServiceRoleForECS, which most accounts have. Create: this account has never used ECS, so the stack makes it first.", choice("Exists", "Create"))

	p.appUses = ask("AppUses", "String", "AppActions and the actions of operations in sentences, as your vendor describes them. It grants nothing: the parameters below decide, so compare them.",
		awscdk.CfnParameterProps{Default: strings.Join(awsaction.Sentences(strings.Split(defaultAppActions(), ",")), " "), MaxLength: jsii.Number(4096)})
	actions := pattern(awsaction.TemplatePattern(), "actions with their service, such as lambda:*; none of "+strings.Join(awsaction.Refused(), ", "))
	actions.Default = defaultAppActions()
	p.appActions = ask("AppActions", "CommaDelimitedList", "Actions that the app's operations and the app's own roles may use, within the boundary.", actions)
	p.operationActions, p.hasOwnActions = map[string]awscdk.CfnParameter{}, map[string]awscdk.CfnCondition{}
	for _, o := range operations {
		if o.name == readOnly { // it has a managed policy
			continue
		}
		own := optional(awsaction.OptionalPattern(), "actions of AppActions, or empty")
		p.operationActions[o.name] = ask(o.title+"Actions", "CommaDelimitedList", "Those of AppActions that the role has which "+o.verb+". Empty: all of AppActions.", own)
	}
	arn := pattern(`^arn:aws[a-z-]*:iam::(aws|[0-9]{12}):policy/.+$`, "the ARN of a managed policy")
	arn.Default = "arn:aws:iam::aws:policy/ReadOnlyAccess"
	p.readOnlyPolicy = ask("ReadOnlyPolicyArn", "String", "Managed policy of the role that plans. The stack denies its access to data unless PlansReadData is Yes.", arn)
	p.plansReadData = ask("PlansReadData", "String", "Yes lets plans read secrets, parameters, objects and rows. Without it, an app that creates them with Terraform can be planned only once.", choice("No", "Yes"))

	// A secret's name in Secrets Manager may contain =, which separates name and ARN here.
	p.secrets = ask(jobSecrets, "String", "Secrets of yours for jobs, at most 8: NAME=ARN, separated by commas. NAME is an environment variable, or var.NAME for a variable of the app's component; COMPONENT/ before it gives the secret to this component only. ARN is that of a Secrets Manager secret or an SSM parameter; #KEY after it takes one field of a JSON object. Only the job's step reads it, for its tool.",
		optional(`^(`+secretEntry+`(,`+secretEntry+`){0,`+strconv.Itoa(maxSecrets-1)+`})?$`, "NAME=ARN, separated by commas, at most 8, such as database/var.password=arn:aws:secretsmanager:…"))

	p.policy = ask("Policy", "String", "Name of an SSM parameter of yours, of type String, with your policy, which decides what jobs may do. The steps of jobs read and enforce it; no role of the stack can change it. If the parameter does not exist, no job starts. Only with Isolation Task.",
		optional(`^((/[A-Za-z0-9_.-]+)+)?$`, "the name of an SSM parameter that begins with /, such as /acme/fairlead-policy"))

	p.isolation = ask("Isolation", "String", "Task: each job has a task of its own, with the role of its operation only. Process: all jobs are processes in one task, one at a time for each GiB of its memory. This does not protect a job from one that runs at the same time: its programs can read the memory, files and credentials of the other job's programs. The role of the task can take the roles of all operations.", choice(eachTask, process))
	p.images = ask(scriptImages, "String", "Images of your vendor in which scripts of the app may run, for arm64, at most 4: HOST/NAME@sha256:DIGEST, separated by commas. Only with Isolation Task. A script in another image does not start. A script has the role of its operation, in each image.",
		optional(`^(`+imageEntry+`(,`+imageEntry+`){0,`+strconv.Itoa(maxImages-1)+`})?$`, "images with their sha256 digests, separated by commas, at most 4, such as registry.example.com/acme/tools@sha256:…"))
	p.size = ask("RunnerSize", "String", "Of the task of each job. Small is a quarter of a CPU and 0.5 GiB, Medium twice that, Large 1 CPU and 2 GiB, XLarge 2 CPUs and 4 GiB.", choice("Medium", "Small", "Large", "XLarge"))
	// One parameter for both, because Fargate supports few pairs of CPU and memory.
	sizes := map[string]*map[string]any{}
	for name, size := range fargate.Sizes() {
		sizes[name] = &map[string]any{"Cpu": size.CPU, "Memory": size.Memory, "Processes": size.Processes()}
	}
	p.sizes = awscdk.NewCfnMapping(b.stack, jsii.String("Sizes"), &awscdk.CfnMappingProps{Mapping: &sizes})
	p.warmTasks = ask("WarmTasks", "Number", "Tasks that are kept started for the first job of a deployment, which otherwise waits about 30 s for its task. Only with Isolation Task. Each costs as much as a task of RunnerSize that always runs: with Medium about $18 a month, with its public address.",
		awscdk.CfnParameterProps{Default: "0", MinValue: jsii.Number(0), MaxValue: jsii.Number(maxTasks)})
	p.logDays = ask("LogRetentionDays", "Number", "Days that the runner's own log is kept.", awscdk.CfnParameterProps{Default: "30",
		AllowedValues: jsii.Strings("1", "3", "5", "7", "14", "30", "60", "90", "120", "150", "180", "365", "400", "545", "731", "1827", "3653")})
	b.conditions()

	var interfaces []any
	for _, g := range groups {
		var ids []any
		for _, id := range g.ids {
			ids = append(ids, id)
		}
		interfaces = append(interfaces, map[string]any{"Label": map[string]any{"default": g.label}, "Parameters": ids})
	}
	b.stack.AddMetadata(jsii.String("AWS::CloudFormation::Interface"), map[string]any{"ParameterGroups": interfaces})
}

// conditions makes the conditions that depend on the parameters.
func (b *builder) conditions() {
	p := &b.p
	condition := func(id string, e awscdk.ICfnConditionExpression) awscdk.CfnCondition {
		return awscdk.NewCfnCondition(b.stack, jsii.String(id), &awscdk.CfnConditionProps{Expression: e})
	}
	is := func(q awscdk.CfnParameter, value string) awscdk.ICfnRuleConditionExpression {
		return awscdk.Fn_ConditionEquals(q.ValueAsString(), value)
	}
	for _, o := range operations {
		if own, ok := p.operationActions[o.name]; ok {
			p.hasOwnActions[o.name] = condition(o.title+"HasOwnActions", awscdk.Fn_ConditionNot(awscdk.Fn_ConditionEquals(awscdk.Fn_Join(jsii.String(""), own.ValueAsList()), "")))
		}
	}
	p.isEnabled = condition("IsEnabled", awscdk.Fn_ConditionNot(is(p.state, disabled)))
	p.isPaused = condition("IsPaused", is(p.state, paused))
	p.hasTasks = condition("HasTasks", is(p.isolation, eachTask))
	p.keepsWarm = condition("KeepsWarmTasks", awscdk.Fn_ConditionNot(is(p.warmTasks, "0")))
	p.readsData = condition("PlansReadDataToo", is(p.plansReadData, "Yes"))
	p.newVPC = condition("HasNewVpc", awscdk.Fn_ConditionNot(is(p.network, existing)))
	p.hasNAT = condition("HasNat", is(p.network, nat))
	p.needsPublicIP = condition("NeedsPublicIp", awscdk.Fn_ConditionOr(is(p.network, publicIP),
		awscdk.Fn_ConditionAnd(is(p.network, existing), is(p.assignPublicIP, "ENABLED"))))

	p.newBucket = condition("MakesStateBucket", is(p.stateBucket, ""))
	p.newKey = condition("MakesStateKey", is(p.stateKey, ""))
	p.newSeed = condition("MakesInstallKeySeed", awscdk.Fn_ConditionAnd(is(p.isolation, eachTask), is(p.seed, "")))
	p.hasLogKey = condition("HasLogKey", awscdk.Fn_ConditionNot(is(p.logKey, "")))
	p.hasFlowLogs = condition("HasFlowLogs", awscdk.Fn_ConditionAnd(is(p.flowLogs, enabled), awscdk.Fn_ConditionNot(is(p.network, existing))))
	p.newServiceRole = condition("MakesEcsServiceLinkedRole", is(p.serviceRole, "Create"))

	p.hasSecrets = condition("HasSecrets", awscdk.Fn_ConditionAnd(is(p.isolation, eachTask), awscdk.Fn_ConditionNot(is(p.secrets, ""))))

	p.hasPolicy = condition("HasPolicy", awscdk.Fn_ConditionAnd(is(p.isolation, eachTask), awscdk.Fn_ConditionNot(is(p.policy, ""))))

	b.imageConditions()
	b.rules()
}

// rules makes the rules against contradicting parameters.
func (b *builder) rules() {
	p := &b.p
	is := func(q awscdk.CfnParameter, value string) awscdk.ICfnRuleConditionExpression {
		return awscdk.Fn_ConditionEquals(q.ValueAsString(), value)
	}
	// A process has the identity of the agent, with which any tool could empty the ledger.
	awscdk.NewCfnRule(b.stack, jsii.String("PolicyNeedsTasks"), &awscdk.CfnRuleProps{
		RuleCondition: awscdk.Fn_ConditionNot(is(p.policy, "")),
		Assertions: &[]*awscdk.CfnRuleAssertion{{
			Assert:            is(p.isolation, eachTask),
			AssertDescription: jsii.String("Policy needs Isolation Task: a job's programs could change what the policy keeps of other jobs."),
		}},
	})
	awscdk.NewCfnRule(b.stack, jsii.String("ScriptImagesNeedTasks"), &awscdk.CfnRuleProps{
		RuleCondition: awscdk.Fn_ConditionNot(is(p.images, "")),
		Assertions: &[]*awscdk.CfnRuleAssertion{{
			Assert:            is(p.isolation, eachTask),
			AssertDescription: jsii.String("ScriptImages needs Isolation Task: a process runs in the agent's own image."),
		}},
	})
	// A process has the identity of the agent, and any tool could read each secret with it.
	awscdk.NewCfnRule(b.stack, jsii.String("SecretsNeedTasks"), &awscdk.CfnRuleProps{
		RuleCondition: awscdk.Fn_ConditionNot(is(p.secrets, "")),
		Assertions: &[]*awscdk.CfnRuleAssertion{{
			Assert:            is(p.isolation, eachTask),
			AssertDescription: jsii.String("JobSecrets needs Isolation Task: a job's programs could read the secrets of other jobs."),
		}},
	})
	// A process has the identity of the agent, and any tool could read the seed with it.
	awscdk.NewCfnRule(b.stack, jsii.String("InstallKeyNeedsTasks"), &awscdk.CfnRuleProps{
		RuleCondition: awscdk.Fn_ConditionNot(is(p.seed, "")),
		Assertions: &[]*awscdk.CfnRuleAssertion{{
			Assert:            is(p.isolation, eachTask),
			AssertDescription: jsii.String("ExistingInstallKey needs Isolation Task: a job's programs could read the seed."),
		}},
	})
	// A new key could not open the states in the existing bucket.
	awscdk.NewCfnRule(b.stack, jsii.String("ExistingStatesHaveTheirKey"), &awscdk.CfnRuleProps{
		RuleCondition: awscdk.Fn_ConditionNot(is(p.stateBucket, "")),
		Assertions: &[]*awscdk.CfnRuleAssertion{{
			Assert:            awscdk.Fn_ConditionNot(awscdk.Fn_ConditionEquals(p.stateKey.ValueAsString(), "")),
			AssertDescription: jsii.String("ExistingStateBucket needs ExistingStateKey, the key that encrypts the states in it."),
		}},
	})
	awscdk.NewCfnRule(b.stack, jsii.String("ExistingVpcIsNamed"), &awscdk.CfnRuleProps{
		RuleCondition: is(p.network, existing),
		Assertions: &[]*awscdk.CfnRuleAssertion{{
			Assert:            awscdk.Fn_ConditionNot(awscdk.Fn_ConditionEquals(p.vpc.ValueAsString(), "")),
			AssertDescription: jsii.String("ExistingVpc needs VpcId and SubnetIds."),
		}},
	})
}
