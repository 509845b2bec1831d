package direct_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var others moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	others.Stop()
	cluster.Stop()
	os.Exit(code)
}

const region = "eu-west-1"

// account is a simulated AWS account with an ECS cluster and two task definitions: "runner", and "nothing", whose image
// cannot be pulled.
type account struct {
	endpoint, subnet, group string
	steps                   string // the runner's program
	logs                    *cloudwatchlogs.Client
}

func newAccount(t *testing.T) account {
	t.Helper()
	steps := program.Build(t, "runner")
	endpoint := others.Endpoint(t)
	cfg := aws.Config{Region: region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("id", "key", "")}
	api := awsecs.NewFromConfig(cfg)
	if _, err := api.CreateCluster(t.Context(), &awsecs.CreateClusterInput{ClusterName: aws.String("runners")}); err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"runner", "nothing"} {
		if _, err := api.RegisterTaskDefinition(t.Context(), &awsecs.RegisterTaskDefinitionInput{Family: &family, NetworkMode: types.NetworkModeAwsvpc,
			RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512"),
			ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("step"), Image: aws.String("registry.example/runner:1"), Cpu: 256, Memory: aws.Int32(512)}}}); err != nil {
			t.Fatal(err)
		}
	}
	logs := cloudwatchlogs.NewFromConfig(cfg)
	var there interface{ ErrorCode() string }
	if _, err := logs.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String("/steps")}); err != nil &&
		(!errors.As(err, &there) || there.ErrorCode() != "ResourceAlreadyExistsException") {
		t.Fatal(err)
	}
	return account{endpoint: endpoint, steps: steps, logs: logs,
		subnet: ecstest.Find(t, endpoint, region, "DescribeSubnets", "subnetId"), group: ecstest.Find(t, endpoint, region, "DescribeSecurityGroups", "groupId")}
}

// cloud starts the simulated ECS of the account and sets the environment variables with its endpoint and the agents'
// credentials.
func (a account) cloud(t *testing.T) *ecstest.Cloud {
	t.Helper()
	cloud := ecstest.New(t, a.endpoint, a.steps, "runner", "/steps", a.logs)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": cloud.URL(), "AWS_REGION": region, "AWS_ACCESS_KEY_ID": "AKIATHEIROWN", "AWS_SECRET_ACCESS_KEY": "their-own"} {
		t.Setenv(name, value)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("AWS received:\n%s", strings.Join(cloud.Received(), "\n"))
		}
	})
	return cloud
}

// runner returns the file of a runner whose steps are tasks of the definition.
func (a account) runner(auth, definition string) string {
	return fmt.Sprintf(`
runner_configuration:
  type: aws-ecs
%s  job: {region: eu-west-1, cluster: runners, subnets: [%s], security_groups: [%s], task_definition: %s}
state_storage_configuration: {type: http}
`, auth, a.subnet, a.group, definition)
}

const managerRole = "  auth: {role_arn: 'arn:aws:iam::123456789012:role/manager', external_id: acme}\n"

// An agent next to the control plane starts a job's task with a role of the account. An agent in the account starts the
// same job. Both jobs end the same, whether they succeed or fail.
func TestTasksOfBothEndTheSame(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	a := newAccount(t)
	for _, tc := range []struct{ name, definition, state, message string }{
		{"a job that succeeds", "runner", "succeeded", ""},
		{"a job whose image cannot be pulled", "nothing", "failed", "CannotPullContainerError"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cloud := a.cloud(t)
			p := newPlane(t, file("aws-ecs", fmt.Sprintf("data: %q", t.TempDir())))
			p.make("near", a.runner(managerRole, tc.definition))
			p.make("far", a.runner("", tc.definition))
			p.install("far")
			p.same(tc.state, tc.message)
			assumed := 0
			for _, request := range cloud.Received() {
				if strings.Contains(request, "Action=AssumeRole") && strings.Contains(request, "ExternalId=acme") {
					assumed++
				}
			}
			if assumed != 1 {
				t.Errorf("AWS received %d requests to assume the role, want 1, from the agent next to the control plane", assumed)
			}
		})
	}
}
