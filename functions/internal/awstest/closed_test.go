package awstest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// The vendor exports a closed app, and the customer loads the file into the repository fairlead/mirror of its ECR. From then on the
// vendor's registry is down and the registry of providers has never answered. The install is deployed through both stacks, with the
// roles of the operations: images come from the mirror, are copied into the install's repositories, and objects and a chart name the
// copies; the provider of a module comes from the mirror too. The app declares no action of ECR. An image that only the values of the
// install name fails the plan, and the reason is image-not-in-bundle.
func TestClosedAppDeploysThroughTheStacks(t *testing.T) {
	shortrun.OneDayIn(t, 7, 3)
	needTofu(t)
	var server kube.Server
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	vendor, archive := imagetest.Start(t), tofu.NewMirror(t, true).Files[0]
	providers := tofu.NewRegistry(t, archive)
	providers.SetDown(true)
	a := deploy(t, releasedTemplate(t, released()))
	w := connect(t, a, map[string]http.Handler{"api.ecr." + region + ".amazonaws.com": a.gates["ECR"].handler}).operated()
	defer w.close()
	plugins := "FAIRLEAD_PLUGINS=" + program.Copies(t, "runner/kubernetes", "runner/images")
	w.environ = append(w.environ, plugins)
	web := vendor.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	api := vendor.Push(t, "vendor/api:2", "linux/amd64")
	side := vendor.Push(t, "vendor/side:1", "linux/amd64")
	dir := filepath.Join(t.TempDir(), "shop")
	w.writeClosedApp(dir, vendor.Host, providers.Hash)
	file := filepath.Join(t.TempDir(), "shop.tar")
	w.cli("app", "lock", dir)
	w.cli("app", "apply", dir)
	w.cli("app", "bundle", "shop", "--providers", filepath.Join(filepath.Dir(archive), "../../.."), "--platform", runtime.GOOS+"/"+runtime.GOARCH, "--out", file)
	vendor.Proxy.SetDown(true)

	// The customer makes the repository and loads the file.
	w.environ = append(w.environ, "ECR_LOGIN="+w.customersLogin(mirrorOf))
	w.cli("app", "load", file, "--mirror", "https://"+registryHost+"/fairlead", "--mirror-login", "ECR_LOGIN")
	image := []string{plugins, "FAIRLEAD_TF_CLI_CONFIG_FILE=" + providers.Config, "KUBECONFIG=" + kubeconfig, "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY,KUBECONFIG"}
	w.tasks.Environ = append(w.tasks.Environ, image...)
	m := w.measured("shop", "closed-aws", nil, image...)
	defer m.stop()
	deploy := func() (wire.Deployment, []wire.Job) {
		d, err := m.CreateDeployment(t.Context(), m.name, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
		w.ok("deploy", err)
		d = m.untilDone(t.Context(), d)
		return d, w.jobs(d.ID)
	}
	d, jobs := deploy()
	if d.State != "succeeded" {
		for _, j := range jobs {
			t.Logf("%s of %s: %s %s\n%s", j.Operation, j.Component, j.Reason, j.Message, w.cli("job", "logs", j.ID))
		}
		t.Fatalf("the deployment is %s: %s", d.State, d.Message)
	}
	in, err := m.GetInstall(t.Context(), m.name)
	w.ok("get the install", err)
	copies := "fairlead/" + in.ID + "/"
	for repository, digest := range map[string]string{copies + "bundle": web, copies + "api": api} {
		if !w.registry.hasImage(repository, digest) {
			t.Errorf("the repository %s has no %s", repository, digest)
		}
	}
	cluster, err := kube.NewClient(kubeconfig)
	w.ok("make a client of the cluster", err)
	object := func(name string) string {
		status, text, err := cluster.Do(t.Context(), http.MethodGet, "/apis/batch/v1/namespaces/closed-aws/cronjobs/"+name, "")
		if err != nil || status != http.StatusOK {
			t.Fatalf("CronJob/%s: %d %v", name, status, err)
		}
		return string(text)
	}
	for name, want := range map[string][]string{
		"pods":    {registryHost + "/" + copies + "bundle@" + web, registryHost + "/" + copies + "api@" + api},
		"metrics": {registryHost + "/" + copies + "bundle@" + side},
	} {
		for _, reference := range want {
			if got := object(name); !strings.Contains(got, `"image":"`+reference+`"`) {
				t.Errorf("CronJob/%s lacks the image %s:\n%s", name, reference, got)
			}
		}
	}
	if providers.Downloads() > 0 {
		t.Errorf("the registry of providers had %d downloads", providers.Downloads())
	}
	for _, role := range []string{"ReadOnlyRole", "ProvisionRole", "DeployRole"} {
		if w.guard.Uses(m.customer.attribute(role, "Arn"), "ecr:BatchGetImage") == 0 {
			t.Errorf("the %s read nothing from the registry", role)
		}
	}

	before := object("metrics")
	w.cli("install", "update", "closed-aws", "--input", "image="+vendor.Host+"/vendor/other:1")
	d, jobs = deploy()
	refused := jobs[len(jobs)-1]
	if d.State != "failed" || refused.Operation != "plan" || refused.Component != "metrics" || refused.Reason != string(fairlead.ReasonImageNotInBundle) ||
		!strings.Contains(refused.Message, vendor.Host+"/vendor/other:1") || !strings.Contains(refused.Message, "CronJob/metrics") {
		t.Errorf("with an image outside of the bundle the deployment is %s with the jobs %+v", d.State, jobs)
	}
	if object("metrics") != before {
		t.Error("a refused plan changed the CronJob/metrics")
	}
}

// customersLogin creates a repository of ECR as a person of the customer's account, and returns that person's login to the registry.
func (w *world) customersLogin(repository string) string {
	w.t.Helper()
	person := "arn:aws:iam::" + accountID + ":role/customers-operator"
	w.guard.AddRole(iamtest.Role{ARN: person, Policies: []iamtest.Policy{{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "ecr:*", "Resource": "*"}}}}})
	c, err := w.guard.Give(person, "operator")
	w.ok("take the role of a person of the customer", err)
	api := ecr.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(w.gates["ECR"].url), Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)})
	_, err = api.CreateRepository(w.t.Context(), &ecr.CreateRepositoryInput{RepositoryName: &repository})
	w.ok("create the repository", err)
	out, err := api.GetAuthorizationToken(w.t.Context(), &ecr.GetAuthorizationTokenInput{})
	w.ok("log in to the registry", err)
	login, err := base64.StdEncoding.DecodeString(*out.AuthorizationData[0].AuthorizationToken)
	w.ok("read the login", err)
	return string(login)
}

