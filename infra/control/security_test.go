package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/deadletter"
	logtable "github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/tools/shortrun"
)

func stack(t *testing.T) infratest.Stack {
	t.Helper()
	s, err := synth(t).template.Resolve(given())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLint(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	const queue = "the messages only make a function look at the table, or wait for a delivery that the table records"
	infratest.Lint(t, synth(t).template, map[string]string{
		"I1022":                     "the CDK writes Fn::Join for each reference in a text; both functions give the same text",
		"I3011 APILog":              "the access log is for finding faults of this deployment",
		"I3011 Cancels":             "a cancel marker is needed for seconds",
		"I3011 DispatchDeadLetters": queue,
		"I3011 AuditDeadLetters":    queue,
		"I3011 LogIndexDeadLetters": queue,
		"I3011 SweepDeadLetters":    queue,
		"I3011 Sweeps":              queue,
		"I3011 WebhookDeadLetters":  queue,
		"I3011 Webhooks":            queue,
	})
}

func TestCheckov(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	infratest.Checkov(t, synth(t).template, map[string]string{
		"CKV_AWS_7 TokensKey":      "KMS does not rotate keys of HMAC",
		"CKV_AWS_18 AccessLogs":    "the bucket of access logs does not log itself",
		"CKV_AWS_26 Alarms":        "an alarm's text has names and numbers of metrics, and a key would need a policy for CloudWatch",
		"CKV_AWS_27":               "each queue is encrypted with SQS's own key; TestSecurityProperties asserts it",
		"CKV_AWS_28 Cancels":       "a cancel marker is needed for seconds; a restored one would be false",
		"CKV_AWS_33 DataKey":       "conditions limit the principal to this account, through DynamoDB and S3",
		"CKV_AWS_54 Templates":     "the policy names its readers in a condition, and TestOnlyCustomersReadPublishedFiles evaluates it",
		"CKV_AWS_56 Templates":     "the policy names its readers in a condition, and TestOnlyCustomersReadPublishedFiles evaluates it",
		"CKV_AWS_115":              "the account's quota may allow no reserved concurrency; the routes' throttles limit what callers can start",
		"CKV_AWS_116":              "a function behind an API answers its caller; the others have a destination for failures, or a queue with dead letters",
		"CKV_AWS_117":              "the functions call AWS and the vendor's endpoints; a VPC would add a NAT gateway and no protection",
		"CKV_AWS_119 Cancels":      "a cancel marker is a key without content, encrypted by AWS's own key; with a key of the stack, each step would need a permission on it",
		"CKV_AWS_136 RunnerImages": "ECR encrypts each repository with AWS's own key, and the image is published to all customers",
		"CKV_AWS_158":              "CloudWatch encrypts every group; the functions log no value that their callers sent",
		"CKV_AWS_173":              "Lambda encrypts all variables, and these are names of resources; TestStackSetsDeclaredEnvironment lists them",
	})
}

func TestGuard(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	infratest.Guard(t, synth(t).template, map[string]string{
		"api_gw_v2_authorization_type_configured_check":  "the handlers authenticate each request themselves",
		"cloudwatch_alarm_action_check":                  "the action of a release's alarm is CodeDeploy's rollback, which TestBrokenReleaseGoesBack asserts",
		"cloudwatch_log_group_retention_period_check":    "the rule wants a year; logs of jobs are archived for a year in S3, and the functions' own logs are for finding faults",
		"cloudwatch_log_group_encrypted_check":           "CloudWatch encrypts every group; the functions log no value that their callers sent",
		"codebuild_project_environment_privileged_check": "Docker needs the privileged mode; the role of a build may only write its own log, and TestWhoMayDoWhat asks what a Dockerfile may do with it",
		"dynamodb_table_encrypted_kms_check":             "a cancel marker is a key without content, encrypted by AWS's own key; with a key of the stack, each step would need a permission on it",
		"dynamodb_table_pitr_enabled_check":              "a cancel marker is needed for seconds; a restored one would be false",
		"ecs_container_insights_enabled_check":           "one task, whose metrics come with ECS",
		"ecs_service_assign_public_ip_disabled_check":    "an address without a way in spares the NAT gateway; the vendor can name subnets that have one",
		"ecs_task_definition_memory_hard_limit_check":    "the task has one container, which may use all of the task's memory",
		"kms_create_grant_aws_service_check":             "the account's own statement covers it, as in every key policy that AWS makes",
		"lambda_function_public_access_prohibited_check": "the rule takes no reference for an account; TestSecurityProperties asserts source and account of each permission",
		"lambda_inside_vpc_check":                        "the functions call AWS and the vendor's endpoints; a VPC would add a NAT gateway and no protection",
		"s3_bucket_default_encryption_kms_check":         "the delivery of access logs needs S3's own key; with the data key, each build would need a permission on the key of the tables and states",
		"s3_bucket_level_public_access_prohibited_check": "the templates hold no secret; their readers are accounts in a condition, and TestOnlyCustomersReadPublishedFiles evaluates it",
		"s3_bucket_logging_enabled_check":                "the bucket of access logs does not log itself",
		"s3_event_notifications_enabled_check":           "nothing waits for an object",
		"s3_bucket_object_lock_enabled_check":            "blobs are removed with their install, archives after a year; versions and the functions' roles guard them until then",
		"sqs_dlq_check":                                  "the queues of dead letters have none themselves",
	})
}

func TestTableHasStoreSchema(t *testing.T) {
	p := stack(t).Resources["Table"].Properties
	text, err := json.Marshal([]any{p["KeySchema"], p["GlobalSecondaryIndexes"], p["TimeToLiveSpecification"], p["BillingMode"]})
	if err != nil {
		t.Fatal(err)
	}
	keys := func(partition, sort string) string {
		return fmt.Sprintf(`[{"AttributeName":%q,"KeyType":"HASH"},{"AttributeName":%q,"KeyType":"RANGE"}]`, partition, sort)
	}
	index := func(name, partition, sort string) string {
		return fmt.Sprintf(`{"IndexName":%q,"KeySchema":%s,"Projection":{"ProjectionType":"KEYS_ONLY"}}`, name, keys(partition, sort))
	}
	want := fmt.Sprintf(`[%s,[%s,%s],{"AttributeName":%q,"Enabled":true},"PAY_PER_REQUEST"]`, keys(dynamo.AttrPartition, dynamo.AttrSort),
		index(dynamo.IndexList, dynamo.AttrListPartition, dynamo.AttrListSort), index(dynamo.IndexDue, dynamo.AttrDuePartition, dynamo.AttrDueSort), dynamo.AttrExpires)
	if string(text) != want {
		t.Errorf("the table is\n%s\nwant\n%s", text, want)
	}
}

// The pieces of logs are not deleted: they expire, if the table has the attribute that the log's
// driver writes.
func TestLogTableHasDriversSchema(t *testing.T) {
	p := stack(t).Resources["LogTable"].Properties
	text, err := json.Marshal([]any{p["KeySchema"], p["GlobalSecondaryIndexes"], p["TimeToLiveSpecification"], p["BillingMode"]})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`[[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}],null,{"AttributeName":%q,"Enabled":true},"PAY_PER_REQUEST"]`, logtable.AttrExpires)
	if string(text) != want {
		t.Errorf("the table is\n%s\nwant\n%s", text, want)
	}
}

