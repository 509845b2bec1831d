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
// contain. stop ends the runner; call it before the test ends.
func (w *world) startTask(r *resolver, definition string) (stop func()) {
	w.t.Helper()
	task := r.tmpl.Resources[definition].Properties
	role := r.text(task["TaskRoleArn"])
	credentials := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		k := w.sts.AssumeRole("aws", accountID, role[strings.LastIndex(role, "/")+1:], "AROA"+strings.Repeat("R", 17), "0123456789abcdef")
		_ = json.NewEncoder(rw).Encode(map[string]any{"RoleArn": role, "AccessKeyId": k.AccessKeyID,
			"SecretAccessKey": k.SecretAccessKey, "Token": k.SessionToken, "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}))
	container := task["ContainerDefinitions"].([]any)[0].(map[string]any)
	var args []string
	for _, a := range container["Command"].([]any) {
		args = append(args, r.text(a))
	}
	cmd, log, done := exec.Command(program.Build(w.t, "runner"), append(args, "--data", w.t.TempDir())...), &bytes.Buffer{}, make(chan struct{})
	cmd.Env = append([]string{"FAIRLEAD_TOFU=" + os.Getenv("FAIRLEAD_TOFU"), "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY", "AWS_REGION=" + region, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + credentials.URL + "/v2/credentials/x"}, w.environ...)
	for _, v := range container["Environment"].([]any) {
		pair := v.(map[string]any)
		if value := r.text(pair["Value"]); value != "" {
			cmd.Env = append(cmd.Env, r.text(pair["Name"])+"="+value)
		}
	}
	cmd.Stdout, cmd.Stderr = log, log
	w.ok("start the runner", cmd.Start())
	go func() { _ = cmd.Wait(); close(done) }()
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		credentials.Close()
		if w.t.Failed() {
			w.t.Logf("the output of the runner with the role %s:\n%s", role, log)
		}
	}
}
