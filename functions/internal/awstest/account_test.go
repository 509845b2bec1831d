package awstest

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/pkg/seal/kms/kmstest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/elasticmq"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/program"
)

// The servers. The table and its stream are DynamoDB Local's, the runners' queues
// ElasticMQ's; everything else is moto's, of which each account has its own.
var (
	// A server that other packages load trims streams before they are read.
	tables = dynamodblocal.Server{Own: true}
	queues elasticmq.Server
)

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	queues.Stop()
	os.Exit(code)
}

// functionProgram returns the path of a function's program as it is deployed, but for
// this machine.
func functionProgram(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(program.Folder(t, "functions/...", "-tags=lambda.norpc"), name)
}

// account is an AWS account in which the control plane's stack was deployed.
type account struct {
	*resolver
	id        string            // what tells it from the accounts of other tests
	moto      string            // URL of its server
	endpoints map[string]string // of servers, by the SDK's name of the service
	gates     map[string]*gate  // before them, for the functions alone
	functions map[string]*function
	registry  *registry
	buckets   []string
}

// function is a function of the stack with the environments that serve it.
type function struct {
	name    string
	program *exec.Cmd // not started: what each environment is a copy of
	idle    chan *runtimetest.Function
	mu      sync.Mutex
	started int

	fromQueue atomic.Int32 // invocations by a queue that succeeded
}

// environments is how many invocations of one function run at once.
const environments = 6

// ignored are resources that change nothing of what the control plane does, or
// that have no server here. Permissions are evaluated by infra's own tests.
var ignored = map[string]string{
	"AWS::CloudWatch::Alarm": "", "AWS::CloudWatch::Dashboard": "", "AWS::IAM::Policy": "", "AWS::Lambda::Permission": "", "AWS::SQS::QueuePolicy": "",
	"AWS::S3::BucketPolicy": "", "AWS::KMS::Alias": "", "AWS::Route53::RecordSet": "", "AWS::ApiGatewayV2::DomainName": "", "AWS::ApiGatewayV2::ApiMapping": "",
	"AWS::ApiGatewayV2::Stage": "", "AWS::SNS::Topic": "", "AWS::SNS::Subscription": "", "AWS::SNS::TopicPolicy": "",
	"AWS::Lambda::EventInvokeConfig": "", "AWS::ApiGatewayV2::Api": "",
}

// deploy makes an account from the template.
func deploy(t *testing.T, tmpl template) *account {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	// Stacks and repositories have the same names in each account.
	server := moto.Server{Own: true}
	t.Cleanup(server.Stop)
	other := server.Endpoint(t)
	a := &account{id: strings.ToLower(rand.Text())[:8], moto: other, functions: map[string]*function{},
		resolver: &resolver{t: t, tmpl: tmpl, made: map[string]made{}}}
	signing := "arn:aws:kms:" + region + ":" + accountID + ":key/" + a.id
	a.endpoints = map[string]string{"DYNAMODB": tables.Endpoint(t), "SQS": queues.Endpoint(t), "S3": other, "EVENTBRIDGE": other, "CLOUDWATCH_LOGS": other,
		"KMS": kmstest.Start(t, other, map[string]ed25519.PrivateKey{signing: key})}
	a.registry = newRegistry(t, other)
	ecr := httptest.NewServer(http.HandlerFunc(a.registry.api))
	t.Cleanup(ecr.Close)
	a.endpoints["ECR"] = ecr.URL
	a.gates = a.makeGates()
	a.ok("make a stream for logs", a.kinesis(t.Context(), "CreateStream", map[string]any{"StreamName": a.logStream(), "ShardCount": 1}, nil))

	makers := []struct {
		kind string
		make func(id string, properties map[string]any) made
	}{
		{"AWS::Logs::LogGroup", a.logGroup}, {"AWS::IAM::Role", a.role}, {"AWS::KMS::Key", func(_ string, p map[string]any) made { return a.key(p, signing) }},
		{"AWS::DynamoDB::Table", a.table}, {"AWS::S3::Bucket", a.bucket}, {"AWS::SQS::Queue", a.queue}, {"AWS::Events::EventBus", a.bus}, {"AWS::ECR::Repository", a.repository},
		{"AWS::Lambda::Function", a.lambda}, {"AWS::Events::Rule", a.rule}, {"AWS::ApiGatewayV2::Integration", a.integration},
		{"AWS::ApiGatewayV2::Route", a.nothing}, {"AWS::Lambda::EventSourceMapping", a.nothing},
	}
	known := maps.Clone(ignored)
	for id, res := range a.tmpl.Resources {
		if places[res.Type] { // of a task, which runs on this machine
			known[res.Type] = ""
		}
		if _, ok := known[res.Type]; ok {
			a.made[id] = made{ref: strings.ToLower(id), attr: map[string]string{"Arn": "arn:aws:none:::" + id}}
		}
	}
	for _, m := range makers {
		known[m.kind] = ""
		for _, id := range order(a.tmpl, m.kind) {
			a.made[id] = m.make(id, a.tmpl.Resources[id].Properties)
		}
	}
	for id, res := range a.tmpl.Resources {
		if _, ok := known[res.Type]; !ok {
			t.Errorf("%s is a %s, which nothing here makes", id, res.Type)
		}
	}
	return a
}

