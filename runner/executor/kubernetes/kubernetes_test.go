package kubernetes_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/executortest"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

var cluster kube.Server

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

// image is the only image that the nodes of the tests can pull.
const image = "registry.example/fairlead/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// site is a namespace of the cluster with a runner's service accounts and role.
type site struct {
	admin      client.Interface
	namespace  string
	kubeconfig string // of the runner's own service account
}

// newSite creates a namespace in which a runner has only the permissions of the
// chart.
func newSite(t *testing.T) site { return newSiteWith(t, rules(t)) }

func newSiteWith(t *testing.T, rules []rbacv1.PolicyRule) site {
	t.Helper()
	path := cluster.Kubeconfig(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 200, 400
	admin, err := client.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "runner-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := site{admin: admin, namespace: ns.Name, kubeconfig: t.TempDir() + "/kubeconfig"}
	for _, name := range []string{"agent", "jobs"} {
		if _, err := admin.CoreV1().ServiceAccounts(s.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RbacV1().Roles(s.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(s.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "agent", Namespace: s.namespace}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRights(t, admin, "system:serviceaccount:"+s.namespace+":agent", s.namespace, rules)
	expire := int64(3600)
	issued, err := admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, "agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &expire}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, InsecureSkipTLSVerify: true}
	api.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: issued.Status.Token}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "agent"}
	api.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*api, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.CoreV1().Namespaces().Delete(context.Background(), s.namespace, metav1.DeleteOptions{}) })
	return s
}

// awaitRights waits until the API server grants the last of the rules: it learns of a binding a moment after its creation.
func awaitRights(t *testing.T, admin client.Interface, user, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	last := rules[len(rules)-1]
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: last.APIGroups[0], Resource: last.Resources[0], Verb: last.Verbs[0]}}}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed, err
	})
	if err != nil {
		t.Fatalf("the API server does not grant the rights of %s: %v", user, err)
	}
}

// rules returns the rules that the chart grants an agent.
func rules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	b, err := os.ReadFile("../../../infra/charts/testdata/default.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		var role rbacv1.Role
		if yaml.Unmarshal([]byte(doc), &role) == nil && role.Kind == "Role" {
			return role.Rules
		}
	}
	t.Fatal("the chart has no Role")
	return nil
}

func (s site) options() kubernetes.Options {
	return kubernetes.Options{Runner: "run_1", Job: runnerspec.KubernetesJob{Kubeconfig: s.kubeconfig, Namespace: s.namespace, ServiceAccount: "jobs",
		Image: image, MemoryRequest: 32 << 20, MemoryLimit: 64 << 20, CPURequest: 100, PassEnv: []string{},
		JobCommon: runnerspec.JobCommon{StartTimeout: runnerspec.Duration(time.Minute), StopGrace: runnerspec.Duration(30 * time.Second)}}}
}

