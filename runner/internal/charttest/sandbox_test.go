package charttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
)

// sandboxApp creates a sandbox, deploys a runner into it with the chart, and has a chart, a module and a script there. The
// module of the sandbox has only outputs, because the test's cluster exists already.
const sandboxApp = `fairlead: v1
name: shop
inputs:
  issuer: {}
  keys: {type: map}
  namespace: {}
  port: {type: number}
  endpoint: {}
  ca: {}
  token: {sensitive: true}
sandbox:
  kind: kubernetes
  created_by: cluster
  runner:
    deployed_by: agent
    configuration:
      runner_configuration: {type: kubernetes, job: {namespace: "${inputs.namespace}"}}
      state_storage_configuration: {type: http}
    trust:
      issuer: ${sandbox.outputs.issuer}
      keys: ${sandbox.outputs.keys}
      claims: {sub: "system:serviceaccount:${inputs.namespace}:agent-fairlead-runner"}
components:
  cluster:
    type: terraform
    source: cluster
    vars: {issuer: "${inputs.issuer}", keys: "${inputs.keys}", endpoint: "${inputs.endpoint}", ca: "${inputs.ca}"}
  agent:
    type: helm
    source: chart
    options: {namespace: "${inputs.namespace}", cluster_endpoint: "${sandbox.outputs.endpoint}", cluster_ca: "${sandbox.outputs.ca}"}
    env: {KUBE_TOKEN: "${inputs.token}"}
    vars:
      controlPlane: {url: "${install.control_plane}"}
      runner: {id: "${install.runner_id}", trustedKeys: ["${install.trusted_keys}"]}
      image: {repository: registry.example/fairlead/runner, digest: "` + digest + `"}
      status: {port: "${inputs.port}"}
  hello:
    type: script
    source: hello
  names:
    type: terraform
    source: names
    vars: {issuer: "${sandbox.outputs.issuer}"}
  web:
    type: helm
    source: web
    options: {namespace: "${inputs.namespace}", cluster_endpoint: "${sandbox.outputs.endpoint}", cluster_ca: "${sandbox.outputs.ca}"}
    env: {KUBE_TOKEN: "${inputs.token}"}
    vars: {title: "${inputs.namespace} on ${sandbox.outputs.issuer}"}
`

// TestSandboxFromNothing deploys an app that begins without a cluster's runner: the runner of this machine creates the sandbox
// and deploys a second runner there, whose pods run all other jobs. A person approves three times. The teardown leaves nothing.
func TestSandboxFromNothing(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t)
	cfg, c := connect(t, kubeconfig)
	ns, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sandbox-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) })
	before := inventory(t, c, ns.Name)
	tools := tofu.Tools(t)
	tool := tools[slices.Sorted(maps.Keys(tools))[0]]
	plugins := filepath.Dir(program.Build(t, "runner/kubernetes"))
	kubelettest.Start(t, c, ns.Name, kubelettest.Options{Image: repository + "@" + digest, Program: program.Build(t, "runner", "-tags=clusters"), Cluster: cfg,
		Environ: []string{"PATH=" + os.Getenv("PATH"), "FAIRLEAD_TOFU=" + tool, "FAIRLEAD_PLUGINS=" + plugins}})

	w := newDev(t, "FAIRLEAD_TOFU="+tool, "FAIRLEAD_PLUGINS="+plugins)
	w.must("app", "apply", w.app(ns.Name))
	w.must("install", "create", "acme", "--app", "shop", "--input-file", w.inputs(c, cfg, ns.Name))

	w.must("install", "deploy", "acme", "--detach")
	approvals := 0
	d := w.until("the deployment has ended", func(d wire.Deployment) bool {
		if d.State == "awaiting-approval" {
			approvals++
			w.must("deployment", "approve", d.ID, "--detach")
		}
		return d.FinishedAt != nil
	})
	if d.State != "succeeded" || approvals != 3 {
		t.Fatalf("the deployment is %s after %d approvals, want 3: %+v", d.State, approvals, d.Components)
	}
	for component, runner := range map[string]string{"cluster": "local", "agent": "local", "hello": "acme-agent", "names": "acme-agent", "web": "acme-agent"} {
		for _, j := range w.jobsOf(d, component) {
			if j.Runner != runner {
				t.Errorf("the %s of component %s ran on runner %s, want %s", j.Operation, component, j.Runner, runner)
			}
		}
	}
	page, err := c.CoreV1().ConfigMaps(ns.Name).Get(t.Context(), "page", metav1.GetOptions{})
	if err != nil || page.Data["title"] != ns.Name+" on "+cfg.Host {
		t.Errorf("the chart in the sandbox has made %+v (%v)", page.Data, err)
	}
	if shown := w.must("install", "show", "acme"); !strings.Contains(shown, "kubernetes, created by cluster; runner acme-agent is in it") {
		t.Errorf("the install is shown as\n%s", shown)
	}

	w.must("install", "deploy", "acme", "--auto-approve")
	if d := w.newest(); d.State != "succeeded" || slices.ContainsFunc(d.Components, func(c wire.DeploymentComponent) bool { return c.PlanJob != "" }) {
		t.Errorf("an unchanged deployment is %s: %+v", d.State, d.Components)
	}

	w.must("install", "teardown", "acme", "--yes")
	if _, err := c.CoreV1().ConfigMaps(ns.Name).Get(t.Context(), "page", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the teardown the chart's object exists (%v)", err)
	}
	w.must("install", "forget", "acme")
	if runners := w.must("runner", "list"); strings.Contains(runners, "acme-agent") {
		t.Errorf("after the install was forgotten its runner exists:\n%s", runners)
	}
	var left []string
	e2e.Until(t, "the namespace is as before", func() bool {
		left = inventory(t, c, ns.Name)
		return slices.Equal(left, before)
	})
}