// order returns the resources of a kind so that those come first that others
// refer to: queues of dead letters before the queues that have them.
func order(tmpl template, kind string) []string {
	var first, last []string
	for _, id := range tmpl.ofType(kind) {
		if _, redrives := tmpl.Resources[id].Properties["RedrivePolicy"]; redrives {
			last = append(last, id)
		} else {
			first = append(first, id)
		}
	}
	return append(first, last...)
}

// config is that of a client of a service.
func (a *account) config(service string) aws.Config {
	return aws.Config{Region: region, BaseEndpoint: aws.String(a.endpoints[service]), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

func (a *account) ok(what string, err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatalf("%s: %v", what, err)
	}
}

func (a *account) nothing(string, map[string]any) made { return made{} }

func (a *account) logGroup(id string, p map[string]any) made {
	name := a.text(p["LogGroupName"]) + "-" + a.id + id
	_, err := cloudwatchlogs.NewFromConfig(a.config("CLOUDWATCH_LOGS")).CreateLogGroup(a.t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name})
	a.ok("make log group "+name, err)
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:logs:" + region + ":" + accountID + ":log-group:" + name + ":*"}}
}

// role is a name only: nothing here asks IAM.
func (a *account) role(id string, p map[string]any) made {
	name := a.text(p["RoleName"])
	if name == "" {
		name = id
	}
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:iam::" + accountID + ":role/" + name}}
}

func (a *account) key(p map[string]any, signing string) made {
	in := kms.CreateKeyInput{KeySpec: kmstypes.KeySpec(a.text(p["KeySpec"])), KeyUsage: kmstypes.KeyUsageType(a.text(p["KeyUsage"]))}
	if in.KeyUsage == kmstypes.KeyUsageTypeSignVerify { // of a kind that moto does not have
		return made{ref: signing, attr: map[string]string{"Arn": signing}}
	}
	out, err := kms.NewFromConfig(a.config("KMS")).CreateKey(a.t.Context(), &in)
	a.ok("make a key", err)
	return made{ref: *out.KeyMetadata.KeyId, attr: map[string]string{"Arn": *out.KeyMetadata.Arn}}
}

func (a *account) table(id string, p map[string]any) made {
	in := as[dynamodb.CreateTableInput](a.resolver, p)
	in.TableName, in.SSESpecification, in.DeletionProtectionEnabled = aws.String(a.id+"-"+id), nil, nil // the server has none of these
	if in.StreamSpecification != nil {
		in.StreamSpecification.StreamEnabled = aws.Bool(true) // CloudFormation knows by its being there
	}
	out, err := dynamodb.NewFromConfig(a.config("DYNAMODB")).CreateTable(a.t.Context(), &in)
	a.ok("make table "+id, err)
	return made{ref: *in.TableName, attr: map[string]string{"Arn": *out.TableDescription.TableArn, "StreamArn": aws.ToString(out.TableDescription.LatestStreamArn)}}
}

func (a *account) bucket(id string, p map[string]any) made {
	name := "fairlead-" + a.id + "-" + strings.ToLower(id)
	client := s3.NewFromConfig(a.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	_, err := client.CreateBucket(a.t.Context(), &s3.CreateBucketInput{Bucket: &name, CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: region}})
	a.ok("make bucket "+name, err)
	if v, ok := p["VersioningConfiguration"].(map[string]any); ok {
		_, err := client.PutBucketVersioning(a.t.Context(), &s3.PutBucketVersioningInput{Bucket: &name,
			VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatus(a.text(v["Status"]))}})
		a.ok("version bucket "+name, err)
	}
	a.buckets = append(a.buckets, name)
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:s3:::" + name, "DomainName": name + ".s3.amazonaws.com", "RegionalDomainName": name + ".s3." + region + ".amazonaws.com"}}
}

