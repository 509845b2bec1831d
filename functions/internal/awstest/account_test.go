package awstest

import (
	"cmp"
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
	"time"

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
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/pkg/seal/kms/kmstest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuildtest"
	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/elasticmq"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/program"
)

// The servers. DynamoDB Local has the table and its stream, ElasticMQ the runners'
// queues, and moto everything else. Each account has its own moto.
var (
	// Own, because a server that other packages load trims streams before this
	// package reads them.
	tables  = dynamodblocal.Server{Own: true}
	queues  elasticmq.Server
	cluster kube.Server
	engine  dockerd.Server
	// buildkit builds the images of CodeBuild.
	buildkit daemon.Server
)

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	queues.Stop()
	cluster.Stop()
	engine.Stop()
	buildkit.Stop()
	os.Exit(code)
}

// functionProgram returns the path of a function's program. The program is built
// for this machine, with the build tags of the deployed program.
func functionProgram(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(program.Folder(t, "functions/...", "-tags=lambda.norpc"), name)
}

// account is an AWS account in which the control plane's stack was deployed.
type account struct {
	*resolver
	id        string            // random; keeps its names apart from those of other tests
	moto      string            // URL of its moto
	endpoints map[string]string // URLs of the servers, by the SDK's name of the service
	gates     map[string]*gate  // proxies before the servers, by the same names; only the functions use them
	guard     *iamtest.Guard
	refused   *refusals
	functions map[string]*function
	registry  *registry
	buckets   []string
	projects  map[string]codebuildtest.Project // of CodeBuild, by logical id
	managed   map[string]iamtest.Policy        // AWS's own policies, by ARN; one that is not here permits nothing
	meter     *meter                           // counts what the functions use; nil: nothing does
}

// function is a function of the stack with its execution environments.
type function struct {
	name    string
	role    string    // ARN
	log     string    // log group
	key     string    // access key of the role's session
	program *exec.Cmd // never started: each environment copies it
	timeout time.Duration
	idle    chan *runtimetest.Function
	mu      sync.Mutex
	started int

	fromQueue atomic.Int32 // invocations by a queue that succeeded
}

// environments is the largest number of concurrent invocations of one function.
const environments = 6

// ignored lists the types of resources that do not change the behavior of the
// control plane, or that have no server here, and the policies, which the guard enforces.
var ignored = map[string]string{
	"AWS::CloudWatch::Alarm": "", "AWS::CloudWatch::Dashboard": "", "AWS::IAM::Policy": "", "AWS::Lambda::Permission": "", "AWS::SQS::QueuePolicy": "",
	"AWS::S3::BucketPolicy": "", "AWS::KMS::Alias": "", "AWS::Route53::RecordSet": "", "AWS::ApiGatewayV2::DomainName": "", "AWS::ApiGatewayV2::ApiMapping": "",
	"AWS::ApiGatewayV2::Stage": "", "AWS::SNS::Topic": "", "AWS::SNS::Subscription": "", "AWS::SNS::TopicPolicy": "",
	"AWS::Lambda::EventInvokeConfig": "", "AWS::Lambda::Version": "", "AWS::CodeDeploy::Application": "", "AWS::CodeDeploy::DeploymentGroup": "",
	"AWS::Logs::MetricFilter": "", "AWS::Budgets::Budget": "", "AWS::ApiGatewayV2::Api": "",
}

