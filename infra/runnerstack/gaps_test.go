package runnerstack_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/tools/page"
)

// gap is what the boundary does not prevent.
type gap struct {
	others string      // what belongs to others
	can    string      // what a role can do with it
	why    string      // the boundary does not deny it
	types  []string    // resource types, as typeOf returns them, whose recorded calls may succeed on others' resources
	asks   [][2]string // actions and resources; each must be possible, or the page is wrong
	open   []string    // patterns of actions and types, which TestOpenActionsAreListed explains by this row
}

// Reasons of gaps.
const (
	noTag    = "IAM compares no tag"
	untagged = "AWS or the provider makes it without the tag"
	shared   = "apps need what others share"
	noRoom   = "a boundary has 6,144 characters, and other attacks are worse"
)

// gaps is the list of docs/customer/permissions.md. The last test of this file holds it
// against the recorded modules.
var gaps = []gap{
	{"settings of the account in a Region", "change them: the allowed machine images, defaults of machines, the serial console, the use of tags by DynamoDB, the spending on text messages, the encryption of traces; but not the settings that block public access, or encrypt disks", noTag, nil,
		[][2]string{{"ec2:DisableAllowedImagesSettings", "*"}, {"ec2:ModifyInstanceMetadataDefaults", "*"}, {"dynamodb:UpdateAbacStatus", "*"}, {"sns:SetSMSAttributes", "*"}, {"xray:PutEncryptionConfig", "*"}, {"apigateway:PATCH", "arn:aws:apigateway:eu-central-1::/account"}},
		[]string{"ec2:* none", "acm:PutAccountConfiguration none", "apigateway:PATCH account", "autoscaling:PutAccountSetting none", "dynamodb:InjectError none", "dynamodb:UpdateAbacStatus none", "ecs:DeleteAccountSetting none",
			"elasticfilesystem:PutAccountPreferences none", "rds:Modify* none", "sns:SetSMSAttributes none", "sns:*SMSSandbox* none", "xray:PutEncryptionConfig none", "xray:UpdateIndexingRule none", "xray:UpdateTraceSegmentDestination none"}},
	{"reservations and subscriptions", "buy them, at the account's cost", noTag, nil, [][2]string{{"ec2:PurchaseReservedInstancesOffering", "*"}, {"dynamodb:PurchaseReservedCapacityOfferings", "*"}},
		[]string{"*:Purchase*", "cloudfront:*SavingsPlan none", "eks:CreateEksAnywhereSubscription none"}},
	{"machine images", "start a machine from them, and so read them; remove them, but not share them", untagged, []string{"ec2:image"},
		[][2]string{{"ec2:RunInstances", "arn:aws:ec2:eu-central-1::image/ami-0123456789abcdef0"}, {"ec2:DeregisterImage", "arn:aws:ec2:eu-central-1::image/ami-0123456789abcdef0"}},
		[]string{"ec2:* *image*"}},
	{"S3 buckets, objects, access points, access grants and jobs", "read, change and remove them; open a bucket", "IAM compares a bucket's tags only after a setting of the bucket",
		[]string{"s3:"}, [][2]string{{"s3:GetObject", "arn:aws:s3:::others/x"}, {"s3:PutBucketPolicy", "arn:aws:s3:::others"}, {"s3:DeleteObject", "arn:aws:s3:::others/x"}},
		[]string{"s3:*"}},
	{"DNS zones, records, health checks and traffic policies", "change and remove them", noTag, []string{"route53:hostedzone", "route53:*"},
		[][2]string{{"route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z1"}, {"route53:DeleteHostedZone", "arn:aws:route53:::hostedzone/Z1"}},
		[]string{"route53:*"}},
	{"VPCs, subnets, routes, security groups, gateways, VPN connections, addresses, network interfaces, key pairs, reserved capacity, fleets", "change, tag and remove them; open a port; but not copy the traffic of an interface", untagged,
		[]string{"ec2:*", "ec2:vpc", "ec2:subnet", "ec2:route-table", "ec2:security-group", "ec2:security-group-rule", "ec2:internet-gateway", "ec2:natgateway", "ec2:elastic-ip", "ec2:network-acl"},
		[][2]string{{"ec2:AuthorizeSecurityGroupIngress", "ec2 security-group/sg-1"}, {"ec2:CreateRoute", "ec2 route-table/rtb-1"}, {"ec2:DeleteVpc", "ec2 vpc/vpc-1"}, {"ec2:ReleaseAddress", "ec2 elastic-ip/eipalloc-1"},
			{"ec2:CreateTags", "ec2 subnet/subnet-1"}, {"ec2:DeleteKeyPair", "ec2 key-pair/k"}},
		[]string{"ec2:*"}},
	{"Auto Scaling groups", "change, tag and remove them", untagged, []string{"autoscaling:autoScalingGroup"},
		[][2]string{{"autoscaling:UpdateAutoScalingGroup", "autoscaling autoScalingGroup:1:autoScalingGroupName/others"}, {"autoscaling:DeleteAutoScalingGroup", "autoscaling autoScalingGroup:1:autoScalingGroupName/others"}},
		[]string{"autoscaling:* autoscalinggroup", "autoscaling:* launchconfiguration"}},
	{"load balancers, listeners and target groups", "change, tag and remove them", noRoom,
		[]string{"elasticloadbalancing:*", "elasticloadbalancing:loadbalancer", "elasticloadbalancing:listener", "elasticloadbalancing:targetgroup"},
		[][2]string{{"elasticloadbalancing:ModifyListener", "elasticloadbalancing listener/app/others/1/2"}, {"elasticloadbalancing:DeleteLoadBalancer", "elasticloadbalancing loadbalancer/app/others/1"}},
		[]string{"elasticloadbalancing:*"}},
	{"file systems", "mount and read them, if the network permits; open and remove them", noRoom, []string{"elasticfilesystem:*", "elasticfilesystem:file-system", "elasticfilesystem:access-point"},
		[][2]string{{"elasticfilesystem:CreateMountTarget", "elasticfilesystem file-system/fs-1"}, {"elasticfilesystem:PutFileSystemPolicy", "elasticfilesystem file-system/fs-1"}, {"elasticfilesystem:DeleteFileSystem", "elasticfilesystem file-system/fs-1"}},
		[]string{"elasticfilesystem:* file-system", "elasticfilesystem:* access-point"}},
	{"caches", "change, copy and remove them", noRoom, nil, [][2]string{{"elasticache:ModifyReplicationGroup", "elasticache replicationgroup:others"}, {"elasticache:CreateSnapshot", "elasticache replicationgroup:others"},
		{"elasticache:DeleteReplicationGroup", "elasticache replicationgroup:others"}},
		[]string{"elasticache:*"}},
	{"databases, by a request for a new one", "add an instance to a cluster; make a cluster that is a replica of a database, and so read it", "apps need the action to make clusters, and it names the source as it names the new cluster", nil,
		[][2]string{{"rds:CreateDBInstance", "rds cluster:others"}, {"rds:CreateDBCluster", "rds db:others"}},
		[]string{"rds:CreateDBInstance cluster", "rds:CreateDBCluster db"}},
	{"parameter, option and subnet groups, proxies, subscriptions, global clusters, shard groups, blue/green deployments, integrations and engines of RDS", "change and remove them, but not a database or a copy of it", noRoom, []string{"rds:pg", "rds:subgrp"},
		[][2]string{{"rds:ModifyDBParameterGroup", "rds pg:others"}, {"rds:DeleteDBSubnetGroup", "rds subgrp:others"}, {"rds:ModifyDBProxy", "rds db-proxy:prx-1"}, {"rds:DeleteBlueGreenDeployment", "rds deployment:others"},
			{"rds:ModifyGlobalCluster", "arn:aws:rds::111122223333:global-cluster:others"}, {"rds:DeleteDBShardGroup", "rds shard-group:others"}},
		[]string{"rds:*"}},
	{"distributions, functions, keys and policies of CloudFront", "change and remove them: another origin, another program for each request", noRoom, nil,
		[][2]string{{"cloudfront:UpdateDistribution", "arn:aws:cloudfront::111122223333:distribution/E1"}, {"cloudfront:UpdateFunction", "arn:aws:cloudfront::111122223333:function/others"}},
		[]string{"cloudfront:*"}},
	{"APIs of API Gateway and their keys", "read, change and remove them", noRoom, nil, [][2]string{{"apigateway:PATCH", "arn:aws:apigateway:eu-central-1::/restapis/others"}, {"apigateway:DELETE", "arn:aws:apigateway:eu-central-1::/restapis/others"}},
		[]string{"apigateway:*"}},
	{"certificates and ACME endpoints", "replace and remove them; get the credentials of an ACME endpoint; but not read the private key of a certificate", noRoom, nil, [][2]string{{"acm:GetAcmeExternalAccountBindingCredentials", "acm acme-endpoint/1/acme-external-account-binding/1"}, {"acm:ImportCertificate", "acm certificate/others"}, {"acm:DeleteCertificate", "acm certificate/others"}},
		[]string{"acm:*"}},
	{"event buses", "open and remove them; make a rule that receives all events of the default bus", "a rule names no source that it must not receive", []string{"events:event-bus"},
		[][2]string{{"events:PutPermission", "*"}, {"events:DeleteEventBus", "events event-bus/others"}, {"events:PutRule", "events rule/app"}},
		[]string{"events:* event-bus*", "events:*Permission none", "events:PutPartnerEvents none", "events:* event-source*", "events:* subscriber"}},
	{"rules of EventBridge", "change the events that a rule receives; but not its targets", "AWS ignores the tags of a request that changes a rule, and shows them to IAM", nil, [][2]string{{"events:PutRule", "events rule/others"}},
		[]string{"events:PutRule rule-on-*"}},
	{"archives and replays of events", "copy the events of a bus, send earlier events again, and remove them", noTag, nil, [][2]string{{"events:CreateArchive", "events event-bus/others"}, {"events:DeleteArchive", "events archive/others"}, {"events:StartReplay", "events archive/others"}},
		[]string{"events:* archive", "events:* replay", "events:* alias"}},
	{"connections, API destinations and endpoints of EventBridge", "call a destination; change where it leads and its credentials; remove them; but not read the credentials", noTag, nil, [][2]string{{"events:InvokeApiDestination", "events api-destination/others"}, {"events:UpdateConnection", "events connection/others"}, {"events:DeleteConnection", "events connection/others"}, {"events:DeleteEndpoint", "events endpoint/others"}},
		[]string{"events:* connection", "events:* api-destination", "events:* endpoint"}},
	{"schedules", "change and remove them", noRoom, nil, [][2]string{{"scheduler:UpdateSchedule", "scheduler schedule/default/others"}, {"scheduler:DeleteSchedule", "scheduler schedule/default/others"}},
		[]string{"scheduler:*"}},
	{"scaling policies, alarms and dashboards", "change and remove them, and so silence an alarm", noRoom, nil,
		[][2]string{{"application-autoscaling:DeregisterScalableTarget", "application-autoscaling scalable-target/1"}, {"cloudwatch:DeleteAlarms", "cloudwatch alarm:others"}, {"cloudwatch:DeleteDashboards", "arn:aws:cloudwatch::111122223333:dashboard/others"}},
		[]string{"application-autoscaling:*", "cloudwatch:* alarm*", "cloudwatch:* dashboard"}},
	{"metrics, objectives, spaces and integrations of CloudWatch", "write false metrics; stop a stream; get the credentials of a space; change and remove them", noRoom, nil, [][2]string{{"cloudwatch:StopMetricStreams", "cloudwatch metric-stream/others"}, {"cloudwatch:GetSpaceCredentials", "*"}, {"cloudwatch:DeleteInsightRules", "cloudwatch insight-rule/others"}},
		[]string{"cloudwatch:*"}},
	{"global tables of DynamoDB of the version of 2017", "upgrade them", noTag, nil, [][2]string{{"dynamodb:UpdateGlobalTableVersion", "arn:aws:dynamodb::111122223333:global-table/others"}},
		[]string{"dynamodb:UpdateGlobalTableVersion global-table"}},
	{"traces", "read and falsify them; change groups, sampling and policies", noTag, nil, [][2]string{{"xray:GetTraceSummaries", "*"}, {"xray:PutTraceSegments", "*"}, {"xray:DeleteResourcePolicy", "*"}},
		[]string{"xray:*"}},
	{"names of services", "point them elsewhere", noRoom, nil, [][2]string{{"servicediscovery:RegisterInstance", "servicediscovery service/srv-1"}, {"servicediscovery:DeregisterInstance", "servicediscovery service/srv-1"}},
		[]string{"servicediscovery:*"}},
	{"layers and event sources of functions", "remove a version of a layer; stop an event source", noRoom, nil,
		[][2]string{{"lambda:DeleteLayerVersion", "lambda layer:others:1"}, {"lambda:DeleteEventSourceMapping", "lambda event-source-mapping:12345678-0aa0-4aa0-8aa0-0aa00aa00aa0"}},
		[]string{"lambda:* layer*", "lambda:* eventsourcemapping"}},
	{"functions, by an event source", "let a function of others read a queue, stream or table of the app: it runs with events that the app writes", "apps need it for their functions, and the request shows IAM the name of the function only, which modules choose", nil, [][2]string{{"lambda:CreateEventSourceMapping", "*"}},
		[]string{"lambda:CreateEventSourceMapping none"}},
	{"microVMs, code signing, capacity providers and network connectors of functions", "open a shell in a microVM, run and remove it; let unsigned code run in functions; change and remove them", noRoom, nil, [][2]string{{"lambda:CreateMicrovmShellAuthToken", "lambda microvm-image:others"}, {"lambda:RunMicrovm", "lambda microvm-image:others"}, {"lambda:UpdateCodeSigningConfig", "lambda code-signing-config:csc-0123456789abcdef0"}},
		[]string{"lambda:ConnectMicrovm none", "lambda:* microvmimage", "lambda:* code-signing-config", "lambda:* capacityprovider", "lambda:* networkconnector"}},
	{"task definitions of ECS", "deregister them, also those of the runner: ECS then refuses each new task, and so each job, until an update of the stack makes another revision", "the request shows IAM no task definition, and apps need it", nil, [][2]string{{"ecs:DeregisterTaskDefinition", "*"}},
		[]string{"ecs:DeregisterTaskDefinition none"}},
	{"executions of state machines", "read their input and output, stop them, and run them again, if their ARN is known; but not read their history", "an execution has no tags of its own, and apps need it for theirs", nil,
		[][2]string{{"states:DescribeExecution", "states execution:others:1"}, {"states:StopExecution", "states execution:others:1"}, {"states:RedriveExecution", "states execution:others:1"}},
		[]string{"states:* execution", "states:* maprun"}},
	{"activities of state machines", "take a task with its input; remove an activity", noRoom, nil, [][2]string{{"states:GetActivityTask", "states activity:others"}, {"states:DeleteActivity", "states activity:others"}},
		[]string{"states:* activity"}},
	{"log streams", "remove them, but not the log group", noTag, nil, [][2]string{{"logs:DeleteLogStream", "logs log-group:others:log-stream:1"}},
		[]string{"logs:* log-stream"}},
	{"policies of CloudWatch Logs for AWS's services", "change and remove them", noTag, nil, [][2]string{{"logs:PutResourcePolicy", "*"}, {"logs:DeleteResourcePolicy", "*"}},
		[]string{"logs:*ResourcePolicy none"}},
	{"deliveries, destinations, queries, integrations and detectors of CloudWatch Logs", "change and remove them, and so end the delivery of logs, or send them elsewhere", noRoom, nil, [][2]string{{"logs:PutDestinationPolicy", "logs destination:others"}, {"logs:DeleteDelivery", "logs delivery:others"}, {"logs:DeleteLogDelivery", "*"}, {"logs:DeleteIntegration", "*"}},
		[]string{"logs:*"}},
	{"settings and sessions of Systems Manager", "change a setting; end a session, but not resume it", noRoom, nil, [][2]string{{"ssm:UpdateServiceSetting", "ssm servicesetting/ssm/x"}, {"ssm:TerminateSession", "ssm session/others-1"}},
		[]string{"ssm:* session", "ssm:*ServiceSetting servicesetting"}},
	{"commands and automations of Systems Manager", "read their output, signal and stop them; but not start one on others' machines", "apps need it for theirs, and commands have no tags", nil, [][2]string{{"ssm:GetCommandInvocation", "*"}, {"ssm:CancelCommand", "*"}, {"ssm:GetAutomationExecution", "ssm automation-execution/1"}, {"ssm:SendAutomationSignal", "ssm automation-execution/1"}},
		[]string{"ssm:CancelCommand none", "ssm:GetCommandInvocation none", "ssm:* automation-execution"}},
	{"patches, inventory, operational items and cloud connectors of Systems Manager", "change and remove them; send the inventory of machines to a bucket; get the token of an approved request for access", noRoom, nil, [][2]string{{"ssm:CreateResourceDataSync", "ssm resource-data-sync/others"}, {"ssm:RegisterDefaultPatchBaseline", "ssm patchbaseline/pb-0123456789abcdef0"}, {"ssm:GetAccessToken", "ssm opsitem/oi-1"}},
		[]string{"ssm:*"}},
	{"topics", "publish to them; end a subscription whose ARN is known", shared, []string{"sns:*"}, [][2]string{{"sns:Publish", "sns others"}, {"sns:Unsubscribe", "sns others"}},
		[]string{"sns:* topic"}},
	{"push applications, their endpoints, and telephone numbers", "change and remove them", noTag, nil, [][2]string{{"sns:SetEndpointAttributes", "*"}, {"sns:DeletePlatformApplication", "*"}},
		[]string{"sns:* none"}},
	{"KMS keys", "encrypt and decrypt, if the key's policy lets IAM decide", shared, []string{"kms:alias"}, [][2]string{{"kms:Decrypt", "kms key/11111111-0aa0-4aa0-8aa0-0aa00aa00aa0"}, {"kms:GenerateDataKey", "kms key/11111111-0aa0-4aa0-8aa0-0aa00aa00aa0"}},
		[]string{"kms:* key", "kms:* alias"}},
	{"image repositories", "pull images", shared, nil, [][2]string{{"ecr:BatchGetImage", "ecr repository/others"}, {"ecr:GetDownloadUrlForLayer", "ecr repository/others"}},
		[]string{"ecr:* repository"}},
	{"caches and templates of the account's image registry", "change and remove them", noTag, nil, [][2]string{{"ecr:UpdatePullThroughCacheRule", "*"}, {"ecr:DeletePullThroughCacheRule", "*"}},
		[]string{"ecr:* none"}},
}

