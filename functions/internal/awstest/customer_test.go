package awstest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// customer is a customer's account in which the runner's stack was installed.
type customer struct {
	*account
	runner *exec.Cmd
	log    *bytes.Buffer
	done   chan struct{} // closed when the agent has ended
	task   *httptest.Server
}

// besideTheRunner are resources of the runner's stack that a process on this
// machine does without: its network, and where it would run.
var besideTheRunner = map[string]bool{
	"AWS::IAM::RolePolicy": true, "AWS::EC2::RouteTable": true, "AWS::ECS::Cluster": true, "AWS::EC2::Subnet": true, "AWS::EC2::VPC": true,
	"AWS::EC2::EIP": true, "AWS::EC2::VPCGatewayAttachment": true, "AWS::S3::BucketPolicy": true, "AWS::EC2::NatGateway": true, "AWS::EC2::InternetGateway": true,
	"AWS::EC2::Route": true, "AWS::EC2::VPCEndpoint": true, "AWS::EC2::SubnetRouteTableAssociation": true, "AWS::ECS::Service": true, "AWS::EC2::SecurityGroup": true,
	"AWS::ECS::TaskDefinition": true,
}

// installs has a customer install the stack of an install, by the parameters
// that the vendor was given, and starts its runner with the environment that the
// template gives it. stop ends the runner; call it before the test ends.
func (w *world) installs(install string) (c *customer, stop func()) {
	w.t.Helper()
	stack := ask[wire.Stack](w, "install", "stack", install)
	given := map[string]string{"AWS::StackId": "arn:aws:cloudformation:" + region + ":" + accountID + ":stack/" + stack.StackName + "/1"}
	for _, p := range stack.Parameters {
		given[p.Name] = p.Value
	}
	inner := &account{id: w.id + "-" + install, endpoints: w.endpoints,
		resolver: &resolver{t: w.t, tmpl: synthesised(w.t, runnerTemplate), made: map[string]made{}, given: given}}
	c = &customer{account: inner, log: &bytes.Buffer{}, done: make(chan struct{})}
	for name := range inner.tmpl.Parameters {
		if _, ok := given[name]; !ok && inner.tmpl.Parameters[name].Default == nil {
			w.t.Errorf("the vendor was not told the parameter %s", name)
		}
	}
	for id, res := range inner.tmpl.Resources {
		switch res.Type {
		case "AWS::IAM::Role":
			inner.made[id] = c.role(id, res.Properties)
		case "AWS::IAM::ManagedPolicy":
			inner.made[id] = made{ref: "arn:aws:iam::" + accountID + ":policy/" + id}
		case "AWS::S3::Bucket":
			inner.made[id] = inner.bucket(id, res.Properties)
		case "AWS::KMS::Key":
			inner.made[id] = inner.key(res.Properties, "")
		case "AWS::ECR::Repository":
			inner.made[id] = made{ref: id, attr: map[string]string{"RepositoryUri": accountID + ".dkr.ecr." + region + ".amazonaws.com/" + strings.ToLower(id)}}
		case "AWS::Logs::LogGroup":
			inner.made[id] = made{ref: id} // of the runner's own output
		default:
			if !besideTheRunner[res.Type] {
				w.t.Errorf("%s is a %s, which nothing here makes", id, res.Type)
			}
		}
	}
	c.start(w)
	return c, func() {
		_ = c.runner.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(20 * time.Second):
			_ = c.runner.Process.Kill()
			<-c.done
		}
		c.task.Close()
		if w.t.Failed() {
			w.t.Logf("the runner of %s said:\n%s", install, c.log)
		}
	}
}

// role has the name and path that the template gives it.
func (c *customer) role(id string, p map[string]any) made {
	name := c.text(p["RoleName"])
	if name == "" {
		name = id
	}
	return made{ref: name, attr: map[string]string{"Arn": "arn:aws:iam::" + accountID + ":role" + c.text(p["Path"]) + name}}
}

// start starts the runner as a task of the service: with the credentials of the
// task's role, and with the container's environment. What is added is what finds
// the servers here, a data folder, and the tool that is within the image.
func (c *customer) start(w *world) {
	w.t.Helper()
	task := c.tmpl.Resources[c.tmpl.ofType("AWS::ECS::TaskDefinition")[0]].Properties
	role := c.text(task["TaskRoleArn"])
	c.task = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		k := w.sts.AssumeRole("aws", accountID, role[strings.LastIndex(role, "/")+1:], "AROA"+strings.Repeat("R", 17), "0123456789abcdef")
		_ = json.NewEncoder(rw).Encode(map[string]any{"RoleArn": role, "AccessKeyId": k.AccessKeyID,
			"SecretAccessKey": k.SecretAccessKey, "Token": k.SessionToken, "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}))
	container := task["ContainerDefinitions"].([]any)[0].(map[string]any)
	var args []string
	for _, a := range container["Command"].([]any) {
		args = append(args, c.text(a))
	}
	c.runner = exec.Command(binary(w.t, "fairlead-runner"), append(args, "--data", w.t.TempDir())...)
	c.runner.Env = append([]string{"FAIRLEAD_TOFU=" + os.Getenv("FAIRLEAD_TOFU"), "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY", "AWS_REGION=" + region, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + c.task.URL + "/v2/credentials/x"}, w.environ...)
	for _, v := range container["Environment"].([]any) {
		pair := v.(map[string]any)
		if value := c.text(pair["Value"]); value != "" {
			c.runner.Env = append(c.runner.Env, c.text(pair["Name"])+"="+value)
		}
	}
	c.runner.Stdout, c.runner.Stderr = c.log, c.log
	w.ok("start the runner", c.runner.Start())
	go func() { _ = c.runner.Wait(); close(c.done) }()
}
