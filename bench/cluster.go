package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

// clusterObjects is the number of objects in the chart, and of objects that kubectl applies.
const clusterObjects = 10

// measureCluster compares deployments of a chart and of objects with helm and kubectl, on a real API server. It also counts the
// approvals that a person gives for a first deployment of examples/kubernetes.
func measureCluster(ctx context.Context, b *bench) (err error) {
	clients, err := clientPrograms().Build(b.notes)
	if err != nil {
		return err
	}
	if _, err := kube.Programs().Build(b.notes); err != nil {
		return err
	}
	var server kube.Server
	kubeconfig, err := server.Prepare()
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.Start(); err != nil {
		return err
	}
	api, err := kube.NewClient(kubeconfig)
	if err != nil {
		return err
	}
	p, err := startPlane(ctx, b, "cluster")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	env := []string{"KUBECONFIG=" + kubeconfig}
	if _, err := p.startWith(ctx, "local", agentOptions{tool: b.tool, env: append(env, "FAIRLEAD_PASS_ENV=KUBECONFIG")}); err != nil {
		return err
	}
	prepare := func(namespace string) error { return makeNamespace(ctx, api, namespace) }
	for _, v := range []versus{
		{figure: "helm", files: chartApp(), client: filepath.Join(clients, "helm"), env: env, prepare: prepare, args: helmArgs},
		{figure: "manifest", files: objectsApp(), client: filepath.Join(clients, "kubectl"), env: env, prepare: prepare, args: kubectlArgs},
	} {
		if err := v.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", v.figure, err)
		}
	}
	return countApprovals(ctx, p)
}

// makeNamespace creates a namespace. Neither side can preview objects in a namespace that is missing.
func makeNamespace(ctx context.Context, api *kube.Client, name string) error {
	status, answer, err := api.Do(ctx, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("the namespace %s is answered with %d: %s", name, status, answer)
	}
	return err
}

// chartApp returns the files of an app whose component is a chart.
func chartApp() map[string]string {
	var templates strings.Builder
	for i := range clusterObjects {
		fmt.Fprintf(&templates, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-%d\"}\ndata: {url: {{ .Values.url | quote }}}\n---\n", i)
	}
	return map[string]string{
		"app.yaml":               "fairlead: v1\nname: helm\ncomponents:\n  web: {type: helm, source: ./web, vars: {url: \"https://example.com/\"}}\n",
		"web/Chart.yaml":         "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"web/values.yaml":        "url: none\n",
		"web/templates/all.yaml": templates.String(),
	}
}

// helmArgs returns the arguments of helm for the chart in a folder.
func helmArgs(folder, namespace string) (preview, change []string) {
	change = []string{"upgrade", "web", filepath.Join(folder, "web"), "--install", "--namespace", namespace, "--set", "url=https://example.com/"}
	return append([]string{"upgrade", "--dry-run=server"}, change[1:]...), change
}

// objectsApp returns the files of an app whose component is a folder of objects.
func objectsApp() map[string]string {
	var objects strings.Builder
	for i := range clusterObjects {
		fmt.Fprintf(&objects, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web-%d}\ndata: {url: \"https://example.com/\"}\n---\n", i)
	}
	return map[string]string{
		"app.yaml":     "fairlead: v1\nname: manifest\ncomponents:\n  web: {type: manifest, source: ./web}\n",
		"web/all.yaml": objects.String(),
	}
}

// kubectlArgs returns the arguments of kubectl for the objects in a folder.
func kubectlArgs(folder, namespace string) (preview, change []string) {
	change = []string{"apply", "--server-side", "--namespace", namespace, "--filename", filepath.Join(folder, "web")}
	return append([]string{"apply", "--dry-run=server"}, change[1:]...), change
}

// countApprovals deploys examples/kubernetes to a new install and approves all plans each time that the deployment waits.
func countApprovals(ctx context.Context, p *plane) error {
	if err := p.publish(ctx, p.b.path("examples/kubernetes")); err != nil {
		return err
	}
	inputs := map[string]json.RawMessage{"password": json.RawMessage(`"hunter22"`), "replicas": json.RawMessage("0")} // the cluster has no nodes
	if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: "approved", App: "kubernetes", Inputs: inputs}); err != nil {
		return err
	}
	d, err := p.CreateDeployment(ctx, "approved", wire.CreateDeploymentRequest{Kind: "deploy"})
	approvals := 0
	for err == nil && !d.Done() {
		if d.State == "awaiting-approval" {
			approvals++
			d, err = p.ApproveDeployment(ctx, d.ID, wire.ApproveRequest{})
			continue
		}
		d, err = p.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
	}
	if err == nil && d.State != "succeeded" {
		err = fmt.Errorf("the deployment of examples/kubernetes %s: %s", d.State, d.Message)
	}
	p.b.set("kubernetes_approvals", float64(approvals))
	return err
}