// arn returns the ARN of "service resource"; an ARN and "*" stay what they are.
func (gap) arn(text string) string {
	if service, resource, ok := strings.Cut(text, " "); ok {
		return "arn:aws:" + service + ":eu-central-1:111122223333:" + resource
	}
	return text
}

// byApp is a question about a role that the app made with all permissions of AWS: only the
// boundary denies it something.
func byApp(s infratest.Stack, action, resource string, context map[string]any) infratest.Question {
	q := infratest.Question{Principal: "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web", Action: action, Resource: resource, Account: infratest.Account, Context: context,
		Identity: []map[string]any{policyOf("*")}, Boundary: s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)}
	if strings.HasPrefix(action, "kms:") {
		q.ResourceP = accountsKeyPolicy
	}
	return q
}

// The page tells customers what the boundary does not prevent, and each of it is possible.
func TestPageShowsWhatIsNotPrevented(t *testing.T) {
	s := stack(t)
	var out strings.Builder
	out.WriteString("| of others | a role can | why |\n|---|---|---|\n")
	var questions []infratest.Question
	var of []string
	for _, g := range gaps {
		fmt.Fprintf(&out, "| %s | %s | %s |\n", g.others, g.can, g.why)
		for _, a := range g.asks {
			questions, of = append(questions, byApp(s, a[0], g.arn(a[1]), nil)), append(of, g.others)
		}
	}
	page.Hold(t, "docs/customer/permissions.md", "gaps", out.String())
	for i, allowed := range infratest.Ask(t, questions) {
		if q := questions[i]; !allowed {
			t.Errorf("%s: the boundary denies %s on %s: remove it from gaps", of[i], q.Action, q.Resource)
		}
	}
}

