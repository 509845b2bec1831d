package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// scriptTask returns the containers of the customer's stack for a script in an image.
func scriptTask(t *testing.T) (all []types.ContainerDefinition) {
	t.Helper()
	b, err := os.ReadFile("../infra/runnerstack/testdata/runner.template.json")
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources struct {
			ScriptTask1 struct {
				Properties struct {
					ContainerDefinitions []struct {
						Name, User          string
						EntryPoint, Command []string
						MountPoints         []types.MountPoint
						DependsOn           []types.ContainerDependency
						Essential           bool

						ReadonlyRootFilesystem bool
					}
				}
			}
		}
	}
	if err := json.Unmarshal(b, &template); err != nil {
		t.Fatal(err)
	}
	for _, c := range template.Resources.ScriptTask1.Properties.ContainerDefinitions {
		all = append(all, types.ContainerDefinition{Name: &c.Name, User: &c.User, EntryPoint: c.EntryPoint, Command: c.Command, MountPoints: c.MountPoints, DependsOn: c.DependsOn,
			Essential: &c.Essential, ReadonlyRootFilesystem: &c.ReadonlyRootFilesystem, Memory: aws.Int32(256)})
	}
	return all
}

// The two containers of the customer's stack for a script, in a real engine: the runner's image as a release has it, and a vendor's image whose
// settings attack the step. The step runs without root and with a read-only root, and can write to the volumes of its task.
func TestScriptsTaskCanWriteToItsVolumes(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	t.Parallel()
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	runner, _, _ := runnerImages(t, host)
	tools := toolImage(t, host)
	const own = "registry.example.com/acme/tools@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

	cloud, env := tasksOf(t)
	cloud.Disk, cloud.Environ = "", nil
	containers := scriptTask(t)
	in := &ecs.RegisterTaskDefinitionInput{Family: aws.String("script-" + strings.ToLower(t.Name())), NetworkMode: types.NetworkModeAwsvpc,
		RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512")}
	of := map[string]types.ContainerDefinition{}
	for i := range containers {
		c := &containers[i]
		if c.Image = aws.String(runner); len(c.EntryPoint) > 0 {
			c.Image = aws.String(own)
		}
		of[*c.Name] = *c
	}
	in.ContainerDefinitions = containers
	for _, m := range of["copy"].MountPoints {
		in.Volumes = append(in.Volumes, types.Volume{Name: m.SourceVolume})
	}
	api := ecs.NewFromConfig(aws.Config{Region: "eu-west-1", BaseEndpoint: aws.String(cloud.URL()), Credentials: credentials.NewStaticCredentialsProvider("id", "key", "")})
	defined, err := api.RegisterTaskDefinition(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	env[len(env)-1] = strings.Replace(env[len(env)-1], "task_definition:", "image_definitions: {'"+own+"': '"+*defined.TaskDefinition.TaskDefinitionArn+"'}, pass_env: [AWS_REGION, AWS_DEFAULT_REGION], task_definition:", 1)

	docker, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { docker.Close() })
	cloud.Command = func(c ecstest.Container) *exec.Cmd {
		d := of[c.Name]
		spec := containerSpec{Engine: host, Config: container.Config{Image: runner, User: *d.User, Cmd: c.Args, Env: c.Env},
			Host: container.HostConfig{NetworkMode: "host", ReadonlyRootfs: *d.ReadonlyRootFilesystem}}
		if c.Image == own {
			spec.Config.Image = tools
		}
		if c.Program != "" {
			spec.Config.Entrypoint = []string{c.Program}
		}
		for _, m := range c.Mounts {
			volume := fmt.Sprintf("task-%x-%s", sha256.Sum256([]byte(c.Task)), m.SourceVolume)
			bind := volume + ":" + m.ContainerPath
			if m.ReadOnly {
				bind += ":ro"
			}
			spec.Host.Binds = append(spec.Host.Binds, bind)
			t.Cleanup(func() {
				_, _ = docker.VolumeRemove(context.Background(), volume, client.VolumeRemoveOptions{Force: true}) // another container removed it
			})
		}
		return spec.command(t)
	}
	s := plane.New(t, plane.Options{})
	startProgram(t, s, program.Build(t, "runner", "-tags=clusters"), "", env...)
	spec := scriptIn(s, own)
	planned := succeeded(t, s.UntilFinished(s.Queue(spec)))
	spec.Operation, spec.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
	text := string(succeeded(t, s.UntilFinished(s.Queue(spec))).Log)
	for _, want := range []string{"arguments: ./run apply", "variable: MINE=of-the-image", "variable: AWS_ENDPOINT_URL=", "writes /: false", "writes /.fairlead: false", "writes /tmp: true", "writes .: true", "reads the variables of process 1: false"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	for _, not := range []string{"planted", "variable: FAIRLEAD_STEP_", "variable: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "variable: HOME=/vendor/home"} {
		if strings.Contains(text, not) {
			t.Errorf("the log has %q", not)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
