package awstest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
)

// runnerOf is the image of the runner that the stack has published.
var runnerOf = registryHost + "/fairlead-test/runner@" + released()["RunnerDigest"]

// A vendor switches on direct launch. It deploys an app of OpenTofu modules into a customer's
// Kubernetes cluster, and into a customer's ECS cluster. Nothing is installed there, and IAM decides
// on each request. The task of direct launch is then replaced by one with an empty disk, which goes on.
func TestDirectLaunchDeploysWithoutARunner(t *testing.T) {
	skipIfShort(t)
	w := deployDirect(t)
	defer w.close()
	stop := w.startTask(w.resolver, "DirectAgentsTask")
	w.cli("app", "apply", "examples/shop")
	for name, file := range map[string]string{"pods": w.clusterOfPods(), "tasks": w.clusterOfTasks()("acme")} {
		out, err := w.command(t.Context(), "runner", "create", name, "--file", file).CombinedOutput()
		w.ok("create the runner "+name, err)
		if strings.Contains(string(out), "so its jobs wait") {
			t.Errorf("the control plane warns of a runner that direct launch serves:\n%s", out)
		}
		w.cli("install", "create", name, "--app", "shop", "--runner", name, "--input-file", "examples/shop/demo.inputs.yaml")
		w.checkOwn(name, w.deployInstall(name), "terraform_data")
	}
	if n := w.guard.Uses(jobsRole, "ecs:RunTask"); n == 0 {
		t.Error("direct launch started no task as the customer's role")
	}
	stop()
	stop = w.startTask(w.resolver, "DirectAgentsTask")
	defer stop()
	for _, name := range []string{"pods", "tasks"} {
		w.cli("runner", "check", name, "--timeout", "2m")
	}
}

// deployDirect deploys the control plane with direct launch.
func deployDirect(t *testing.T) *world {
	t.Helper()
	parameters := released()
	parameters["DirectLaunch"] = "sha256:" + strings.Repeat("2", 64)
	w := deployWith(t, parameters)
	// The image has OpenTofu on its path.
	folder := t.TempDir()
	w.ok("make the image's folder of programs", os.Symlink(os.Getenv("FAIRLEAD_TOFU"), filepath.Join(folder, "tofu")))
	w.tasks.Environ = append(w.tasks.Environ, "PATH="+folder+":"+os.Getenv("PATH"))
	return w
}

// serveInvocation serves Invoke of Lambda's API.
func (a *account) serveInvocation(w http.ResponseWriter, r *http.Request) {
	_, name, _ := strings.Cut(r.URL.Path, ":function:fairlead-test-")
	name = strings.TrimSuffix(strings.TrimSuffix(name, "/invocations"), ":live")
	event, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	answer, err := a.invoke(r.Context(), name, json.RawMessage(event))
	if err != nil {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		answer, _ = json.Marshal(map[string]string{"errorMessage": err.Error()})
	}
	_, _ = w.Write(answer)
}

func (w *world) writeRunner(text string) string {
	file := filepath.Join(w.t.TempDir(), "runner.yaml")
	w.ok("write the runner's file", os.WriteFile(file, []byte(text), 0o600))
	return file
}

// namespace is a namespace of a real API server with a node that runs its pods, and a service account
// for agents.
type namespace struct {
	name    string
	cluster *rest.Config
	token   string // of the service account
}

// makeNamespace makes a namespace. Its pods get the environment.
func (w *world) makeNamespace(environ []string) namespace {
	t, ctx := w.t, w.t.Context()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(t))
	w.ok("read the kubeconfig", err)
	admin, err := kubernetes.NewForConfig(cfg)
	w.ok("make a client of the cluster", err)
	ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}, metav1.CreateOptions{})
	w.ok("make a namespace", err)
	t.Cleanup(func() { _ = admin.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) })
	for _, name := range []string{"agent", "jobs"} {
		_, err := admin.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.ok("make the service account "+name, err)
	}
	// The rules of docs/reference/executors.md.
	_, err = admin.RbacV1().Roles(ns.Name).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "get", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{})
	w.ok("make the agent's role", err)
	_, err = admin.RbacV1().RoleBindings(ns.Name).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "agent", Namespace: ns.Name}}}, metav1.CreateOptions{})
	w.ok("bind the agent's role", err)
	issued, err := admin.CoreV1().ServiceAccounts(ns.Name).CreateToken(ctx, "agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.ok("make a token", err)
	kubelettest.Start(t, admin, ns.Name, kubelettest.Options{Image: runnerOf, Program: program.Build(t, "runner", "-tags=clusters"), Environ: environ, Cluster: cfg})
	return namespace{ns.Name, cfg, issued.Status.Token}
}