// deploy creates an account with the resources of the template.
func deploy(t testing.TB, tmpl template) *account {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, spare, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	// An own server, because stacks and repositories have the same names in each account.
	server := moto.Server{Own: true}
	t.Cleanup(server.Stop)
	other := server.Endpoint(t)
	a := &account{id: strings.ToLower(rand.Text())[:8], moto: other, functions: map[string]*function{}, projects: map[string]codebuildtest.Project{},
		resolver: &resolver{t: t, tmpl: tmpl, made: map[string]made{}}}
	signing := "arn:aws:kms:" + region + ":" + accountID + ":key/" + a.id
	a.endpoints = map[string]string{"DYNAMODB": tables.Endpoint(t), "SQS": queues.Endpoint(t), "S3": other, "EVENTBRIDGE": other, "CLOUDWATCH_LOGS": other, "SSM": other,
		"KMS": kmstest.Start(t, other, map[string]ed25519.PrivateKey{signing: key, signing + "-spare": spare})}
	a.guard, a.refused = newGuard(t, other)
	a.registry = newRegistry(t, other, a.guard)
	ecr := httptest.NewServer(http.HandlerFunc(a.registry.api))
	t.Cleanup(ecr.Close)
	a.endpoints["ECR"] = ecr.URL
	a.gates = a.makeGates()
	a.ok("create a stream for logs", a.kinesis(t.Context(), "CreateStream", map[string]any{"StreamName": a.logStream(), "ShardCount": 1}, nil))

	makers := []struct {
		kind string
		make func(id string, properties map[string]any) made
	}{
		{"AWS::Logs::LogGroup", a.logGroup}, {"AWS::IAM::Role", a.role}, {"AWS::KMS::Key", func(id string, p map[string]any) made { return a.key(id, p, signing) }},
		{"AWS::DynamoDB::Table", a.table}, {"AWS::S3::Bucket", a.bucket}, {"AWS::SQS::Queue", a.queue}, {"AWS::Events::EventBus", a.bus}, {"AWS::ECR::Repository", a.repository},
		{"AWS::Lambda::Function", a.lambda}, {"AWS::Lambda::Alias", a.alias}, {"AWS::Events::Rule", a.rule}, {"AWS::ApiGatewayV2::Integration", a.integration},
		{"AWS::CodeBuild::Project", a.project}, {"AWS::ApiGatewayV2::Route", a.nothing}, {"AWS::Lambda::EventSourceMapping", a.nothing},
	}
	known := maps.Clone(ignored)
	for id, res := range a.tmpl.Resources {
		if taskResources[res.Type] { // the task runs on this machine
			known[res.Type] = ""
		}
		if _, ok := known[res.Type]; ok {
			a.made[id] = made{ref: strings.ToLower(id), attr: map[string]string{"Arn": "arn:aws:none:::" + id, "ApiEndpoint": "https://" + apiHost}}
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
			t.Errorf("this test creates no %s, the type of %s", res.Type, id)
		}
	}
	a.addPolicies(a.resolver)
	a.openFunctions()
	return a
}

// order returns the logical ids of the resources of a type. A resource comes
// before the resources that refer to it: a dead-letter queue comes before the
// queues that use it.
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

// config returns the configuration of a client for a service.
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
	if id == "BuildRunnerImagesLog" { // the Runner API knows this group by its name
		name = a.text(p["LogGroupName"])
	}
	_, err := cloudwatchlogs.NewFromConfig(a.config("CLOUDWATCH_LOGS")).CreateLogGroup(a.t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name})
	a.ok("create log group "+name, err)
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:logs:" + region + ":" + accountID + ":log-group:" + name + ":*"}}
}

// project keeps a project of CodeBuild, for the service that a test starts with it.
func (a *account) project(id string, p map[string]any) made {
	properties, err := codebuildtest.ReadProject(a.value(p).(map[string]any))
	a.ok("read the project "+id, err)
	a.projects[id] = properties
	return made{ref: properties.Name, attr: map[string]string{"Arn": "arn:aws:codebuild:" + region + ":" + accountID + ":project/" + properties.Name}}
}

// role creates only a name. The guard gets the role's policies later, because they name
// resources that refer to the role.
func (a *account) role(id string, p map[string]any) made {
	name := a.text(p["RoleName"])
	if name == "" {
		name = id
	}
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:iam::" + accountID + ":role" + cmp.Or(a.text(p["Path"]), "/") + name}}
}