// fairlead ops replay finds each queue of dead letters by its logical ID.
func TestReplayFindsEachQueue(t *testing.T) {
	var made []string
	for id, r := range stack(t).Resources {
		if r.Type == "AWS::SQS::Queue" && strings.HasSuffix(id, "DeadLetters") {
			made = append(made, id)
		}
	}
	slices.Sort(made)
	if want := slices.Sorted(maps.Values(deadletter.Queues())); !slices.Equal(made, want) {
		t.Errorf("the stack has the queues %s, and the command replays %s", made, want)
	}
}

// EC2 refuses a description with an apostrophe. After such a refusal,
// CloudFormation rolls the stack back.
func TestEC2TakesTheSecurityGroups(t *testing.T) { infratest.SecurityGroupsAreTaken(t, stack(t)) }

func TestSecurityProperties(t *testing.T) {
	s := stack(t)
	infratest.BucketsAreSafe(t, s, "Templates")
	infratest.ARNsNameTheirType(t, s)
	infratest.AllowsAreNarrow(t, s, infratest.Narrow{ResourceLess: []string{"ecr:GetAuthorizationToken", "dynamodb:ListStreams", "cloudwatch:DescribeAlarms", "sts:GetWebIdentityToken"}})
	infratest.TasksAreConfined(t, s)
	for id, r := range s.Resources {
		p := r.Properties
		switch r.Type {
		case "AWS::SQS::Queue":
			if p["SqsManagedSseEnabled"] != true {
				t.Errorf("the queue %s is not encrypted", id)
			}
			if s.Resources[id+"Policy"].Type != "AWS::SQS::QueuePolicy" || !strings.Contains(fmt.Sprint(s.Resources[id+"Policy"].Properties), "OnlyTLS") {
				t.Errorf("the queue %s can be used without TLS", id)
			}
		case "AWS::Lambda::Function":
			if fmt.Sprint(p["Architectures"]) != "[arm64]" || p["Runtime"] != "provided.al2023" {
				t.Errorf("%s runs on %v %v", id, p["Architectures"], p["Runtime"])
			}
			if s.Resources[id+"Role"].Type == "" || !strings.HasSuffix(fmt.Sprint(p["Role"]), strings.ToLower(id+"Role")) {
				t.Errorf("%s has the role %v, want its own role", id, p["Role"])
			}
			if level := p["LoggingConfig"].(map[string]any)["SystemLogLevel"]; level != "WARN" {
				t.Errorf("%s has Lambda's own lines at level %v: they cost more than the invocation, and no bill has them", id, level)
			}
		case "AWS::Lambda::Permission":
			if p["SourceArn"] == nil || p["SourceAccount"] == nil {
				t.Errorf("%s lets other callers than its source invoke", id)
			}
		case "AWS::Lambda::EventSourceMapping":
			if fmt.Sprint(p["FunctionResponseTypes"]) != "[ReportBatchItemFailures]" && p["BatchSize"] != 1. {
				t.Errorf("one bad message of %s repeats its whole batch", id)
			}
		case "AWS::Logs::LogGroup":
			if p["RetentionInDays"] == nil {
				t.Errorf("%s has no retention and costs money forever", id)
			}
		case "AWS::KMS::Key":
			if !r.Stays() {
				t.Errorf("%s is deleted with the stack; what it sealed cannot be opened again", id)
			}
			if p["KeySpec"] == nil && p["EnableKeyRotation"] != true {
				t.Errorf("%s does not rotate", id)
			}
			if p["MultiRegion"] != true {
				t.Errorf("%s cannot be copied to another Region, also not later", id)
			}
		}
	}
	table := s.Resources["Table"].Properties
	for _, want := range []string{"DeletionProtectionEnabled:true", "PointInTimeRecoveryEnabled:true", "SSEType:KMS", "StreamViewType:NEW_AND_OLD_IMAGES"} {
		if !strings.Contains(fmt.Sprint(table), want) {
			t.Errorf("the table lacks %s", want)
		}
	}
	for _, want := range []string{"DeletionProtectionEnabled:true", "PointInTimeRecoveryEnabled:true", "SSEType:KMS"} {
		if !strings.Contains(fmt.Sprint(s.Resources["LogTable"].Properties), want) {
			t.Errorf("the table of logs lacks %s", want)
		}
	}
	// A runner that was installed before the control plane got its host name goes on under the first address.
	if disabled := s.Resources["API"].Properties["DisableExecuteApiEndpoint"]; disabled != nil && disabled != false {
		t.Errorf("runners from before the domain have no address: DisableExecuteApiEndpoint is %v", disabled)
	}
	for _, id := range []string{"SessionAPI", "RunnerAPI"} {
		others := s.Resources[id].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["FAIRLEAD_OTHER_URLS"]
		if !strings.Contains(fmt.Sprint(others), "ApiEndpoint") {
			t.Errorf("%s refuses proofs for the first address of the API: its other URLs are %v", id, others)
		}
	}
	log := fmt.Sprint(s.Resources["APIStage"].Properties)
	for _, want := range []string{"ThrottlingRateLimit:500", "ThrottlingBurstLimit:1000", "$context.requestId"} {
		if !strings.Contains(log, want) {
			t.Errorf("the API lacks %s", want)
		}
	}
	for _, secret := range []string{"header", "authorizer", "querystring", "$context.path"} {
		if strings.Contains(strings.ToLower(log), secret) {
			t.Errorf("the access log has %s, which may contain a secret", secret)
		}
	}
}

