// Package charttest_test installs the runner's chart with Helm's own packages, on a real API server with its controllers
// and admission. The pods run the real runner. Only the node is simulated: it runs pods as processes.
package charttest_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmkube "helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

var cluster kube.Server

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

const (
	chartFolder = "../../../infra/charts/fairlead-runner"
	digest      = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	repository  = "registry.example/fairlead/runner"
	release     = "acme"
	deployed    = "acme-fairlead-runner" // name of the chart's objects
	helmTimeout = 2 * time.Minute
)

// helm runs Helm's actions in one namespace.
type helm struct {
	t      *testing.T
	cfg    *action.Configuration
	ns     string
	values map[string]any
}

func newHelm(t *testing.T, kubeconfig, ns string, values map[string]any) *helm {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &ns
	h := &helm{t: t, cfg: action.NewConfiguration(), ns: ns, values: values}
	if err := h.cfg.Init(flags, ns, "secret"); err != nil {
		t.Fatal(err)
	}
	return h
}

// install does the same as helm install --wait.
func (h *helm) install() {
	h.t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		h.t.Fatal(err)
	}
	i := action.NewInstall(h.cfg)
	i.ReleaseName, i.Namespace, i.WaitStrategy, i.Timeout = release, h.ns, helmkube.StatusWatcherStrategy, helmTimeout
	if _, err := i.Run(c, h.values); err != nil {
		h.t.Fatalf("install: %v", err)
	}
}

// upgrade does the same as helm upgrade --wait.
func (h *helm) upgrade() {
	h.t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		h.t.Fatal(err)
	}
	u := action.NewUpgrade(h.cfg)
	u.Namespace, u.WaitStrategy, u.Timeout = h.ns, helmkube.StatusWatcherStrategy, helmTimeout
	if _, err := u.Run(release, c, h.values); err != nil {
		h.t.Fatalf("upgrade: %v", err)
	}
}

func (h *helm) uninstall() {
	h.t.Helper()
	u := action.NewUninstall(h.cfg)
	u.WaitStrategy, u.Timeout = helmkube.StatusWatcherStrategy, helmTimeout
	if _, err := u.Run(release); err != nil {
		h.t.Fatalf("uninstall: %v", err)
	}
}

func checkSpec() events.JobSpec {
	return events.JobSpec{Plugin: "check", Operation: "check", Timeout: 60, Grace: 5}
}

// connect returns the configuration of the cluster and a client of it. Both allow more requests than a controller's default.
func connect(t *testing.T, kubeconfig string) (*rest.Config, *kubernetes.Clientset) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 200, 400
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, c
}

