package direct_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
	"github.com/fairlead/fairlead/tools/testserver"
)

var cluster kube.Server

const image = "registry.example/fairlead/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// pods is a namespace of a real API server, with a service account and a user that may start jobs in it.
type pods struct {
	cfg        *rest.Config // the administrator's
	admin      *client.Clientset
	ns         string
	token      string // of the service account
	authority  []byte // CA certificate of the API server, in PEM
	kubeconfig string // path of the service account's
}

// user may start jobs too. It is not a service account.
const user = "the-manager"

func newPods(t *testing.T) *pods {
	t.Helper()
	path := cluster.Kubeconfig(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "direct-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) })
	for _, name := range []string{"agent", "jobs"} {
		if _, err := admin.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The rules of docs/reference/executors.md.
	if _, err := admin.RbacV1().Roles(ns.Name).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "get", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(ns.Name).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "agent", Namespace: ns.Name}, {Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issued, err := admin.CoreV1().ServiceAccounts(ns.Name).CreateToken(ctx, "agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := issued.Status.Token
	authority := kube.Authority(t, cfg.Host)
	// The installed agent uses the same service account, through a kubeconfig.
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: authority}
	api.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: token}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "agent"}
	api.CurrentContext = "x"
	kubeconfig := t.TempDir() + "/kubeconfig"
	if err := clientcmd.WriteToFile(*api, kubeconfig); err != nil {
		t.Fatal(err)
	}
	kubelettest.Start(t, admin, ns.Name, kubelettest.Options{Image: image, Program: program.Build(t, "runner")})
	return &pods{cfg: cfg, admin: admin, ns: ns.Name, token: token, authority: authority, kubeconfig: kubeconfig}
}

// kill deletes the pod of an attempt with a grace period of a second, as an eviction under pressure does. The step has no
// time to report.
func (k *pods) kill(t *testing.T) func(attempt string) {
	return func(attempt string) {
		t.Helper()
		list, err := k.admin.CoreV1().Pods(k.ns).List(t.Context(), metav1.ListOptions{LabelSelector: kubernetes.LabelAttempt + "=" + attempt})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("attempt %s has %d pods, want one; error %v", attempt, len(list.Items), err)
		}
		if err := k.admin.CoreV1().Pods(k.ns).Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent next to the control plane starts a job's pod with a service account's token. An installed agent with the same
// account starts the same job. Both jobs end the same, whether they succeed or fail. The token is sealed in the table,
// masked in the API, and in no file of the agents. Agents that replace those next to the control plane start jobs too.
func TestPodsOfBothEndTheSame(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	k := newPods(t)
	for _, tc := range []struct{ name, image, state, message string }{
		{"a job that succeeds", image, "succeeded", ""},
		// The reason is ErrImagePull, and between two pulls ImagePullBackOff.
		{"a job whose image does not exist", "registry.example/none/nothing:1", "failed", "ImagePull"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlane(t, file("kubernetes", fmt.Sprintf("data: %q, kubeconfig: %q", t.TempDir(), k.kubeconfig)))
			const runner = `
runner_configuration:
  type: kubernetes
%s  job: {namespace: %s, service_account: jobs, image: %s}
state_storage_configuration: {type: http}
`
			p.make("near", fmt.Sprintf(runner, fmt.Sprintf("  cluster: {server: %q, certificate_authority_data: %s, auth: {service_account_token: %s}}\n",
				k.cfg.Host, base64.StdEncoding.EncodeToString(k.authority), k.token), k.ns, tc.image))
			p.make("far", fmt.Sprintf(runner, "", k.ns, tc.image))
			p.install("far")
			p.same(tc.state, tc.message)
			p.isOnNoDisk(k.token)
			// New agents next to the control plane start jobs too.
			p.stop()
			p.serve()
			if again := p.ends("near"); again.State != tc.state {
				t.Errorf("after a restart of the agents the job is %s, want %s: %s", again.State, tc.state, again.Message)
			}
			testserver.Until(t, "no job left in the cluster", func() bool {
				left, err := k.admin.BatchV1().Jobs(k.ns).List(t.Context(), metav1.ListOptions{})
				return err == nil && len(left.Items) == 0
			})
		})
	}
}
