package awstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awssession"
	"github.com/fairlead/fairlead/test/hosts"
)

// outside is a client of the account outside of it, such as a runner.
type outside struct {
	*account
	client *http.Client
}

// serve serves the account's services under their host names.
func (a *account) serve() *outside {
	served := map[string]http.Handler{stsHost: a.guard.STS(), registryHost: a.registry, "*.s3." + region + ".amazonaws.com": a.gates["S3"].handler}
	for host, service := range map[string]string{"ssm": "SSM", "sqs": "SQS", "logs": "CLOUDWATCH_LOGS", "dynamodb": "DYNAMODB", "kms": "KMS", "api.ecr": "ECR"} {
		served[host+"."+region+".amazonaws.com"] = a.gates[service].handler
	}
	return &outside{account: a, client: hosts.Client(a.t, served)}
}

// as returns the configuration of a client with these credentials.
func (o *outside) as(c aws.Credentials) aws.Config {
	return aws.Config{Region: region, HTTPClient: o.client, RetryMaxAttempts: 1, Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}
}

// function returns the configuration of a client with the role of a function.
func (o *outside) function(name string) aws.Config {
	c, err := o.guard.Open("lambda.amazonaws.com", o.functions[name].role, name)
	o.ok("open the role of "+name, err)
	return o.as(c)
}

// given returns a variable of a function's environment.
func (o *outside) given(function, name string) string {
	for _, v := range o.functions[function].program.Env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	o.t.Fatalf("the function %s has no variable %s", function, name)
	return ""
}

// access opens the session of a scope as the function does.
func (o *outside) access(function string, s identity.Scope) aws.Config {
	g, err := awssession.New(o.function(function), awssession.Options{Role: o.attribute("SessionRole", "Arn"), QueuePrefix: o.given("runnerapi", "FAIRLEAD_QUEUE_PREFIX"),
		LogGroupPrefix: o.given("runnerapi", "FAIRLEAD_LOG_GROUP_PREFIX"), ArtifactPrefix: o.given("runnerapi", "FAIRLEAD_ARTIFACT_PREFIX"), CancelTable: o.ref("Cancels")})
	o.ok("make the grants of "+function, err)
	a, err := g.Grant(o.t.Context(), s)
	o.ok("open a session", err)
	return o.as(aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken})
}

// pull asks the registry for an artifact of a repository.
func (o *outside) pull(ctx context.Context, cfg aws.Config, repository string) error {
	login, err := ecr.NewFromConfig(cfg).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+registryHost+"/v2/"+repository+"/manifests/latest", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Basic "+*login.AuthorizationData[0].AuthorizationToken)
	res, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusForbidden {
		err = &smithy.GenericAPIError{Code: "AccessDenied", Message: string(text)}
	}
	return err // an absent artifact is no refusal
}

// isDenied reports whether a service refused a request with its own error for a missing
// permission.
func isDenied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "AccessDeniedException")
}

// makeOf makes what a runner, its install and its app have in the vendor's account.
func (o *outside) makeOf(x string) (queueURL, logs, repository string) {
	queue := o.given("runnerapi", "FAIRLEAD_QUEUE_PREFIX") + "runner-run_" + x + "-q"
	logs = o.given("runnerapi", "FAIRLEAD_LOG_GROUP_PREFIX") + "ins_" + x
	repository = o.given("runnerapi", "FAIRLEAD_ARTIFACT_PREFIX") + "app_" + x + "/web"
	api := o.function("controlapi")
	made, err := sqs.NewFromConfig(api).CreateQueue(o.t.Context(), &sqs.CreateQueueInput{QueueName: &queue})
	o.ok("create queue "+queue, err)
	_, err = cloudwatchlogs.NewFromConfig(api).CreateLogGroup(o.t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &logs})
	o.ok("create log group "+logs, err)
	_, err = ecr.NewFromConfig(api).CreateRepository(o.t.Context(), &ecr.CreateRepositoryInput{RepositoryName: &repository})
	o.ok("create repository "+repository, err)
	return *made.QueueUrl, logs, repository
}