// The chart installs and its agent runs jobs, which encrypt with the seed that the chart made. An upgrade keeps the runner's identity and
// the seed. An uninstall leaves no object but the seed, without which the secrets of the installs are lost. The
// namespace enforces the restricted pod security standard.
func TestChartInstallsUpgradesAndUninstalls(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t)
	cfg, c := connect(t, kubeconfig)
	ctx := t.Context()
	ns, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chart-",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
		c.RbacV1().ClusterRoleBindings().Delete(context.Background(), ns.Name+"-"+deployed+"-jobs", metav1.DeleteOptions{})
	})
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	if _, err := c.CoreV1().Secrets(ns.Name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "enrolment"},
		StringData: map[string]string{"token": s.EnrolmentToken()}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := inventory(t, c, ns.Name)
	tools := "registry.example.com/tools@sha256:" + strings.Repeat("a", 64)
	kubelettest.Start(t, c, ns.Name, kubelettest.Options{Image: repository + "@" + digest, Program: program.Build(t, "runner", "-tags=clusters"), Cluster: cfg,
		Others: map[string][]string{tools: {"MINE=of-the-image", "HTTP_PROXY=http://127.0.0.1:1", "FAIRLEAD_LAUNCH_TOKEN=planted"}}})

	h := newHelm(t, kubeconfig, ns.Name, map[string]any{
		"controlPlane": map[string]any{"url": s.URL()},
		"identity":     map[string]any{"type": "key", "key": map[string]any{"existingSecret": "enrolment"}},
		"image":        map[string]any{"repository": repository, "digest": digest},
		"persistence":  map[string]any{"existingClaim": "data"},
		"status":       map[string]any{"port": freePort(t)},
		"concurrency":  2,
		"jobs":         map[string]any{"labels": map[string]any{"team": "blue"}, "podTemplate": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": "x"}}}},
	})
	h.install()
	if b := s.LastBeat(); b.Capacity != 2 {
		t.Errorf("after the install the last heartbeat is %+v, want capacity 2", b)
	}

	seed := seedOf(t, c, ns.Name)
	keys, err := installkey.NewRing(seed, "ins_1")
	if err != nil {
		t.Fatalf("the chart made a seed that the runner refuses: %v", err)
	}
	pods, err := c.CoreV1().Pods(ns.Name).Watch(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=fairlead-runner"})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	job := s.Queue(checkSpec())
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" {
		t.Errorf("the job ended as %+v, want succeeded", *j.Finish)
	}
	p := podOf(t, pods, job)
	if p.Spec.ServiceAccountName != deployed+"-jobs" || p.Labels["team"] != "blue" || p.Annotations["note"] != "x" || p.Spec.Containers[0].Image != repository+"@"+digest {
		t.Errorf("the job's pod does not have the chart's settings: %+v", p)
	}
	if names := input(t, p).PassEnv; !slices.Contains(names, "AWS_WEB_IDENTITY_TOKEN_FILE") || !slices.Contains(names, "AZURE_FEDERATED_TOKEN_FILE") {
		t.Errorf("tools get the variables %v, want those of the pod's cloud identity", names)
	}
	s.Until("removal of the Kubernetes job", func() bool {
		jobs, err := c.BatchV1().Jobs(ns.Name).List(ctx, metav1.ListOptions{})
		return err == nil && len(jobs.Items) == 0
	})

	// Each operation runs as the account of its role. The script runs only in the apply and the destroy.
	of := map[string]string{"plan": "read-only", "apply": "deploy", "plan-destroy": "read-only", "destroy": "deprovision"}
	ref := s.Push(map[string]string{"run": "#!/bin/sh\nexit 0\n"})
	var plan *events.PlanRef
	for _, op := range []string{"plan", "apply", "plan-destroy", "destroy"} {
		sp := events.JobSpec{Plugin: "script", Operation: op, Install: "ins_1", InstallName: "acme", Component: "web", Timeout: 60, Grace: 5, Artifact: ref, Plan: plan}
		job := s.Queue(sp)
		j := s.UntilFinished(job)
		if j.Finish.Outcome != "succeeded" {
			t.Fatalf("the %s ended as %+v", op, *j.Finish)
		}
		if plan = nil; j.Finish.Plan != nil {
			plan = &events.PlanRef{Job: fairlead.JobID(job), Digest: j.Finish.Plan.Digest}
		}
		if j.Finish.Key != keys.Current().Public().String() {
			t.Errorf("the %s had the install key %q, want that of the chart's seed", op, j.Finish.Key)
		}
		p := podOf(t, pods, job)
		if p.Spec.ServiceAccountName != deployed+"-jobs-"+of[op] {
			t.Errorf("the %s ran as %s", op, p.Spec.ServiceAccountName)
		}
		if text, err := json.Marshal(p); err != nil || strings.Contains(string(text), seed) || strings.Contains(string(j.Log), seed) {
			t.Errorf("the pod or the log of the %s has the seed (%v)", op, err)
		}
	}

	// A script in an image of its own: the step in its pod is the runner's program, and only the tool gets the image's variables.
	sp := events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: "web", Timeout: 60, Grace: 5, Image: tools,
		Artifact: s.Push(map[string]string{"run": "#!/bin/sh\necho \"mine $MINE proxy $HTTP_PROXY\"\n"})}
	planned := s.UntilFinished(s.Queue(sp))
	if planned.Finish.Outcome != "succeeded" {
		t.Fatalf("the plan in an image ended as %+v", *planned.Finish)
	}
	sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
	job = s.Queue(sp)
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || !strings.Contains(string(j.Log), "mine of-the-image proxy http://127.0.0.1:1") {
		t.Errorf("the apply in an image ended as %+v with the log\n%s", *j.Finish, j.Log)
	}
	if p := podOf(t, pods, job); p.Spec.Containers[0].Image != tools || len(p.Spec.InitContainers) != 1 || p.Spec.InitContainers[0].Image != repository+"@"+digest {
		t.Errorf("the pod of the script is %+v", p.Spec)
	}

	// The agent itself sends its log, because its steps share no folder with it.
	if j := s.UntilFinished(s.Queue(events.JobSpec{Operation: "agent-log", Timeout: 60, Grace: 5})); !strings.Contains(string(j.Log), "msg=ready") {
		t.Errorf("the job agent-log has the log %q and ended as %+v", j.Log, *j.Finish)
	}

	// An upgrade replaces the agent. Its key is on the volume, so the new agent does not need the single-use token.
	if err := c.CoreV1().Secrets(ns.Name).Delete(ctx, "enrolment", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Secrets(ns.Name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "enrolment"},
		StringData: map[string]string{"token": "fle_spent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.values["concurrency"] = 3
	h.values["jobs"] = map[string]any{"clusterAdmin": true, "keepFor": "5s"}
	h.upgrade()
	if seedOf(t, c, ns.Name) != seed {
		t.Error("the upgrade replaced the seed")
	}
	if b := s.LastBeat(); b.Capacity != 3 {
		t.Errorf("after the upgrade the last heartbeat is %+v, want capacity 3", b)
	}
	binding, err := c.RbacV1().ClusterRoleBindings().Get(ctx, ns.Name+"-"+deployed+"-jobs", metav1.GetOptions{})
	if err != nil || binding.RoleRef.Name != "cluster-admin" || len(binding.Subjects) != 3 ||
		slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == deployed+"-jobs-read-only" || s.Name == deployed }) {
		t.Errorf("cluster-admin has the binding %+v (%v), want one for the accounts of applies and destroys", binding, err)
	}
	if file, err := c.CoreV1().ConfigMaps(ns.Name).Get(ctx, deployed, metav1.GetOptions{}); err != nil || strings.Contains(file.Data["agent.yaml"], "pod_template") {
		t.Errorf("the agent's file still has a pod template (%v)", err)
	}
	if j := s.UntilFinished(s.Queue(checkSpec())); j.Finish.Outcome != "succeeded" {
		t.Errorf("after the upgrade the job ended as %+v, want succeeded", *j.Finish)
	}

	// Helm removes the agent's rights too, so the agent may not be able to remove the job. In this case, the
	// cluster removes the job when the duration keepFor has passed since its end.
	h.uninstall()
	before = append(before, "secret/"+deployed+"-install-key")
	slices.Sort(before)
	var left []string
	defer func() {
		if !slices.Equal(left, before) {
			t.Errorf("after the uninstall the namespace holds %q, want %q", left, before)
		}
	}()
	s.Until("removal of all objects of the release", func() bool {
		left = inventory(t, c, ns.Name)
		slices.Sort(left)
		return slices.Equal(left, before)
	})
	if seedOf(t, c, ns.Name) != seed {
		t.Error("the uninstall replaced the seed")
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Get(ctx, ns.Name+"-"+deployed+"-jobs", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the binding of cluster-admin still exists (%v)", err)
	}
	if b := s.LastBeat(); !b.Ending {
		t.Errorf("the last heartbeat is %+v, want one that reports the agent's end", b)
	}
}