func open(t *testing.T, o kubernetes.Options) executor.Executor {
	t.Helper()
	e, err := kubernetes.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestExecutor(t *testing.T) {
	program := executortest.Program(t)
	s := newSite(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	kubelettest.Start(t, s.admin, s.namespace, kubelettest.Options{Image: image, Program: program, Cluster: cfg,
		Others: map[string][]string{ownImage: {executortest.ImageSetting + "=x"}}})
	executortest.Run(t, executortest.Subject{
		New: func(t *testing.T, _ string, via func(http.RoundTripper) http.RoundTripper) executor.Executor {
			o := s.options()
			o.Via = via
			return open(t, o)
		},
		Remote: true, KeepsExit: true, Memory: 64,
		NoImage: func(t *testing.T, _ string) executor.Executor {
			o := s.options()
			o.Job.Image = "registry.example/missing/image:1"
			return open(t, o)
		},
		OwnImage: func(*testing.T) (string, string) { return ownImage, "" },
		Described: func(t *testing.T, _ executor.Executor, id string) string {
			o := metav1.ListOptions{LabelSelector: kubernetes.LabelAttempt + "=" + id}
			jobs, err := s.admin.BatchV1().Jobs(s.namespace).List(t.Context(), o)
			if err != nil || len(jobs.Items) != 1 {
				t.Fatalf("%d jobs, %v", len(jobs.Items), err)
			}
			pods, err := s.admin.CoreV1().Pods(s.namespace).List(t.Context(), o)
			if err != nil || len(pods.Items) != 1 {
				t.Fatalf("%d pods, %v", len(pods.Items), err)
			}
			b, err := json.Marshal([]any{jobs, pods})
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		},
	})
	left, err := s.admin.CoreV1().Secrets(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d Secrets are left (%v)", len(left.Items), err)
	}
}

// start starts a step in a namespace in which no pod ever runs.
func start(t *testing.T, o kubernetes.Options) (executor.Executor, executor.Handle) {
	t.Helper()
	e := open(t, o)
	id := "job_waits-1"
	h, err := e.Start(t.Context(), executor.Step{ID: id, Args: []string{"step"}, Secrets: []string{"TOKEN=hush"}, Input: []byte(`{"v":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	return e, h
}

// Each step runs as the account of its role. A step without a role, and one whose role has no account, runs as the account of all jobs.
func TestEachRoleHasItsAccount(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.Job.ServiceAccounts = runnerspec.RoleAccounts{ReadOnly: "plans", Deploy: "applies", Deprovision: "destroys"}
	e := open(t, o)
	for role, account := range map[component.Role]string{component.ReadOnly: "plans", component.Deploy: "applies", component.Deprovision: "destroys", component.Provision: "jobs", "": "jobs"} {
		id := "job_" + cmp.Or(strings.ReplaceAll(string(role), "-", ""), "none") + "-1"
		if _, err := e.Start(t.Context(), executor.Step{ID: id, Args: []string{"step"}, Role: role}); err != nil {
			t.Fatal(err)
		}
		jobs, err := s.admin.BatchV1().Jobs(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: kubernetes.LabelAttempt + "=" + id})
		if err != nil || len(jobs.Items) != 1 || jobs.Items[0].Spec.Template.Spec.ServiceAccountName != account {
			t.Errorf("the step of role %q has the Jobs %+v (%v), want one with the account %s", role, jobs.Items, err, account)
		}
	}
}

// until waits until the condition is true, at most a minute.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this did not happen within a minute: %s", what)
		}
	}
}

// late is a transport to the API server that blocks the first watch and all later
// requests. If fails is set, the first watch fails, and all later requests block.
type late struct {
	next    http.RoundTripper
	fails   bool
	held    atomic.Bool
	blocked chan struct{} // closed when a request blocks
	once    sync.Once
	let     chan struct{} // closed: requests continue
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" && !l.held.Swap(true) && l.fails {
		return nil, errors.New("cut")
	}
	if l.held.Load() {
		l.once.Do(func() { close(l.blocked) })
		<-l.let
	}
	return l.next.RoundTrip(r)
}

// The cluster deletes an interrupted pod as soon as it has ended. An agent whose
// requests are late must still report how the step ended, not that it vanished.
func TestLateAgentSeesHowAStepEnded(t *testing.T) {
	for name, fails := range map[string]bool{"its watch is late": false, "its watch is cut and its next list is late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			transport := &late{fails: fails, blocked: make(chan struct{}), let: make(chan struct{})}
			o := s.options()
			o.Via = func(next http.RoundTripper) http.RoundTripper {
				transport.next = next
				return transport
			}
			_, h := start(t, o)
			pods := s.admin.CoreV1().Pods(s.namespace)
			var pod *corev1.Pod
			until(t, "a pod exists", func() bool {
				list, err := pods.List(t.Context(), metav1.ListOptions{})
				if err == nil && len(list.Items) > 0 {
					pod = &list.Items[0]
				}
				return pod != nil
			})
			ended := make(chan executor.Exit, 1)
			go func() {
				x, err := h.Wait(t.Context())
				if err != nil {
					t.Error(err)
				}
				ended <- x
			}()
			<-transport.blocked
			if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))}); err != nil {
				t.Fatal(err)
			}
			status := func(phase corev1.PodPhase, is corev1.ContainerState) {
				t.Helper()
				b, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: kubernetes.Container, State: is}}}})
				if err == nil {
					_, err = pods.Patch(t.Context(), pod.Name, types.MergePatchType, b, metav1.PatchOptions{}, "status")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			status(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
			status(corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7}})
			until(t, "the pod is deleted and the Job has failed", func() bool {
				list, err := pods.List(t.Context(), metav1.ListOptions{})
				jobs, jerr := s.admin.BatchV1().Jobs(s.namespace).List(t.Context(), metav1.ListOptions{})
				return err == nil && jerr == nil && len(list.Items) == 0 && len(jobs.Items) == 1 && jobs.Items[0].Status.Failed == 1
			})
			close(transport.let)
			if x := <-ended; x.Code == nil || *x.Code != 7 {
				t.Errorf("ended as %+v", x)
			}
		})
	}
}

// If a pod does not start in time, the driver reports the cluster's own message
// and removes the Job.
func TestPodThatDoesNotStartIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, site, *kubernetes.Options)
		want   string
	}{
		"no node accepts it":                 {func(*testing.T, site, *kubernetes.Options) {}, "did not start within 2s"},
		"its service account does not exist": {func(_ *testing.T, _ site, o *kubernetes.Options) { o.Job.ServiceAccount = "missing" }, `serviceaccount "missing" not found`},
		"a quota is exhausted": {func(t *testing.T, s site, _ *kubernetes.Options) {
			q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
			if _, err := s.admin.CoreV1().ResourceQuotas(s.namespace).Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "it is pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			o := s.options()
			o.Job.StartTimeout = runnerspec.Duration(2 * time.Second)
			tc.change(t, s, &o)
			e, h := start(t, o)
			if o.Job.ServiceAccount == "missing" {
				// Without a pod, no process can get the interrupt, so Interrupt must fail.
				if err := h.Interrupt(); err == nil || !strings.Contains(err.Error(), "no pod yet") {
					t.Errorf("interrupted: %v", err)
				}
			}
			x, err := h.Wait(t.Context())
			if err != nil || x.Cause != fairlead.CauseLaunchFailed || !strings.Contains(x.Message, tc.want) {
				t.Errorf("ended as %+v (%v), want %q", x, err, tc.want)
			}
			if _, err := e.Attach(t.Context(), h.ID()); !errors.Is(err, executor.ErrGone) {
				t.Errorf("the Job still exists: %v", err)
			}
		})
	}
}

// The API server accepts the pod with its overlay under the strictest pod security
// standard, and the pod has all settings.
func TestAPIServerAcceptsThePod(t *testing.T) {
	s := newSite(t)
	ns, err := s.admin.CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	if _, err := s.admin.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := s.options()
	o.Job.NodeSelector, o.Job.PullSecrets = map[string]string{"disk": "ssd"}, []string{"regcred"}
	o.Job.Labels = map[string]string{"team": "blue", kubernetes.LabelRunner: "theirs"}
	overlay := `
metadata: {annotations: {note: x}}
spec:
  priorityClassName: ""
  tolerations: [{key: runners, operator: Exists}]
  initContainers:
  - {name: sidecar, image: registry.example/proxy:1, restartPolicy: Always, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
  containers:
  - {name: step, env: [{name: EXTRA, value: "1"}], volumeMounts: [{name: cache, mountPath: /cache}]}
  volumes: [{name: cache, emptyDir: {}}]
`
	if err := yaml.Unmarshal([]byte(overlay), &o.Job.PodTemplate); err != nil {
		t.Fatal(err)
	}
	start(t, o)
	pods, err := s.admin.CoreV1().Pods(s.namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	p := (<-pods.ResultChan()).Object.(*corev1.Pod)
	c := p.Spec.Containers[0]
	if len(p.Spec.Containers) != 1 || len(p.Spec.InitContainers) != 1 || len(p.Spec.Tolerations) == 0 || p.Annotations["note"] != "x" ||
		p.Spec.NodeSelector["disk"] != "ssd" || p.Labels["team"] != "blue" || p.Labels[kubernetes.LabelRunner] != "run_1" || p.Spec.ImagePullSecrets[0].Name != "regcred" {
		t.Errorf("the pod is %+v", p)
	}
	if c.Image != image || len(c.VolumeMounts) < 3 || c.Resources.Limits.Memory().Value() != 64<<20 || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("the container is %+v", c)
	}
	job, err := s.admin.BatchV1().Jobs(s.namespace).Get(t.Context(), "fairlead-job-waits-1", metav1.GetOptions{})
	if err != nil || *job.Spec.BackoffLimit != 0 || *job.Spec.TTLSecondsAfterFinished != 3600 {
		t.Errorf("the job is %+v (%v)", job.Spec, err)
	}
	secret, err := s.admin.CoreV1().Secrets(s.namespace).Get(t.Context(), job.Name, metav1.GetOptions{})
	if err != nil || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != job.UID {
		t.Errorf("the Job does not own the Secret: %+v (%v)", secret.OwnerReferences, err)
	}
}

// nowhere returns a kubeconfig of a cluster that does not exist.
func nowhere(t *testing.T) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{clusters: [{name: c, cluster: {server: "https://cluster.example"}}], contexts: [{name: x, context: {cluster: c}}], current-context: x}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// Holds refuses an input that is larger than a variable can be on Linux. Otherwise
// the container would fail to start with "argument list too long".
func TestTooLargeInputIsRefused(t *testing.T) {
	e, err := kubernetes.New(kubernetes.Options{Job: runnerspec.KubernetesJob{Kubeconfig: nowhere(t), Namespace: "n", ServiceAccount: "jobs", Image: image}})
	if err != nil {
		t.Fatal(err)
	}
	for size, refused := range map[int]bool{100 << 10: false, 128 << 10: true} {
		if err := e.Place().Holds(executor.Step{Input: make([]byte, size)}); (err != nil) != refused {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	kubeconfig := nowhere(t)
	for name, tc := range map[string]struct {
		change  func(*runnerspec.KubernetesJob)
		overlay string
		want    string
	}{
		"no namespace":                      {change: func(c *runnerspec.KubernetesJob) { c.Namespace = "" }, want: "runner_configuration.job.namespace"},
		"no cluster":                        {change: func(c *runnerspec.KubernetesJob) { c.Kubeconfig = "" }, want: "runner_configuration.job.kubeconfig"},
		"a missing kubeconfig":              {change: func(c *runnerspec.KubernetesJob) { c.Kubeconfig += "x" }, want: "runner_configuration.job.kubeconfig"},
		"an overlay with another container": {overlay: "spec: {containers: [{name: other, image: x}]}", want: "container, named step"},
		"an overlay with a misspelt field":  {overlay: "spec: {tolerationz: []}", want: "tolerationz"},
		"an overlay with a command":         {overlay: "spec: {containers: [{name: step, command: [sh]}]}", want: "command of step"},
		"an overlay with a service account": {overlay: "spec: {serviceAccountName: admin}", want: "serviceAccountName"},
		"an overlay with a restart policy":  {overlay: "spec: {restartPolicy: OnFailure}", want: "restartPolicy"},
		"an overlay with a reserved name":   {overlay: "spec: {containers: [{name: step, env: [{name: FAIRLEAD_URL, value: x}]}]}", want: "FAIRLEAD_URL"},
		"an overlay with a reserved label":  {overlay: `metadata: {labels: {fairlead.dev/attempt: x}}`, want: "reserved"},
		"an overlay that removes the step":  {overlay: "spec: {containers: [{name: step, $patch: delete}]}", want: "patch"},
	} {
		t.Run(name, func(t *testing.T) {
			o := kubernetes.Options{Job: runnerspec.KubernetesJob{Kubeconfig: kubeconfig, Namespace: "n", ServiceAccount: "jobs", Image: image}}
			if tc.change != nil {
				tc.change(&o.Job)
			}
			if tc.overlay != "" {
				if err := yaml.Unmarshal([]byte(tc.overlay), &o.Job.PodTemplate); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := kubernetes.New(o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that contains %q", err, tc.want)
			}
		})
	}
}