// The credentials of runner A's session and attempt come from the functions' own code and
// STS. With them, AWS's own clients use A's queue, log, repository and cancel marker. The
// same requests for runner B's are refused by the service, and so are the keys, tables and
// buckets of the vendor.
func TestForeignRunnerIsRefusedLive(t *testing.T) {
	o := deploy(t, releasedTemplate(t, released())).serve()
	queueA, logA, repositoryA := o.makeOf("a")
	queueB, logB, repositoryB := o.makeOf("b")
	poll := o.access("sessionapi", identity.Scope{Runner: "run_a", Queue: "runner-run_a"})
	step := o.access("runnerapi", identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Job: "job_a", Epoch: 2})

	receive := func(url string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := sqs.NewFromConfig(cfg).ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url})
			return err
		}
	}
	onQueue := func(do func(context.Context, *sqs.Client) error) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error { return do(ctx, sqs.NewFromConfig(cfg)) }
	}
	write := func(group, stream string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			client := cloudwatchlogs.NewFromConfig(cfg)
			if _, err := client.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream}); err != nil {
				return err
			}
			_, err := client.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group, LogStreamName: &stream,
				LogEvents: []logtypes.InputLogEvent{{Message: aws.String("x"), Timestamp: aws.Int64(1)}}})
			return err
		}
	}
	pull := func(repository string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error { return o.pull(ctx, cfg, repository) }
	}
	item := func(table, attribute, key string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := dynamodb.NewFromConfig(cfg).GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: map[string]dynamotypes.AttributeValue{attribute: &dynamotypes.AttributeValueMemberS{Value: key}}})
			return err
		}
	}
	marker := func(key string) func(context.Context, aws.Config) error {
		return item(o.ref("Cancels"), *o.cancelKey(), key)
	}
	object := func(bucket string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := s3.NewFromConfig(cfg).GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("state/x")})
			return err
		}
	}
	open := func(ctx context.Context, cfg aws.Config) error {
		_, err := kms.NewFromConfig(cfg).GenerateDataKey(ctx, &kms.GenerateDataKeyInput{KeyId: aws.String(o.attribute("SealKey", "Arn")), KeySpec: kmstypes.DataKeySpecAes256})
		return err
	}
	sign := func(ctx context.Context, cfg aws.Config) error {
		_, err := kms.NewFromConfig(cfg).Sign(ctx, &kms.SignInput{KeyId: aws.String(o.attribute("SigningKey", "Arn")), Message: []byte("job"), MessageType: kmstypes.MessageTypeRaw,
			SigningAlgorithm: kmstypes.SigningAlgorithmSpecEd25519Sha512})
		return err
	}
	become := func(ctx context.Context, cfg aws.Config) error {
		_, err := sts.NewFromConfig(cfg).AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: aws.String(o.attribute("SessionRole", "Arn")), RoleSessionName: aws.String("run_b")})
		return err
	}
	o.attack([]attempt{
		{"a session polls its queue", poll, receive(queueA), true},
		{"a session polls another runner's queue", poll, receive(queueB), false},
		{"a session polls a queue of no runner", poll, receive(strings.Replace(queueA, "runner-run_a-q", "runner-run_x-q", 1)), false},
		{"a session sends to its own queue", poll, onQueue(func(ctx context.Context, c *sqs.Client) error {
			_, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queueA, MessageBody: aws.String("x")})
			return err
		}), false},
		{"a session sends to another runner's queue", poll, onQueue(func(ctx context.Context, c *sqs.Client) error {
			_, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queueB, MessageBody: aws.String("x")})
			return err
		}), false},
		{"a session empties its own queue", poll, onQueue(func(ctx context.Context, c *sqs.Client) error {
			_, err := c.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &queueA})
			return err
		}), false},
		{"a session deletes its own queue", poll, onQueue(func(ctx context.Context, c *sqs.Client) error {
			_, err := c.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &queueA})
			return err
		}), false},
		{"a session opens its own queue to others", poll, onQueue(func(ctx context.Context, c *sqs.Client) error {
			_, err := c.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &queueA, Attributes: map[string]string{"Policy": "{}"}})
			return err
		}), false},
		{"a session deletes a wake-up of another runner", poll, onQueue(func(ctx context.Context, c *sqs.Client) error {
			_, err := c.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &queueB, ReceiptHandle: aws.String("x")})
			return err
		}), false},
		{"a session writes the log of an attempt", poll, write(logA, "job_a/2"), false},
		{"a session pulls an app", poll, pull(repositoryA), false},
		{"a session opens another session", poll, become, false},
		{"an attempt writes its log", step, write(logA, "job_a/2"), true},
		{"an attempt writes another install's log", step, write(logB, "job_a/2"), false},
		{"an attempt writes another job's log", step, write(logA, "job_b/2"), false},
		{"an attempt pulls its app", step, pull(repositoryA), true},
		{"an attempt pulls another app", step, pull(repositoryB), false},
		{"an attempt reads its cancel marker", step, marker("ins_a/job_a/2"), true},
		{"an attempt reads another's cancel marker", step, marker("ins_b/job_b/1"), false},
		{"an attempt takes wake-ups", step, receive(queueA), false},
		{"an attempt reads states in the vendor's bucket", step, object(o.ref("Blobs")), false},
		{"an attempt uses the key of sealed values", step, open, false},
		{"an attempt signs a job", step, sign, false},
		{"an attempt opens a session", step, become, false},
	})
}