// makesOwn has the recorded actions that make a resource of a type which the boundary guards,
// each with the reason why they cannot change a resource of others.
var makesOwn = map[string]string{
	"dynamodb:CreateTable":        "AWS refuses the name of an existing table",
	"ec2:CreateLaunchTemplate":    "AWS refuses the name of an existing template",
	"ec2:RunInstances":            "each request makes machines",
	"ecr:CreateRepository":        "AWS refuses the name of an existing repository",
	"ecs:CreateCluster":           "a request with the name of an existing cluster changes nothing",
	"ecs:CreateService":           "AWS refuses the name of an existing service",
	"ecs:RegisterTaskDefinition":  "a new revision; services use the one that they name, and tags of a revision are its own",
	"eks:CreateCluster":           "AWS refuses the name of an existing cluster",
	"events:PutRule":              "it can change a rule of others, which is a gap, but not the rule's targets",
	"kms:CreateKey":               "each request makes a key",
	"kms:TagResource":             "the request for a new key names no key; one that names a key is denied",
	"lambda:CreateFunction":       "AWS refuses the name of an existing function",
	"logs:CreateLogGroup":         "AWS refuses the name of an existing group",
	"rds:CreateDBCluster":         "AWS refuses the name of an existing cluster",
	"rds:CreateDBInstance":        "AWS refuses the name of an existing database",
	"secretsmanager:CreateSecret": "AWS refuses the name of an existing secret",
	"sns:CreateTopic":             "a request with the name of an existing topic changes nothing",
	"sqs:CreateQueue":             "a request with the name of an existing queue changes nothing",
	"ssm:PutParameter":            "AWS refuses tags with a request that overwrites a parameter, and without tags the boundary denies it",
	"states:CreateStateMachine":   "AWS refuses the name of an existing state machine",
}

