package launchconfig_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/docker"
	"github.com/fairlead/fairlead/runner/executor/ecs"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

// launchable returns the settings that a minimal configuration of the kind needs in addition, so that a step can start.
func launchable(k runnerspec.Kind) []string {
	switch {
	case k == runnerspec.Local:
		return nil
	case k == runnerspec.AWSECS:
		return []string{"runner_configuration.job.image=r.example/least:1", "runner_configuration.job.log_group=/least"}
	case k == runnerspec.Docker:
		return []string{"runner_configuration.job.image=r.example/least:1"}
	}
	return []string{"runner_configuration.job.image=r.example/least:1", "runner_configuration.job.namespace=least", "runner_configuration.job.service_account=least"}
}

// unsent lists the fields that an executor reads and that do not change the requests that start a step. The value names
// what the field changes.
var unsent = map[string]string{
	"job.image_definitions": "the task definition of a step in an image of its own",
	"job.kubeconfig":        "the address of the requests",
	"job.start_timeout":     "the time that a start may take",
}

// recorder simulates a platform that accepts and records every request.
type recorder struct{ sent []string }

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	var value any
	if json.Unmarshal(body, &value) == nil {
		body, _ = json.Marshal(value) // sorts the keys of maps
	}
	target := req.Header.Get("X-Amz-Target")
	r.sent = append(r.sent, fmt.Sprintf("%s %s %s %s\n%s", req.Method, req.URL, target, req.Header.Get("X-Registry-Auth"), body))
	status, answer := http.StatusOK, "{}"
	switch _, operation, _ := strings.Cut(target, "."); {
	case operation == "DescribeTaskDefinition":
		status, answer = http.StatusBadRequest, `{"__type": "ClientException", "message": "it does not exist"}`
	case operation == "RegisterTaskDefinition":
		answer = `{"taskDefinition": {"taskDefinitionArn": "made"}}`
	case operation == "RunTask":
		answer = `{"tasks": [{"taskArn": "task"}]}`
	case strings.HasPrefix(req.URL.Path, "/api") && req.Method == http.MethodPost:
		status, answer = http.StatusCreated, string(body)
	case strings.Contains(req.URL.Path, "/images/") && req.Method == http.MethodGet:
		status, answer = http.StatusNotFound, `{"message": "no such image"}`
	case strings.HasSuffix(req.URL.Path, "/images/create"):
		answer = ""
	case strings.HasSuffix(req.URL.Path, "/containers/create"):
		status, answer = http.StatusCreated, `{"Id": "c"}`
	}
	contentType := "application/json"
	if target != "" {
		contentType = req.Header.Get("Content-Type")
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader([]byte(answer))), Request: req}, nil
}

// launched starts a step with the setup's executor. It returns the executor's requests, the step's place and the error as
// one text. steps is the folder of the steps' folders.
func launched(t *testing.T, s launchconfig.Setup, steps string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(steps, "job_1-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	through := func(http.RoundTripper) http.RoundTripper { return r }
	var e executor.Executor
	roles := []component.Role{""} // of the steps
	var err error
	switch c := s.Runner.(type) {
	case *runnerspec.DockerRunner:
		e, err = docker.New(docker.Options{DockerRunner: *c, Steps: steps, Runner: "run_1", Via: through})
	case *runnerspec.ECSRunner:
		e, err = ecs.New(ecs.Options{Job: c.Job, Steps: steps, Runner: "run_1",
			AWS: aws.Config{Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""), HTTPClient: &http.Client{Transport: r}}})
	default:
		roles = append(roles, component.ReadOnly, component.Deploy, component.Provision, component.Deprovision)
		e, err = kubernetes.New(kubernetes.Options{Job: *runnerspec.KubernetesJobOf(s.Runner), Runner: "run_1", Cluster: &rest.Config{Host: "https://k8s.example"}, Via: through})
	}
	if err != nil {
		t.Fatal(err)
	}
	place := e.Place()
	var errs []error
	for _, role := range roles {
		_, err = e.Start(t.Context(), executor.Step{ID: "job_1-1", Args: []string{"step"}, Env: []string{"A=a"}, Secrets: []string{"S=s"}, Input: []byte("{}"), Role: role})
		errs = append(errs, err)
	}
	return fmt.Sprint(strings.Join(r.sent, "\n"), place.Data, place.PassEnv, errs)
}