// clusterOfPods makes a namespace, and returns the file of a runner whose jobs direct launch starts there.
func (w *world) clusterOfPods() string {
	n := w.makeNamespace(w.tasks.Environ)
	return w.writeRunner(fmt.Sprintf(`runner_configuration:
  type: kubernetes
  cluster: {server: %q, certificate_authority_data: %s, auth: {service_account_token: %s}}
  job: {namespace: %s, service_account: jobs}
state_storage_configuration: {type: http}
`, n.cluster.Host, base64.StdEncoding.EncodeToString(kube.Authority(w.t, n.cluster.Host)), n.token, n.name))
}

// jobsRole is the role that the customer made for direct launch.
const jobsRole = "arn:aws:iam::" + accountID + ":role/fairlead-direct-jobs"

// clusterOfTasks makes an ECS cluster with a task definition for jobs, and a role that only direct
// launch can assume, with the external id acme. The returned function writes the file of a runner
// whose jobs run there, with an external id or, if it is "", without one.
func (w *world) clusterOfTasks() (file func(externalID string) string) {
	api := awsecs.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(w.tasks.URL()), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")})
	made, err := api.CreateCluster(w.t.Context(), &awsecs.CreateClusterInput{ClusterName: aws.String("jobs")})
	w.ok("make a cluster", err)
	defined, err := api.RegisterTaskDefinition(w.t.Context(), &awsecs.RegisterTaskDefinitionInput{Family: aws.String("jobs"), NetworkMode: types.NetworkModeAwsvpc,
		RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512"),
		ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("step"), Image: &runnerOf, Cpu: 256, Memory: aws.Int32(512)}}})
	w.ok("register the task definition", err)
	family := strings.TrimSuffix(*defined.TaskDefinition.TaskDefinitionArn, ":1")
	allow := func(actions, resource any, condition map[string]any) map[string]any {
		s := map[string]any{"Effect": "Allow", "Action": actions, "Resource": resource}
		if condition != nil {
			s["Condition"] = condition
		}
		return s
	}
	document := func(statements ...any) iamtest.Policy {
		return iamtest.Policy{"Version": "2012-10-17", "Statement": statements}
	}
	inCluster := map[string]any{"ArnEquals": map[string]any{"ecs:cluster": *made.Cluster.ClusterArn}}
	// The policies of docs/vendor/clusters.md.
	w.guard.AddRole(iamtest.Role{ARN: jobsRole,
		Trust: document(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": map[string]any{"AWS": w.attribute("DirectAgentsRole", "Arn")},
			"Condition": map[string]any{"StringEquals": map[string]any{"sts:ExternalId": "acme"}}}),
		Policies: []iamtest.Policy{document(
			allow("ecs:RunTask", family+":*", inCluster), allow([]any{"ecs:StopTask", "ecs:DescribeTasks"}, "*", inCluster), allow([]any{"ecs:ListTasks", "ecs:DescribeTaskDefinition"}, "*", nil), allow("ecs:TagResource", "*", nil))}})
	subnet, group := ecstest.Find(w.t, w.moto, region, "DescribeSubnets", "subnetId"), ecstest.Find(w.t, w.moto, region, "DescribeSecurityGroups", "groupId")
	return func(externalID string) string {
		auth := fmt.Sprintf("role_arn: %q", jobsRole)
		if externalID != "" {
			auth += fmt.Sprintf(", external_id: %q", externalID)
		}
		return w.writeRunner(fmt.Sprintf(`runner_configuration:
  type: aws-ecs
  auth: {%s}
  job:
    region: %s
    cluster: jobs
    subnets: [%s]
    security_groups: [%s]
    task_definition: %s
state_storage_configuration: {type: http}
`, auth, region, subnet, group, *defined.TaskDefinition.TaskDefinitionArn))
	}
}