// Every function without a waiting caller has a dead-letter queue for its failures,
// and an alarm on that queue. Each service that can fail to reach its target gives the message to
// the queue of that function.
func TestFailedInvocationsRaiseAlarms(t *testing.T) {
	s := stack(t)
	targets := func(id string) any {
		return s.Resources[id].Properties["Targets"].([]any)[0].(map[string]any)["DeadLetterConfig"]
	}
	onFailure := func(id string) any {
		destination, _ := s.Resources[id].Properties["DestinationConfig"].(map[string]any)
		return destination["OnFailure"]
	}
	redrive := func(id string) any {
		policy, _ := s.Resources[id].Properties["RedrivePolicy"].(map[string]any)
		return map[string]any{"queue": policy["deadLetterTargetArn"]}
	}
	for name, senders := range map[string]map[string]any{
		"Dispatch": {"the stream": onFailure("DispatchSource")},
		"Audit":    {"the stream": onFailure("AuditSource")},
		"Sweep":    {"the schedule": targets("SweepSchedule"), "the function": onFailure("SweepOnFailure"), "its messages": redrive("Sweeps")},
		"LogIndex": {"the rule": targets("JobOverRule"), "the function": onFailure("LogIndexOnFailure")},
		"Webhook":  {"the rule": targets("WebhookRule"), "its queue": redrive("Webhooks")},
	} {
		arn := s.ARN(name + "DeadLetters")
		for what, given := range senders {
			to, _ := given.(map[string]any)
			if !slices.Contains(slices.Collect(maps.Values(to)), any(arn)) {
				t.Errorf("%s: what %s cannot deliver goes to %v, want %s", name, what, given, arn)
			}
		}
		alarm := s.Resources[name+"DeadLetterAlarm"].Properties
		if got := fmt.Sprint(alarm["Dimensions"]); alarm["AlarmActions"] == nil || !strings.Contains(got, strings.ToLower(name+"DeadLetters")) {
			t.Errorf("the alarm of %s watches %s, and does %v", arn, got, alarm["AlarmActions"])
		}
	}
	for id, r := range s.Resources {
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		// The rollback of a release is an action too: TestBrokenReleaseGoesBack.
		if r.Properties["AlarmActions"] == nil && !strings.HasSuffix(id, "CanaryAlarm") || r.Properties["AlarmDescription"] == nil {
			t.Errorf("the alarm %s has no action or no description", id)
		}
	}
}

