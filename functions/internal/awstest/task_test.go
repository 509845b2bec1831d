package awstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/tools/program"
)

// taskResources lists the types of resources that a task on AWS needs, but a
// process on this machine does not need.
var taskResources = map[string]bool{
	"AWS::ECS::Cluster": true, "AWS::ECS::Service": true, "AWS::ECS::TaskDefinition": true,
	"AWS::EC2::VPC": true, "AWS::EC2::Subnet": true, "AWS::EC2::SubnetRouteTableAssociation": true, "AWS::EC2::RouteTable": true, "AWS::EC2::Route": true,
	"AWS::EC2::InternetGateway": true, "AWS::EC2::VPCGatewayAttachment": true, "AWS::EC2::NatGateway": true, "AWS::EC2::EIP": true,
	"AWS::EC2::VPCEndpoint": true, "AWS::EC2::SecurityGroup": true,
}

// startTask starts a runner as ECS starts the task definition: with the credentials
// of the task's role and the container's command and environment. It adds the
// addresses of the servers here, a data folder, and the tool that the image would
// contain. environ replaces variables of the template. stop ends the runner; call it before the test ends.
func (w *world) startTask(r *resolver, definition string, environ ...string) (stop func()) {
	w.t.Helper()
	image, args := "runner/direct", commandOf(r, definition) // without a command, the program of the image of direct launch
	if len(args) > 0 {
		image = "runner"
	}
	cmd := exec.Command(program.Build(w.t, image, "-tags=clusters"), append(args, "--data", w.t.TempDir())...)
	cmd.Env = append([]string{"FAIRLEAD_TOFU=" + os.Getenv("FAIRLEAD_TOFU"), "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY"}, w.environ...)
	return w.startContainer(r, definition, cmd, environ...)
}

// commandOf returns the command of a task's container, without the program.
func commandOf(r *resolver, definition string) (args []string) {
	command, _ := r.tmpl.Resources[definition].Properties["ContainerDefinitions"].([]any)[0].(map[string]any)["Command"].([]any)
	for _, a := range command {
		args = append(args, r.text(a))
	}
	return args
}

// startContainer starts the program of a task's container, which has the environment of its image. It adds that of the task
// definition, the credentials of the task's role, and environ.
func (w *world) startContainer(r *resolver, definition string, cmd *exec.Cmd, environ ...string) (stop func()) {
	w.t.Helper()
	task := r.tmpl.Resources[definition].Properties
	role := r.text(task["TaskRoleArn"])
	cmd.Env = append(cmd.Env, "AWS_REGION="+region, "AWS_EC2_METADATA_DISABLED=true")
	cmd.Env = append(cmd.Env, w.credentials(role)...)
	for _, v := range task["ContainerDefinitions"].([]any)[0].(map[string]any)["Environment"].([]any) {
		pair := v.(map[string]any)
		if value := r.text(pair["Value"]); value != "" {
			cmd.Env = append(cmd.Env, r.text(pair["Name"])+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, environ...)
	if w.tasks.CPU != nil {
		units, err := strconv.Atoi(r.text(task["Cpu"]))
		w.ok("limit the runner's CPU", errors.Join(err, w.tasks.CPU.Limit(cmd, units)))
	}
	return w.run(cmd, "the runner with the role "+role)
}

// run starts an agent. stop ends it; call it before the test ends.
func (w *world) run(cmd *exec.Cmd, name string) (stop func()) {
	w.t.Helper()
	log, done := &bytes.Buffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	w.ok("start "+name, cmd.Start())
	go func() { _ = cmd.Wait(); close(done) }()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		if w.t.Failed() {
			w.t.Logf("the output of %s:\n%s", name, log)
		}
	})
	w.t.Cleanup(stop) // a test that fails earlier shows the output too
	return stop
}

// credentials serves the credentials of a task's role as ECS does, and returns the variables by which a
// container finds them.
func (w *world) credentials(role string) []string {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		k, err := w.guard.Open("ecs-tasks.amazonaws.com", role, "0123456789abcdef")
		if err != nil {
			w.t.Error(err)
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"RoleArn": role, "AccessKeyId": k.AccessKeyID,
			"SecretAccessKey": k.SecretAccessKey, "Token": k.SessionToken, "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}))
	w.t.Cleanup(server.Close)
	return []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + server.URL + "/v2/credentials/x"}
}

// makeCloud makes the machines on which ECS runs the tasks of jobs.
func (w *world) makeCloud() *ecstest.Cloud {
	group := "/fairlead/tasks-" + w.id
	logs := cloudwatchlogs.NewFromConfig(w.account.config("CLOUDWATCH_LOGS"))
	_, err := logs.CreateLogGroup(w.t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &group})
	w.ok("create a log group for the output of tasks", err)
	c := ecstest.New(w.t, w.moto, program.Build(w.t, "runner", "-tags=clusters"), "", group, logs)
	c.Disk, c.Credentials = "/var/lib/fairlead-runner", w.credentials
	c.Environ = append([]string{"AWS_EC2_METADATA_DISABLED=true"}, w.environ...)
	return c
}

// makeStepTask makes the parts of the stack that the agent's requests to ECS name: the cluster, the
// network and the definitions of the tasks of jobs.
func (w *world) makeStepTask(c *account) {
	w.t.Helper()
	api := ecs.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(w.tasks.URL()), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")})
	name := c.resolver.text(c.tmpl.Resources["Cluster"].Properties["ClusterName"])
	cluster, err := api.CreateCluster(w.t.Context(), &ecs.CreateClusterInput{ClusterName: &name})
	w.ok("create the cluster", err)
	c.made["Cluster"] = made{ref: name, attr: map[string]string{"Arn": *cluster.Cluster.ClusterArn}}
	if res := c.tmpl.Resources["StepTask"]; res.Condition != "" && !c.holds(res.Condition) {
		return // jobs are processes
	}
	for _, id := range []string{"PublicSubnet1", "PublicSubnet2"} {
		c.made[id] = made{ref: ecstest.Find(w.t, w.moto, region, "DescribeSubnets", "subnetId")}
	}
	c.made["RunnerSecurityGroup"] = made{attr: map[string]string{"GroupId": ecstest.Find(w.t, w.moto, region, "DescribeSecurityGroups", "groupId")}}
	for id, res := range c.tmpl.Resources {
		if id != "StepTask" && !strings.HasPrefix(id, "ScriptTask") || res.Condition != "" && !c.holds(res.Condition) {
			continue
		}
		in := as[ecs.RegisterTaskDefinitionInput](c.resolver, res.Properties)
		// A container without a limit of its own may use the memory of its task. moto cannot run such a
		// container.
		memory, err := strconv.Atoi(*in.Memory)
		w.ok("read the memory of the task", err)
		for i := range in.ContainerDefinitions {
			in.ContainerDefinitions[i].Memory = aws.Int32(int32(memory / len(in.ContainerDefinitions)))
		}
		defined, err := api.RegisterTaskDefinition(w.t.Context(), &in)
		w.ok("register the definition "+id, err)
		c.made[id] = made{ref: *defined.TaskDefinition.TaskDefinitionArn}
	}
}