// The customer's role demands the external id acme. STS refuses a runner whose file has another external id, and one whose file
// has none. No task starts. The runner and its check name the role, the external id and the fix. With the customer's external id
// in its file, the same runner starts a task.
func TestAnotherExternalIDIsRefused(t *testing.T) {
	skipIfShort(t)
	w := deployDirect(t)
	defer w.close()
	stop := w.startTask(w.resolver, "DirectAgentsTask")
	defer stop()
	w.refused.attack()
	file := w.clusterOfTasks()
	runners := []struct{ name, id, want string }{
		{"another", "globex", "with the external id globex: its trust policy must name the control plane's AWS identity, and must not require another one (sts:ExternalId)"},
		{"none", "", "without an external id: its trust policy must name the control plane's AWS identity, and must not require one (sts:ExternalId)"},
	}
	// check runs all checks at once, and returns their output and errors by the runners' names.
	check := func() (text map[string]string, failed map[string]error) {
		var mu sync.Mutex
		var all sync.WaitGroup
		text, failed = map[string]string{}, map[string]error{}
		for _, r := range runners {
			all.Go(func() {
				out, err := w.command(t.Context(), "runner", "check", r.name, "--timeout", "2m").CombinedOutput()
				mu.Lock()
				defer mu.Unlock()
				text[r.name], failed[r.name] = string(out), err
			})
		}
		all.Wait()
		return text, failed
	}
	for _, r := range runners {
		w.cli("runner", "create", r.name, "--file", file(r.id))
	}
	text, failed := check()
	jobs := ask[[]wire.Job](w, "job", "list")
	if len(jobs) != len(runners) {
		t.Errorf("there are the jobs %+v, want one for each check", jobs)
	}
	for _, j := range jobs {
		if j.State != "failed" || !slices.ContainsFunc(j.Deaths, func(d wire.JobDeath) bool { return d.Reason == "step-misconfigured" }) {
			t.Errorf("the check of %s is %s after the deaths %+v, want failed as step-misconfigured", j.Runner, j.State, j.Deaths)
		}
	}
	for _, r := range runners {
		want := "the role " + jobsRole + " cannot be assumed " + r.want
		if failed[r.name] == nil || !strings.Contains(text[r.name], want) {
			t.Errorf("the check of the runner %s: %v, want a failure with %q:\n%s", r.name, failed[r.name], want, text[r.name])
		}
		w.eventually("the runner "+r.name+" shows the refusal", func() bool { return strings.Contains(string(w.cli("runner", "show", r.name)), want) })
	}
	for _, d := range w.refused.list() {
		if d.Action != "sts:AssumeRole" || d.Resource != jobsRole {
			t.Errorf("IAM refuses more than the role: %v", d)
		}
	}
	if sessions, tasks := w.sessionsOf(jobsRole), w.tasks.Roles(); len(sessions) > 0 || len(tasks) > 0 || w.guard.Uses(jobsRole, "ecs:RunTask") > 0 {
		t.Errorf("the customer's role was assumed by %q, and the tasks %v started, want none", sessions, tasks)
	}
	for _, r := range runners {
		w.cli("runner", "update", r.name, "--set", "runner_configuration.auth.external_id=acme")
	}
	if text, failed = check(); failed["another"] != nil || failed["none"] != nil {
		t.Errorf("the checks of the corrected runners: %v\n%s", failed, text)
	}
	if len(w.sessionsOf(jobsRole)) == 0 || w.guard.Uses(jobsRole, "ecs:RunTask") == 0 {
		t.Error("the corrected runners started no task as the customer's role")
	}
}

// The function gives no configuration of an installed runner, and enrols no agent of it. Who may
// invoke the function is decided by IAM: TestWhoMayDoWhat has the attacks.
func TestOnlyDirectLaunchGetsConfigurations(t *testing.T) {
	skipIfShort(t)
	w := deployDirect(t)
	defer w.close()
	w.cli("runner", "create", "installed")
	w.cli("runner", "create", "direct", "--file", w.clusterOfTasks()("acme"))
	id := ask[wire.Runner](w, "runner", "show", "installed").ID
	for name, request := range map[string]map[string]any{"configuration": {"configuration": id}, "enrolment": {"enrolment": id}} {
		if answer, err := w.invoke(t.Context(), "direct", request); err == nil || !strings.Contains(err.Error(), "not served by an agent beside") {
			t.Errorf("the function gives the %s of an installed runner: %s, %v", name, answer, err)
		}
	}
	answer, err := w.invoke(t.Context(), "direct", map[string]any{"runners": true})
	var list struct{ Runners map[string]string }
	w.ok("read the list", json.Unmarshal(answer, &list))
	if names := slices.Collect(maps.Values(list.Runners)); err != nil || !slices.Equal(names, []string{"direct"}) {
		t.Errorf("the function lists %q, %v; want the direct runner alone", names, err)
	}
}