func (a *account) key(id string, p map[string]any, signing string) made {
	in := kms.CreateKeyInput{KeySpec: kmstypes.KeySpec(a.text(p["KeySpec"])), KeyUsage: kmstypes.KeyUsageType(a.text(p["KeyUsage"]))}
	if in.KeyUsage == kmstypes.KeyUsageTypeSignVerify { // moto has no Ed25519 keys, so kmstest serves these keys
		if id == "SpareSigningKey" {
			signing += "-spare"
		}
		return made{ref: signing, attr: map[string]string{"Arn": signing}}
	}
	out, err := kms.NewFromConfig(a.config("KMS")).CreateKey(a.t.Context(), &in)
	a.ok("create a key", err)
	return made{ref: *out.KeyMetadata.KeyId, attr: map[string]string{"Arn": *out.KeyMetadata.Arn}}
}

func (a *account) table(id string, p map[string]any) made {
	in := as[dynamodb.CreateTableInput](a.resolver, p)
	in.TableName, in.SSESpecification, in.DeletionProtectionEnabled = aws.String(a.id+"-"+id), nil, nil // DynamoDB Local does not support the last two
	if in.StreamSpecification != nil {
		in.StreamSpecification.StreamEnabled = aws.Bool(true) // the API requires it; CloudFormation implies it
	}
	_, err := dynamodb.NewFromConfig(a.config("DYNAMODB")).CreateTable(a.t.Context(), &in)
	a.ok("create table "+id, err)
	encryption, _ := p["SSESpecification"].(map[string]any)
	a.guard.AddTable(*in.TableName, iamtest.Table{PartitionKey: *in.KeySchema[0].AttributeName, Key: a.text(encryption["KMSMasterKeyId"])})
	// The ARNs of AWS. DynamoDB Local's have another region and account.
	arn := "arn:aws:dynamodb:" + region + ":" + accountID + ":table/" + *in.TableName
	return made{ref: *in.TableName, attr: map[string]string{"Arn": arn, "StreamArn": arn + "/stream/2026-01-01T00:00:00.000"}}
}

func (a *account) bucket(id string, p map[string]any) made {
	name := "fairlead-" + a.id + "-" + strings.ToLower(id)
	client := s3.NewFromConfig(a.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	_, err := client.CreateBucket(a.t.Context(), &s3.CreateBucketInput{Bucket: &name, CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: region}})
	a.ok("create bucket "+name, err)
	if v, ok := p["VersioningConfiguration"].(map[string]any); ok {
		_, err := client.PutBucketVersioning(a.t.Context(), &s3.PutBucketVersioningInput{Bucket: &name,
			VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatus(a.text(v["Status"]))}})
		a.ok("set the versioning of bucket "+name, err)
	}
	a.buckets = append(a.buckets, name)
	encryption := a.value(p["BucketEncryption"]).(map[string]any)["ServerSideEncryptionConfiguration"].([]any)[0].(map[string]any)["ServerSideEncryptionByDefault"].(map[string]any)
	a.guard.AddBucket(name, a.text(encryption["KMSMasterKeyID"]))
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:s3:::" + name, "DomainName": name + ".s3.amazonaws.com", "RegionalDomainName": name + ".s3." + region + ".amazonaws.com"}}
}

func (a *account) repository(id string, p map[string]any) made {
	name := a.text(p["RepositoryName"])
	a.registry.make(name)
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:ecr:" + region + ":" + accountID + ":repository/" + name, "RepositoryUri": registryHost + "/" + name}}
}

// queue creates a queue of the stack in moto, because moto's event bus sends to it.
// The control plane creates the runners' queues in ElasticMQ.
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
	a.ok("create queue "+name, err)
	return made{ref: *out.QueueUrl, attr: map[string]string{"Arn": "arn:aws:sqs:" + region + ":" + accountID + ":" + name, "QueueName": name}}
}

// parameter creates a parameter of SSM with the value of the template.
func (a *account) parameter(p map[string]any) made {
	name := a.text(p["Name"])
	_, err := ssm.NewFromConfig(a.config("SSM")).PutParameter(a.t.Context(), &ssm.PutParameterInput{Name: &name, Type: ssmtypes.ParameterType(a.text(p["Type"])), Value: aws.String(a.text(p["Value"]))})
	a.ok("create parameter "+name, err)
	return made{ref: name}
}