// attempt is a request that IAM allows or denies.
type attempt struct {
	what    string
	as      aws.Config
	do      func(context.Context, aws.Config) error
	allowed bool
}

// attack makes the requests, and checks what each service answers.
func (o *outside) attack(rows []attempt) {
	o.t.Helper()
	o.refused.attack()
	for _, r := range rows {
		before := o.refused.count()
		err := r.do(o.t.Context(), r.as)
		if r.allowed && err != nil {
			o.t.Errorf("%s: %v, want no error", r.what, err)
		}
		if !r.allowed && (!isDenied(err) || o.refused.count() == before) {
			o.t.Errorf("%s: %v, want the service's error for a missing permission", r.what, err)
		}
	}
}

// Two installs have stacks in one account. A step of the first takes the role of its
// operation and nothing else. With that role the services give it its own state and key.
// They refuse the state, the key and the mode of the second, and whatever another operation
// may do.
func TestForeignInstallIsRefusedLive(t *testing.T) {
	o := deploy(t, releasedTemplate(t, released())).serve()
	external := func(install string) string { return "fl-" + install + "-0123456789abcdef" }
	stack := func(install string) *account {
		c := o.makeStack(install, map[string]string{"AWS::StackId": "arn:aws:cloudformation:" + region + ":" + accountID + ":stack/" + install + "/1", wire.StackInstallID: "ins_" + install,
			wire.StackControlPlaneURL: "https://" + planeHost, wire.StackRunnerID: "run_" + install, wire.StackExternalID: external(install), wire.StackTrustedKeys: "k", wire.StackRunnerImage: "i"})
		cluster := c.resolver.text(c.tmpl.Resources["Cluster"].Properties["ClusterName"])
		c.made["Cluster"] = made{ref: cluster, attr: map[string]string{"Arn": "arn:aws:ecs:" + region + ":" + accountID + ":cluster/" + cluster}}
		c.addPolicies(c.resolver)
		return c
	}
	a, b := stack("a"), stack("b")
	task := func(c *account, role string) aws.Config {
		k, err := o.guard.Open("ecs-tasks.amazonaws.com", c.attribute(role, "Arn"), "task")
		o.ok("open the role of a task", err)
		return o.as(k)
	}
	take := func(cfg aws.Config, c *account, role, install string) (aws.Config, error) {
		out, err := sts.NewFromConfig(cfg).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: aws.String(c.attribute(role, "Arn")), RoleSessionName: aws.String("job_1"), ExternalId: aws.String(external(install)),
			Tags: []ststypes.Tag{{Key: aws.String("fairlead-install"), Value: aws.String("ins_" + install)}, {Key: aws.String("fairlead-job"), Value: aws.String("job_1")}}})
		if err != nil {
			return aws.Config{}, err
		}
		return o.as(aws.Credentials{AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken}), nil
	}
	takes := func(c *account, role, install string) func(context.Context, aws.Config) error {
		return func(_ context.Context, cfg aws.Config) error { _, err := take(cfg, c, role, install); return err }
	}
	plan, err := take(task(a, "ReadOnlyStepRole"), a, "ReadOnlyRole", "a")
	o.ok("take the role of a plan", err)
	apply, err := take(task(a, "ProvisionStepRole"), a, "ProvisionRole", "a")
	o.ok("take the role of an apply", err)

	read := func(c *account) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := s3.NewFromConfig(cfg).GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(c.ref("StateBucket")), Key: aws.String("state/web.tfstate")})
			return err
		}
	}
	write := func(c *account) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := s3.NewFromConfig(cfg).PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(c.ref("StateBucket")), Key: aws.String("state/web.tfstate"), Body: strings.NewReader("{}")})
			return err
		}
	}
	open := func(c *account) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := kms.NewFromConfig(cfg).GenerateDataKey(ctx, &kms.GenerateDataKeyInput{KeyId: aws.String(c.attribute("StateKey", "Arn")), KeySpec: kmstypes.DataKeySpecAes256})
			return err
		}
	}
	mode := func(c *account) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := ssm.NewFromConfig(cfg).GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(c.ref("RunnerMode"))})
			return err
		}
	}
	enable := func(ctx context.Context, cfg aws.Config) error {
		_, err := ssm.NewFromConfig(cfg).PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String(a.ref("RunnerMode")), Value: aws.String("enabled"), Overwrite: aws.Bool(true)})
		return err
	}
	o.attack([]attempt{
		{"an apply writes its state", apply, write(a), true},
		{"an apply writes the state of another install", apply, write(b), false},
		{"an apply uses the key of another install", apply, open(b), false},
		{"a plan reads its state", plan, read(a), true},
		{"a plan uses its key", plan, open(a), true},
		{"a plan writes its state", plan, write(a), false},
		{"a plan reads the state of another install", plan, read(b), false},
		{"a plan uses the key of another install", plan, open(b), false},
		{"an apply enables a paused runner", apply, enable, false},
		{"an agent reads its mode", task(a, "RunnerRole"), mode(a), true},
		{"an agent reads the mode of another", task(a, "RunnerRole"), mode(b), false},
		{"an agent reads a state", task(a, "RunnerRole"), read(a), false},
		{"an agent takes the role of an apply", task(a, "RunnerRole"), takes(a, "ProvisionRole", "a"), false},
		{"a step reads a state without the role of its operation", task(a, "ProvisionStepRole"), read(a), false},
		{"the step of a plan takes the role of an apply", task(a, "ReadOnlyStepRole"), takes(a, "ProvisionRole", "a"), false},
		{"a step takes a role of another install", task(a, "ReadOnlyStepRole"), takes(b, "ReadOnlyRole", "b"), false},
		{"a step takes its role with another's external id", task(a, "ReadOnlyStepRole"), takes(a, "ReadOnlyRole", "b"), false},
	})
}

// cancelKey returns the name of the key of cancel markers.
func (a *account) cancelKey() *string {
	key := a.tmpl.Resources["Cancels"].Properties["KeySchema"].([]any)[0].(map[string]any)["AttributeName"]
	return aws.String(fmt.Sprint(key))
}