// seedOf returns the seed that the chart made.
func seedOf(t *testing.T, c kubernetes.Interface, ns string) string {
	t.Helper()
	secret, err := c.CoreV1().Secrets(ns).Get(t.Context(), deployed+"-install-key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["seed"])
}

// podOf returns the pod of a job's first attempt, from a watch that has seen it.
func podOf(t *testing.T, pods watch.Interface, job string) *corev1.Pod {
	t.Helper()
	for {
		select {
		case e := <-pods.ResultChan():
			if p, ok := e.Object.(*corev1.Pod); ok && strings.HasPrefix(p.Labels["fairlead.dev/attempt"], job) {
				return p
			}
		case <-time.After(time.Minute):
			t.Fatalf("no pod of the job %s within a minute", job)
		}
	}
}

// input returns the step's input in a job's pod.
func input(t *testing.T, p *corev1.Pod) (in attempt.Input) {
	t.Helper()
	for _, v := range p.Spec.Containers[0].Env {
		if v.Name == executor.InputVariable {
			if err := json.Unmarshal([]byte(strings.ReplaceAll(v.Value, "$$(", "$(")), &in); err != nil {
				t.Error(err)
			}
		}
	}
	return in
}

// inventory lists the objects in a namespace, of all kinds that a release, its agent and its jobs make.
func inventory(t *testing.T, c kubernetes.Interface, ns string) []string {
	t.Helper()
	var all []string
	add := func(kind string, err error, n int, name func(int) string) {
		if err != nil {
			t.Error(err)
		}
		for i := range n {
			all = append(all, kind+"/"+name(i))
		}
	}
	ctx, o := t.Context(), metav1.ListOptions{}
	deployments, err := c.AppsV1().Deployments(ns).List(ctx, o)
	add("deployment", err, len(deployments.Items), func(i int) string { return deployments.Items[i].Name })
	replicas, err := c.AppsV1().ReplicaSets(ns).List(ctx, o)
	add("replicaset", err, len(replicas.Items), func(i int) string { return replicas.Items[i].Name })
	pods, err := c.CoreV1().Pods(ns).List(ctx, o)
	add("pod", err, len(pods.Items), func(i int) string { return pods.Items[i].Name })
	jobs, err := c.BatchV1().Jobs(ns).List(ctx, o)
	add("job", err, len(jobs.Items), func(i int) string { return jobs.Items[i].Name })
	secrets, err := c.CoreV1().Secrets(ns).List(ctx, o)
	add("secret", err, len(secrets.Items), func(i int) string { return secrets.Items[i].Name })
	maps, err := c.CoreV1().ConfigMaps(ns).List(ctx, o)
	add("configmap", err, len(maps.Items), func(i int) string { return maps.Items[i].Name })
	roles, err := c.RbacV1().Roles(ns).List(ctx, o)
	add("role", err, len(roles.Items), func(i int) string { return roles.Items[i].Name })
	bindings, err := c.RbacV1().RoleBindings(ns).List(ctx, o)
	add("rolebinding", err, len(bindings.Items), func(i int) string { return bindings.Items[i].Name })
	accounts, err := c.CoreV1().ServiceAccounts(ns).List(ctx, o)
	add("serviceaccount", err, len(accounts.Items), func(i int) string {
		if accounts.Items[i].Name == "default" {
			return "" // the cluster may make this account at any time
		}
		return accounts.Items[i].Name
	})
	all = slices.DeleteFunc(all, func(s string) bool { return s == "serviceaccount/" })
	policies, err := c.NetworkingV1().NetworkPolicies(ns).List(ctx, o)
	add("networkpolicy", err, len(policies.Items), func(i int) string { return policies.Items[i].Name })
	return all
}

// freePort returns a free loopback port.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := testserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