// A table that is restored to the first second of its recovery period refers to blobs
// that were deleted later. Each of these blobs must still exist as a noncurrent
// version.
func TestDeletedBlobsOutliveTableRecovery(t *testing.T) {
	s := stack(t)
	number := func(v any, path ...string) float64 {
		for _, step := range path {
			m, _ := v.(map[string]any)
			v = m[step]
		}
		n, _ := v.(float64)
		return n
	}
	rules := s.Resources["Blobs"].Properties["LifecycleConfiguration"].(map[string]any)["Rules"].([]any)
	kept := number(rules[0], "NoncurrentVersionExpiration", "NoncurrentDays")
	for _, table := range []string{"Table", "LogTable"} {
		recovery := number(s.Resources[table].Properties, "PointInTimeRecoverySpecification", "RecoveryPeriodInDays")
		if recovery == 0 || kept <= recovery {
			t.Errorf("a deleted blob is kept for %v days, but %s can be restored to %v days ago", kept, table, recovery)
		}
	}
}

// The rollback of a first creation removes the resources that the creation made. In
// every other case these resources stay. Protected tables are an exception: they
// cannot be removed, and the rollback would fail.
func TestFailedFirstCreationLeavesNothing(t *testing.T) {
	p := props()
	p.Deletable = true
	first, err := infratest.SynthVariant(t.TempDir(), func(scope constructs.Construct) (awscdk.Stack, error) { return control.New(scope, p) })
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for id, r := range first.Resources {
		later := synth(t).template.Resources[id]
		if !r.Stays() {
			if later.Stays() {
				t.Errorf("%s is not retained when it is Deletable", id)
			}
			continue
		}
		kept++
		if r.DeletionPolicy != "RetainExceptOnCreate" || !later.Stays() {
			t.Errorf("a failed creation leaves %s behind: %s, later %s", id, r.DeletionPolicy, later.DeletionPolicy)
		}
		if r.Type == "AWS::DynamoDB::Table" && (r.Properties["DeletionProtectionEnabled"] != false || later.Properties["DeletionProtectionEnabled"] != true || later.DeletionPolicy != "Retain") {
			t.Errorf("%s is protected during the first creation, or not protected afterwards", id)
		}
	}
	if kept != 14 {
		t.Errorf("%d resources outlive the stack, want two tables, five keys, five buckets, a registry and a vault", kept)
	}
}