// writeClosedApp writes a closed app with a module, an image, objects and a chart. Its images are in the registry host, and the hash is
// that of the provider's archive.
func (w *world) writeClosedApp(dir, host, hash string) {
	w.t.Helper()
	job := func(name, containers string) string {
		return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: " + name + "}\nspec:\n  suspend: true\n  schedule: 0 3 * * *\n" +
			"  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [" + containers + "]}}}}\n"
	}
	for name, text := range map[string]string{
		"app.yaml": `fairlead: v1
name: shop
bundle: {}
aws: {actions: ['s3:GetBucketLocation']}
inputs:
  image: {default: '` + host + `/vendor/side:1'}
components:
  locked: {type: terraform, source: ./locked}
  api: {type: image, source: ./api}
  base:
    type: manifest
    source: ./base
    vars: {api: '${components.api.outputs.reference}'}
  metrics:
    type: helm
    source: ./metrics
    depends_on: [base, locked]
    vars: {image: '${inputs.image}'}
`,
		"locked/main.tf":             "terraform {\n  required_providers {\n    time = { source = \"hashicorp/time\" }\n  }\n}\nresource \"time_static\" \"now\" {}\n",
		"locked/.terraform.lock.hcl": fmt.Sprintf("provider \"registry.opentofu.org/hashicorp/time\" {\n  version = \"0.14.2\"\n  hashes  = [%q]\n}\n", hash),
		"api/image.yaml":             "image: " + host + "/vendor/api:2\n",
		"base/pods.yaml":             job("pods", "{name: web, image: '"+host+"/vendor/web:1'}, {name: api, image: '${vars.api}'}"),
		"metrics/Chart.yaml":         "apiVersion: v2\nname: metrics\nversion: 1.0.0\n",
		"metrics/templates/job.yaml": job("metrics", "{name: main, image: '{{ .Values.image }}'}"),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		w.ok("write "+name, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
	}
}