// typeOf returns the service and the type of a resource: ec2:vpc, s3:, ec2:* for no resource.
func typeOf(action, arn string) string {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) < 6 {
		service, _, _ := strings.Cut(action, ":")
		return service + ":*"
	}
	if i := strings.IndexAny(parts[5], "/:"); i > 0 && parts[2] != "s3" {
		return parts[2] + ":" + parts[5][:i]
	}
	return parts[2] + ":"
}

// reads matches the operations that change nothing.
var reads = regexp.MustCompile(`:(Describe|Get|List|BatchGet)`)

// Each recorded call that changes something fails on what is not the install's, or it is
// argued: it makes a resource, or the type is on the list that customers read.
func TestRecordedCallsFailOnOthersResources(t *testing.T) {
	const requested, tag = "aws:RequestTag/fairlead_install", "aws:ResourceTag/fairlead_install"
	s := stack(t)
	var attacks []infratest.Question
	var made []bool // the recorded call makes what it names
	seen := map[string]bool{}
	attack := func(action, resource string, recorded map[string]any) {
		if reads.MatchString(action) {
			return
		}
		context := map[string]any{}
		for key, value := range recorded {
			// An attacker chooses the tags of the request, but not those of the resource, and
			// CreateAction is present only in a request that makes the resource.
			if !strings.HasPrefix(key, "aws:ResourceTag/") && !strings.HasSuffix(key, ":CreateAction") && key != "iam:PermissionsBoundary" {
				context[key] = value
			}
		}
		if strings.HasPrefix(action, "iam:") { // IAM knows roles by their path
			resource = strings.Replace(resource, "fairlead-app/"+install+"/", "", 1)
		}
		key := fmt.Sprint(action, resource, context)
		if seen[key] {
			return
		}
		seen[key] = true
		for _, other := range []map[string]any{nil, {tag: "ins_01hzy3v5k8d9m0q2r4t6w8x0z2"}} {
			attacks, made = append(attacks, byApp(s, action, resource, merge(context, other))), append(made, recorded[requested] != nil)
		}
	}
	for _, r := range recordings(t) {
		for _, c := range r.Calls {
			attack(c.Action, c.Resource, c.Context)
		}
	}
	for _, q := range slices.Concat(slices.Collect(maps.Values(listed(t, s)))...) {
		attack(q.Action, q.Resource, q.Context)
	}
	if len(attacks) < 400 {
		t.Errorf("%d attacks, want 400 or more", len(attacks))
	}
	used, denied := map[string]bool{}, 0
	for i, allowed := range infratest.Ask(t, attacks) {
		a := attacks[i]
		typ := typeOf(a.Action, a.Resource)
		switch {
		case !allowed:
			denied++
		case made[i] && makesOwn[a.Action] != "":
			used[a.Action] = true
		case slices.ContainsFunc(gaps, func(g gap) bool { return slices.Contains(g.types, typ) }):
			used[typ] = true
		default:
			t.Errorf("a role may %s on another's %s with %v: no gap has the type %s, and makesOwn does not have the action", a.Action, a.Resource, a.Context, typ)
		}
	}
	for _, g := range gaps {
		for _, typ := range g.types {
			if !used[typ] {
				t.Errorf("no recorded call on %s succeeds: remove the type from the gap %q", typ, g.others)
			}
		}
	}
	for action := range makesOwn {
		if !used[action] {
			t.Errorf("no recorded call needs the argument of %s", action)
		}
	}
	t.Logf("%d attacks, %d denied", len(attacks), denied)
}
