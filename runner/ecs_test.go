package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// tasksOf returns a simulated ECS that runs the runner's program, and the environment of an agent whose steps are its tasks.
func tasksOf(t *testing.T) (*ecstest.Cloud, []string) {
	t.Helper()
	// Tests that run at the same time share the server, and the agents list a cluster's tasks.
	id := strings.ToLower(rand.Text())[:10]
	const region, group = "eu-west-1", "/steps"
	family, runners := "runner-"+id, "runners-"+id
	endpoint := others.Endpoint(t)
	cfg := aws.Config{Region: region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("id", "key", "")}
	logs, api := cloudwatchlogs.NewFromConfig(cfg), ecs.NewFromConfig(cfg)
	if _, err := logs.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String(group)}); err != nil {
		if _, there := errors.AsType[*logtypes.ResourceAlreadyExistsException](err); !there {
			t.Fatal(err)
		}
	}
	if _, err := api.CreateCluster(t.Context(), &ecs.CreateClusterInput{ClusterName: &runners}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.RegisterTaskDefinition(t.Context(), &ecs.RegisterTaskDefinitionInput{Family: &family, NetworkMode: types.NetworkModeAwsvpc,
		RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512"),
		ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("step"), Image: aws.String("registry.example/runner:1"), Cpu: 256, Memory: aws.Int32(512)}}}); err != nil {
		t.Fatal(err)
	}
	cloud := ecstest.New(t, endpoint, program.Build(t, "runner"), family, group, logs)
	cloud.Disk, cloud.Environ = "/var/lib/fairlead-runner", []string{"PATH=" + os.Getenv("PATH")}
	return cloud, []string{"FAIRLEAD_TOFU=" + tool(t), "AWS_ENDPOINT_URL=" + cloud.URL(), "AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=key",
		file(fmt.Sprintf("{type: aws-ecs, job: {region: %s, cluster: %s, subnets: [%s], security_groups: [%s], task_definition: %s}}", region, runners,
			ecstest.Find(t, endpoint, region, "DescribeSubnets", "subnetId"), ecstest.Find(t, endpoint, region, "DescribeSecurityGroups", "groupId"), family))}
}

// An update of a customer's stack replaces the agent while an apply runs in a task of its own. On Fargate the next agent has an
// empty disk. It must neither start the job again nor report its death.
func TestReplacedAgentTouchesNoTask(t *testing.T) {
	t.Parallel()
	withECS := program.Build(t, "runner", "-tags=clusters")
	for name, sameDisk := range map[string]bool{"the next agent has the disk of the first": true, "the next agent has an empty disk, as on Fargate": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud, env := tasksOf(t)
			s := plane.New(t, plane.Options{})
			a := startProgram(t, s, withECS, "", env...)
			goOn := filepath.Join(t.TempDir(), "go-on")
			ref := s.Push(module(`echo working; while [ ! -e ` + goOn + ` ]; do sleep 0.05; done; echo was-replaced`))
			plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "http", ref))))
			job := s.Queue(applySpec("apply", "http", ref, plan))
			s.UntilLog(job, "working")
			a.kill()
			// An open poll of the killed agent could still take the next job.
			s.Until("no claim is open", func() bool { return s.Open(wire.ClaimJob) == 0 })
			data := a.Data
			if !sameDisk {
				data = ""
			}
			b := startProgram(t, s, withECS, data, env...)
			if check := s.UntilFinished(s.Queue(checkSpec())); check.Finish.Outcome != "succeeded" { // beside the apply
				t.Errorf("the next agent's first job ended as %+v", *check.Finish)
			}
			if sameDisk {
				s.Until("the next agent watches the step", func() bool { return len(s.LastBeat().Running) == 1 && s.LastBeat().Running[0] == job })
			}
			if err := os.WriteFile(goOn, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			j := succeeded(t, s.UntilFinished(job))
			if j.Epoch != 1 || j.Died != nil || j.Finishes != 1 || !hasLine(j.Log, "was-replaced") {
				t.Errorf("the job ended at epoch %d with %d reports and the death %+v, want one attempt and one report:\n%s", j.Epoch, j.Finishes, j.Died, j.Log)
			}
			if tasks := cloud.Roles()[job+"-1"]; len(tasks) != 1 {
				t.Errorf("the job had %d tasks, want 1", len(tasks))
			}
			s.Until("nothing left on disk", b.empty)
		})
	}
}