// secret creates a secret whose value Secrets Manager generates.
func (a *account) secret(p map[string]any) made {
	name := a.text(p["Name"])
	value := rand.Text() + rand.Text() + rand.Text() // letters and digits
	out, err := secretsmanager.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(a.endpoints["SSM"]), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}).
		CreateSecret(a.t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: &value})
	a.ok("create secret "+name, err)
	a.guard.AddSecret(name, *out.ARN)
	return made{ref: *out.ARN}
}

func (a *account) bus(_ string, p map[string]any) made {
	name := a.text(p["Name"]) + "-" + a.id
	out, err := eventbridge.NewFromConfig(a.config("EVENTBRIDGE")).CreateEventBus(a.t.Context(), &eventbridge.CreateEventBusInput{Name: &name})
	a.ok("create bus "+name, err)
	return made{ref: name, attr: map[string]string{"Arn": *out.EventBusArn, "Name": name}}
}

// rule creates a rule of the bus, but only with the targets that are queues.
// Instead of the bus, package awstest runs the schedules (tick) and delivers to
// functions (pumpEvents).
func (a *account) rule(id string, p map[string]any) made {
	client, name, bus := eventbridge.NewFromConfig(a.config("EVENTBRIDGE")), a.id+"-"+id, a.text(p["EventBusName"])
	rule := made{ref: name, attr: map[string]string{"Arn": "arn:aws:events:" + region + ":" + accountID + ":rule/" + name}}
	pattern, ok := p["EventPattern"]
	if !ok {
		return rule
	}
	text := as[jsonText](a.resolver, map[string]any{"v": pattern}).string()
	_, err := client.PutRule(a.t.Context(), &eventbridge.PutRuleInput{Name: &name, EventBusName: &bus, EventPattern: &text, State: ebtypes.RuleStateEnabled})
	a.ok("create rule "+name, err)
	for _, target := range a.value(p["Targets"]).([]any) {
		arn := target.(map[string]any)["Arn"].(string)
		if !strings.HasPrefix(arn, "arn:aws:sqs:") {
			continue
		}
		_, err := client.PutTargets(a.t.Context(), &eventbridge.PutTargetsInput{Rule: &name, EventBusName: &bus, Targets: []ebtypes.Target{{Id: aws.String("t"), Arn: &arn}}})
		a.ok("add a target to rule "+name, err)
	}
	return rule
}

// lambda prepares a function: its binary, the template's environment and the
// variables that Lambda adds. Only the endpoints of the services differ from AWS.
func (a *account) lambda(id string, p map[string]any) made {
	name := a.text(p["FunctionName"])
	short := name[strings.LastIndex(name, "-")+1:]
	cmd := exec.Command(functionProgram(a.t, short))
	cmd.Env = []string{"AWS_REGION=" + region, "AWS_EC2_METADATA_DISABLED=true", "TMPDIR=" + a.t.TempDir()}
	for service, g := range a.gates {
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL_"+service+"="+g.url)
	}
	for k, v := range p["Environment"].(map[string]any)["Variables"].(map[string]any) {
		cmd.Env = append(cmd.Env, k+"="+a.text(v))
	}
	timeout := time.Duration(p["Timeout"].(float64)) * time.Second
	if timeout > 15*time.Minute {
		a.t.Errorf("function %s has a timeout of %s, Lambda supports 15 minutes", short, timeout)
	}
	a.functions[short] = &function{name: short, role: a.text(p["Role"]), log: a.text(p["LoggingConfig"].(map[string]any)["LogGroup"]), program: cmd, timeout: timeout, idle: make(chan *runtimetest.Function, environments)}
	arn := "arn:aws:lambda:" + region + ":" + accountID + ":function:" + name
	return made{ref: name, attr: map[string]string{"Arn": arn}}
}

// alias refers to its function: here an alias has one version.
func (a *account) alias(_ string, p map[string]any) made {
	return made{ref: "arn:aws:lambda:" + region + ":" + accountID + ":function:" + a.text(p["FunctionName"])}
}

// integration refers to its function by the function's ARN.
func (a *account) integration(_ string, p map[string]any) made {
	return made{ref: a.text(p["IntegrationUri"])}
}
