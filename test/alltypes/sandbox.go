package alltypes

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

// The components of the sandbox: the one that creates it, and the one that deploys the runner there.
const (
	ground = "cluster"
	inner  = "agent"
)

// Sandbox is what the app of a story deploys first and destroys last: a cluster, and a runner in it that runs the jobs of all other
// components. The test's cluster exists already, so the module that creates the cluster has its facts as inputs.
type Sandbox struct {
	Kind      string // of the sandbox, such as aws-eks
	Runner    string // kind of the runner in it
	Namespace string // of the runner in it, and of its jobs; it exists
	Image     string // of that runner, by digest: a node of the cluster can pull it
	Port      int    // of that runner's status
	Registry  string // of the install, as a runner's configuration has it in one line: {type: oci, url: "https://…"}
	PlanRole  string // ARN of the AWS role of that runner's plans; "": they have none
	JobRole   string // ARN of the AWS role of its other jobs; "": they have none
}

// RunnerOf returns the name of the runner in the sandbox of an install.
func (*Sandbox) RunnerOf(install string) string { return install + "-" + inner }

// module is the module of the component that creates the sandbox.
//
//go:embed sandbox
var module embed.FS

// inputs, declaration and components are the parts of app.yaml that declare the sandbox.
const (
	inputs = `
  issuer: {}
  keys: {type: map}
  endpoint: {}
  ca: {}
  token: {sensitive: true}
  plan-role: {}
  job-role: {}
`
	declaration = `
sandbox:
  kind: %[1]s
  created_by: ` + ground + `
  runner:
    deployed_by: ` + inner + `
    configuration:
      runner_configuration: {type: %[7]s, job: {namespace: %[2]s}}
      state_storage_configuration: {type: http}
      registry: %[3]s
    trust:
      issuer: ${sandbox.outputs.issuer}
      keys: ${sandbox.outputs.keys}
      claims: {sub: "system:serviceaccount:%[2]s:` + inner + `-fairlead-runner"}
`
	components = `
  ` + ground + `:
    type: terraform
    source: ./` + ground + `
    vars: {issuer: "${inputs.issuer}", keys: "${inputs.keys}", endpoint: "${inputs.endpoint}", ca: "${inputs.ca}", plan_role: "${inputs.plan-role}", job_role: "${inputs.job-role}"}

  ` + inner + `:
    type: helm
    source: ./` + inner + `
    options: {namespace: "%[2]s", timeout: 2m, cluster_endpoint: "${sandbox.outputs.endpoint}", cluster_ca: "${sandbox.outputs.ca}"}
    env: {KUBE_TOKEN: "${inputs.token}"}
    vars:
      controlPlane: {url: "${install.control_plane}"}
      runner: {id: "${install.runner_id}", trustedKeys: ["${install.trusted_keys}"]}
      image: {repository: "%[4]s", digest: "%[5]s"}
      status: {port: %[6]d}
      installKey: {create: false}
      persistence: {existingClaim: data}
      podLabels: {release: "${sandbox.outputs.release}"}
      jobs: {clusterAdmin: true, keepFor: 1s}
      workloadIdentity: {aws: {jobRoleARN: "${sandbox.outputs.job_role}", jobRoleARNs: {readOnly: "${sandbox.outputs.plan_role}"}}}
`
)

// declare adds the sandbox to the app in a folder. chart is the folder of the runner's chart.
func (b *Sandbox) declare(dir, release, chart string) error {
	repository, digest, ok := strings.Cut(b.Image, "@")
	if !ok {
		return fmt.Errorf("the image %s has no digest", b.Image)
	}
	file := filepath.Join(dir, "app.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	app := string(text)
	for _, part := range []struct{ at, text string }{{"\ninputs:\n", inputs}, {"\ncomponents:\n", components}} {
		if strings.Count(app, part.at) != 1 {
			return fmt.Errorf("%s does not have %q once", file, part.at)
		}
		app = strings.Replace(app, part.at, part.at+strings.TrimPrefix(part.text, "\n"), 1)
	}
	app = strings.NewReplacer("%[1]s", b.Kind, "%[2]s", b.Namespace, "%[3]s", b.Registry, "%[4]s", repository, "%[5]s", digest, "%[6]d", fmt.Sprint(b.Port), "%[7]s", b.Runner).Replace(app + declaration)
	main, err := module.ReadFile("sandbox/" + ground + "/main.tf")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, []byte(app), 0o600), os.CopyFS(filepath.Join(dir, inner), os.DirFS(chart)), os.Mkdir(filepath.Join(dir, ground), 0o755),
		os.WriteFile(filepath.Join(dir, ground, "main.tf"), []byte(strings.ReplaceAll(string(main), Releases()[0], release)), 0o600))
}

// facts returns the inputs that describe the cluster.
func (s *Story) facts() map[string]any {
	s.T.Helper()
	get := func(path string, into any) {
		status, text, err := s.Cluster.Do(s.T.Context(), http.MethodGet, path, "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("it is answered with %d", status)
		}
		if err = errors.Join(err, json.Unmarshal(text, into)); err != nil {
			s.T.Fatalf("%s: %v", path, err)
		}
	}
	var about struct {
		Issuer string `json:"issuer"`
	}
	var keys map[string]any
	get("/.well-known/openid-configuration", &about)
	get("/openid/v1/jwks", &keys)
	return map[string]any{"issuer": about.Issuer, "keys": keys, "endpoint": s.Cluster.URL(), "ca": string(kube.Authority(s.T, s.Cluster.URL())), "token": s.Cluster.Token(), "plan-role": s.Sandbox.PlanRole, "job-role": s.Sandbox.JobRole}
}

// checkSandbox fails the test if a job of these deployments ran on the wrong runner, or at the wrong time: what creates the sandbox,
// and the runner in it, is applied before the control plane queues a job of any other component, and its destroy is queued after the
// end of their last job.
func (s *Story) checkSandbox(deployments []string) {
	s.T.Helper()
	in, err := s.API.GetInstall(s.T.Context(), s.Name)
	if err != nil {
		s.T.Fatal(err)
	}
	var jobs []wire.Job
	for _, d := range deployments {
		page, err := s.API.ListJobs(s.T.Context(), client.JobFilter{Deployment: d}, client.ListOptions{Limit: 200})
		if err != nil {
			s.T.Fatal(err)
		}
		jobs = append(jobs, page.Items...)
	}
	outside := []string{ground, inner}
	for _, j := range jobs {
		want := s.Sandbox.RunnerOf(s.Name)
		if slices.Contains(outside, j.Component) {
			want = in.Runner
		}
		if j.Runner != want {
			s.T.Errorf("the %s of component %s ran on runner %s, want %s", j.Operation, j.Component, j.Runner, want)
		}
	}
	for _, of := range outside {
		for _, own := range jobs {
			if own.Component != of || own.State != "succeeded" {
				continue
			}
			for _, j := range jobs {
				switch {
				case j.Component == ground, j.Component == of:
				case own.Operation == "apply" && j.CreatedAt.Before(*own.FinishedAt):
					s.T.Errorf("the %s of %s was queued at %s, before the apply of %s ended", j.Operation, j.Component, j.CreatedAt.Format(time.StampMilli), of)
				case own.Operation == "destroy" && j.FinishedAt.After(own.CreatedAt):
					s.T.Errorf("the %s of %s ended at %s, after the destroy of %s was queued", j.Operation, j.Component, j.FinishedAt.Format(time.StampMilli), of)
				}
			}
		}
	}
}