func TestPropsRefuse(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*control.Props)
		want   string
	}{
		"no stage":                         {func(p *control.Props) { p.Stage = "" }, "stage"},
		"an invalid stage":                 {func(p *control.Props) { p.Stage = "Prod/1" }, "stage"},
		"a stage with the name of a spare": {func(p *control.Props) { p.Stage = "prod-spare" }, "spare stack"},
		"a stage with roles of customers":  {func(p *control.Props) { p.Stage = "direct-1" }, "direct launch"},
		"no builds":                        {func(p *control.Props) { p.Functions = "testdata/none" }, "controlapi"},
		"a domain without a certificate":   {func(p *control.Props) { p.Certificate = "" }, "certificateArn"},
		"an image by tag":                  {func(p *control.Props) { p.RunnerImage = "runner:latest" }, "digest"},
		"an unsupported retention":         {func(p *control.Props) { p.LogDays = 31 }, "logRetentionDays"},
		"too little memory for Lambda":     {func(p *control.Props) { p.MemoryMB = 64 }, "functionMemoryMb"},
		"a size that Fargate lacks":        {func(p *control.Props) { p.Build.Size = "Tiny" }, "buildRunnerSize"},
		"a build runner's image by tag":    {func(p *control.Props) { p.Build.Image = "builder:latest" }, "buildRunnerImage"},
		"a secret in place of its ARN":     {func(p *control.Props) { p.Build.Secrets = []string{"LOGIN=reader:5ecret"} }, "buildRunnerSecrets"},
		"a secret with a name twice":       {func(p *control.Props) { p.Build.Secrets = []string{"A=" + loginARN, "A=" + loginARN} }, "buildRunnerSecrets"},
		"too many secrets":                 {func(p *control.Props) { p.Build.Secrets = make([]string, 21) }, "buildRunnerSecrets"},
		"a VPC without subnets":            {func(p *control.Props) { p.Build.VPC = "vpc-0a1b2c3d" }, "buildRunnerSubnets"},
		"a VPC by name, not id":            {func(p *control.Props) { p.Build.VPC = "main" }, "buildRunnerVpc"},
		"a subnet by name, not id":         {func(p *control.Props) { p.Build.VPC, p.Build.Subnets = "vpc-0a1b2c3d", []string{"main"} }, "buildRunnerSubnets"},
		"a public address without subnets": {func(p *control.Props) { p.Build.PublicIP = true }, "buildRunnerPublicIp"},
		"a zone without a domain":          {func(p *control.Props) { p.Domain, p.Certificate = "", "" }, "domain"},
	} {
		t.Run(name, func(t *testing.T) {
			p := props()
			tc.change(&p)
			_, err := infratest.SynthVariant(t.TempDir(), func(scope constructs.Construct) (awscdk.Stack, error) { return control.New(scope, p) })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestPropsAreReadFromContext(t *testing.T) {
	context := map[string]string{"stage": "prod", "functions": "f", "logRetentionDays": "90", "buildRunnerSize": "Large", "buildRunnerVpc": "vpc-0a1b2c3d", "buildRunnerSubnets": "subnet-1,subnet-2", "buildRunnerPublicIp": "true",
		"buildRunnerImage": "i@sha256:0", "buildRunnerSecrets": "A=1,B=2"}
	p, err := control.FromContext(func(key string) string { return context[key] })
	if err != nil || p.Stage != "prod" || p.LogDays != 90 || p.Deletable {
		t.Errorf("got %+v, %v", p, err)
	}
	want := control.Build{Size: "Large", Image: "i@sha256:0", Secrets: []string{"A=1", "B=2"}, Network: control.Network{VPC: "vpc-0a1b2c3d", Subnets: []string{"subnet-1", "subnet-2"}, PublicIP: true}}
	if !reflect.DeepEqual(p.Build, want) {
		t.Errorf("the build runner is %+v, want %+v", p.Build, want)
	}
	for key, wrong := range map[string]string{"rateLimit": "-1", "buildRunnerPublicIp": "yes", "deletionProtection": "off"} {
		_, err := control.FromContext(func(k string) string {
			if k == key {
				return wrong
			}
			return context[k]
		})
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("got %v, want an error that names %s", err, key)
		}
	}
}