// dev is a `fairlead dev` with its CLI.
type dev struct {
	t        *testing.T
	fairlead string
	env      []string
}

func newDev(t *testing.T, env ...string) *dev {
	t.Helper()
	dir := t.TempDir()
	d := &dev{t: t, fairlead: program.Build(t, "cmd/fairlead", "-tags=clusters"),
		env: append(env, "PATH="+os.Getenv("PATH"), "HOME="+dir, "FAIRLEAD_CONFIG_DIR="+filepath.Join(dir, "config"))}
	ready := filepath.Join(dir, "ready.json")
	cmd := exec.Command(d.fairlead, "dev", "--quiet", "--data", filepath.Join(dir, "data"), "--storage", "http", "--listen", "127.0.0.1:0", "--ready-file", ready)
	cmd.Env = d.env
	p, err := e2e.Launch("fairlead dev", cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of fairlead dev:\n%s", p.Output())
		}
	})
	var at struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	e2e.Until(t, "fairlead dev is ready", func() bool {
		if p.Ended() {
			t.Fatalf("fairlead dev ended: %s", p.Output())
		}
		b, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(b, &at) == nil
	})
	d.env = append(d.env, "FAIRLEAD_URL="+at.URL, "FAIRLEAD_TOKEN_FILE="+at.TokenFile)
	return d
}

// must runs `fairlead args` and returns its standard output.
func (d *dev) must(args ...string) string {
	d.t.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(d.t.Context(), d.fairlead, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, &out, &errs
	if err := cmd.Run(); err != nil {
		d.t.Fatalf("fairlead %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// app writes the app's folder.
func (d *dev) app(namespace string) string {
	d.t.Helper()
	dir := d.t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "chart"), os.DirFS(chartFolder)); err != nil {
		d.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"app.yaml":                sandboxApp,
		"cluster/main.tf":         "variable \"issuer\" {}\nvariable \"keys\" {}\nvariable \"endpoint\" {}\nvariable \"ca\" {}\nresource \"terraform_data\" \"cluster\" {}\noutput \"issuer\" { value = var.issuer }\noutput \"keys\" { value = var.keys }\noutput \"endpoint\" { value = var.endpoint }\noutput \"ca\" { value = var.ca }\n",
		"names/main.tf":           "variable \"issuer\" {}\nresource \"terraform_data\" \"name\" {}\noutput \"title\" { value = \"shop on ${var.issuer}\" }\n",
		"hello/run":               "#!/bin/sh\necho hello\n",
		"web/Chart.yaml":          "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"web/templates/page.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata: {title: {{ .Values.title | quote }}}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	return dir
}

// inputs writes the inputs of the install: what a module of a real cluster would put out.
func (d *dev) inputs(c kubernetes.Interface, cfg *rest.Config, namespace string) string {
	d.t.Helper()
	get := func(path string, into any) {
		b, err := c.Discovery().RESTClient().Get().AbsPath(path).DoRaw(d.t.Context())
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			d.t.Fatalf("%s: %v", path, err)
		}
	}
	var about struct {
		Issuer string `json:"issuer"`
	}
	var keys map[string]any
	get("/.well-known/openid-configuration", &about)
	get("/openid/v1/jwks", &keys)
	b, err := json.Marshal(map[string]any{"issuer": about.Issuer, "keys": keys, "namespace": namespace, "port": freePort(d.t),
		"endpoint": cfg.Host, "ca": string(kube.Authority(d.t, cfg.Host)), "token": cfg.BearerToken})
	if err != nil {
		d.t.Fatal(err)
	}
	file := filepath.Join(d.t.TempDir(), "inputs.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return file
}

// newest returns the newest deployment.
func (d *dev) newest() wire.Deployment {
	d.t.Helper()
	var all []wire.Deployment
	if err := json.Unmarshal([]byte(d.must("deployment", "list", "--json", "--limit", "1")), &all); err != nil || len(all) == 0 {
		d.t.Fatalf("no deployment is listed: %v", err)
	}
	var one wire.Deployment
	if err := json.Unmarshal([]byte(d.must("deployment", "show", all[0].ID, "--json")), &one); err != nil {
		d.t.Fatal(err)
	}
	return one
}

// until waits until the newest deployment fulfils cond.
func (d *dev) until(what string, cond func(wire.Deployment) bool) (last wire.Deployment) {
	d.t.Helper()
	e2e.Until(d.t, what, func() bool {
		last = d.newest()
		return cond(last)
	})
	return last
}

// jobsOf returns the jobs of a component in the deployment.
func (d *dev) jobsOf(of wire.Deployment, component string) (jobs []wire.Job) {
	d.t.Helper()
	for _, c := range of.Components {
		if c.Name != component {
			continue
		}
		for _, id := range []string{c.PlanJob, c.Job} {
			var j wire.Job
			if err := json.Unmarshal([]byte(d.must("job", "show", id, "--json")), &j); err != nil {
				d.t.Fatal(fmt.Errorf("job %s of component %s: %w", id, component, err))
			}
			jobs = append(jobs, j)
		}
	}
	return jobs
}