func (a *account) repository(id string, p map[string]any) made {
	name := a.text(p["RepositoryName"])
	a.registry.make(name)
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:ecr:" + region + ":" + accountID + ":repository/" + name, "RepositoryUri": registryHost + "/" + name}}
}

// queue makes a queue of the stack. They are moto's, because its event bus sends
// to them; those of runners, which the control plane makes, are ElasticMQ's.
func (a *account) queue(id string, p map[string]any) made {
	name := a.id + "-" + id
	in := sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{}}
	for _, attribute := range []string{"VisibilityTimeout", "MessageRetentionPeriod"} {
		if v, ok := p[attribute]; ok {
			in.Attributes[attribute] = a.text(v)
		}
	}
	if redrive, ok := p["RedrivePolicy"].(map[string]any); ok {
		in.Attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%q}`, a.text(redrive["deadLetterTargetArn"]), a.text(redrive["maxReceiveCount"]))
	}
	out, err := sqs.NewFromConfig(a.config("EVENTBRIDGE")).CreateQueue(a.t.Context(), &in)
	a.ok("make queue "+name, err)
	return made{ref: *out.QueueUrl, attr: map[string]string{"Arn": "arn:aws:sqs:" + region + ":" + accountID + ":" + name, "QueueName": name}}
}

func (a *account) bus(_ string, p map[string]any) made {
	name := a.text(p["Name"]) + "-" + a.id
	out, err := eventbridge.NewFromConfig(a.config("EVENTBRIDGE")).CreateEventBus(a.t.Context(), &eventbridge.CreateEventBusInput{Name: &name})
	a.ok("make bus "+name, err)
	return made{ref: name, attr: map[string]string{"Arn": *out.EventBusArn, "Name": name}}
}

// rule makes a rule of the bus whose targets are queues. Schedules are ticked by
// the test, and what goes to a function directly is told to it by the test.
func (a *account) rule(id string, p map[string]any) made {
	pattern, ok := p["EventPattern"]
	if !ok {
		return made{}
	}
	client, name, bus := eventbridge.NewFromConfig(a.config("EVENTBRIDGE")), a.id+"-"+id, a.text(p["EventBusName"])
	text := as[jsonText](a.resolver, map[string]any{"v": pattern}).string()
	_, err := client.PutRule(a.t.Context(), &eventbridge.PutRuleInput{Name: &name, EventBusName: &bus, EventPattern: &text, State: ebtypes.RuleStateEnabled})
	a.ok("make rule "+name, err)
	for _, target := range a.value(p["Targets"]).([]any) {
		arn := target.(map[string]any)["Arn"].(string)
		if !strings.HasPrefix(arn, "arn:aws:sqs:") {
			continue
		}
		_, err := client.PutTargets(a.t.Context(), &eventbridge.PutTargetsInput{Rule: &name, EventBusName: &bus, Targets: []ebtypes.Target{{Id: aws.String("t"), Arn: &arn}}})
		a.ok("aim rule "+name, err)
	}
	return made{ref: name}
}

// lambda prepares a function: its binary, with the environment that the template
// gives it, what Lambda adds, and an endpoint for each service, which is all
// that differs from AWS.
func (a *account) lambda(id string, p map[string]any) made {
	name := a.text(p["FunctionName"])
	short := name[strings.LastIndex(name, "-")+1:]
	cmd := exec.Command(functionProgram(a.t, short))
	cmd.Env = []string{"AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true", "TMPDIR=" + a.t.TempDir()}
	for service, g := range a.gates {
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL_"+service+"="+g.url)
	}
	for k, v := range p["Environment"].(map[string]any)["Variables"].(map[string]any) {
		cmd.Env = append(cmd.Env, k+"="+a.text(v))
	}
	a.functions[short] = &function{name: short, program: cmd, idle: make(chan *runtimetest.Function, environments)}
	arn := "arn:aws:lambda:" + region + ":" + accountID + ":function:" + name
	return made{ref: name, attr: map[string]string{"Arn": arn}}
}

// integration is the function that answers, by its ARN.
func (a *account) integration(_ string, p map[string]any) made {
	return made{ref: a.text(p["IntegrationUri"])}
}
