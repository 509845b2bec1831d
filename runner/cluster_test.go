package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

var cluster kube.Server

// namespace is a namespace of a real cluster, with a service account that has exactly the permissions that
// docs/vendor/state.md lists for the jobs of a runner.
type namespace struct {
	t          *testing.T
	admin      client.Interface
	name       string
	kubeconfig string // of a service account
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "states-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := namespace{t: t, admin: admin, name: ns.Name, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	t.Cleanup(func() { admin.CoreV1().Namespaces().Delete(context.Background(), n.name, metav1.DeleteOptions{}) })
	if _, err := admin.CoreV1().ServiceAccounts(n.name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "jobs"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().Roles(n.name).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "states"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(n.name).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "states"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "states"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "jobs", Namespace: n.name}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.become("jobs")
	return n
}

// become makes the jobs that start from now on use a service account of the namespace. It returns the account's client.
func (n namespace) become(account string) client.Interface {
	n.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(n.t))
	if err != nil {
		n.t.Fatal(err)
	}
	issued, err := n.admin.CoreV1().ServiceAccounts(n.name).CreateToken(n.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, InsecureSkipTLSVerify: true}
	api.AuthInfos["jobs"] = &clientcmdapi.AuthInfo{Token: issued.Status.Token}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "jobs"}
	api.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*api, n.kubeconfig); err != nil {
		n.t.Fatal(err)
	}
	c, err := client.NewForConfig(&rest.Config{Host: cfg.Host, BearerToken: issued.Status.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// grantByChart makes the accounts, roles and policy that the chart renders for jobs that keep states in this namespace.
func (n namespace) grantByChart() {
	n.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(n.t))
	if err != nil {
		n.t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	text, err := os.ReadFile("../infra/charts/testdata/namespaces.golden.yaml")
	if err != nil {
		n.t.Fatal(err)
	}
	resources := map[string]string{"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings",
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}
	made := 0
	for doc := range strings.SplitSeq(strings.ReplaceAll(string(text), "fairlead-jobs", n.name), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			continue // the notes
		}
		resource, is := resources[u.GetKind()]
		if !is || u.GetNamespace() != n.name && u.GetNamespace() != "" {
			continue
		}
		gvr := u.GroupVersionKind().GroupVersion().WithResource(resource)
		var in dynamic.ResourceInterface = c.Resource(gvr)
		if u.GetNamespace() != "" {
			in = c.Resource(gvr).Namespace(n.name)
		} else {
			n.t.Cleanup(func() { in.Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}) })
		}
		if _, err := in.Create(n.t.Context(), u, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
		made++
	}
	if made < 12 {
		n.t.Fatalf("the chart has %d objects for the namespace", made)
	}
}

const chartAccount = "acme-fairlead-runner-jobs-"

// A module whose state is in the jobs' namespace is planned by the chart's account of plans. That account takes locks, makes the first
// state and stores plans. It can change no state, and nothing else.
func TestAccountOfPlansChangesNoState(t *testing.T) {
	tools := tofu.Tools(t)
	path := tools[slices.Min(slices.Collect(maps.Keys(tools)))]
	n := newNamespace(t)
	n.grantByChart()
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "", "FAIRLEAD_TOFU="+path, "KUBE_CONFIG_PATH="+n.kubeconfig, "KUBE_INSECURE=true", "FAIRLEAD_PASS_ENV=GORACE,KUBE_CONFIG_PATH,KUBE_INSECURE")
	ref := s.Push(map[string]string{"main.tf": exampleModule})
	plans := n.become(chartAccount + "read-only")
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
	}
	ctx, none := t.Context(), metav1.CreateOptions{}
	s.Until("the policy is enforced", func() bool {
		_, err := plans.CoreV1().Secrets(n.name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-policy-check"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refused(err)
	})
	plan := succeeded(t, s.UntilFinished(s.Queue(n.of(planSpec("", ref)))))
	n.become(chartAccount + "provision")
	succeeded(t, s.UntilFinished(s.Queue(n.of(applySpec("apply", "", ref, plan)))))
	plans = n.become(chartAccount + "read-only")
	if again := succeeded(t, s.UntilFinished(s.Queue(n.of(planSpec("", ref))))); !again.Finish.Plan.NoOp {
		t.Errorf("plan without changes: %+v", again.Finish)
	}
	secrets, held := n.names()
	if !slices.Equal(secrets, []string{planSecret, stateSecret}) || len(held) > 0 {
		t.Errorf("the namespace has the Secrets %s and the held Leases %s", secrets, held)
	}

	state, err := plans.CoreV1().Secrets(n.name).Get(ctx, stateSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state.Data["tfstate"] = nil
	for what, f := range map[string]func() error{
		"change a state": func() error {
			_, err := plans.CoreV1().Secrets(n.name).Update(ctx, state, metav1.UpdateOptions{})
			return err
		},
		"delete a state": func() error { return plans.CoreV1().Secrets(n.name).Delete(ctx, stateSecret, metav1.DeleteOptions{}) },
		"make another Secret": func() error {
			_, err := plans.CoreV1().Secrets(n.name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-job-1"}}, none)
			return err
		},
		"make a Secret with a name that the server completes": func() error {
			_, err := plans.CoreV1().Secrets(n.name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "fairlead-"}}, none)
			return err
		},
		"make another Lease": func() error {
			_, err := plans.CoordinationV1().Leases(n.name).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}, none)
			return err
		},
	} {
		if err := f(); !refused(err) {
			t.Errorf("the account of plans may %s: %v", what, err)
		}
	}
	sp := n.of(planSpec("", ref))
	sp.Operation = "plan-destroy"
	down := succeeded(t, s.UntilFinished(s.Queue(sp)))
	n.become(chartAccount + "deprovision")
	succeeded(t, s.UntilFinished(s.Queue(n.of(applySpec("destroy", "", ref, down)))))
}

func (n namespace) of(sp events.JobSpec) events.JobSpec {
	sp.State = &events.StateRef{Storage: "kubernetes", Key: "ins_1/web", In: &events.StateStore{Namespace: n.name}}
	return sp
}

// names lists the Secrets and the held Leases of the namespace.
func (n namespace) names() (secrets, held []string) {
	n.t.Helper()
	all, err := n.admin.CoreV1().Secrets(n.name).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range all.Items {
		secrets = append(secrets, s.Name)
	}
	leases, err := n.admin.CoordinationV1().Leases(n.name).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			held = append(held, l.Name)
		}
	}
	return secrets, held
}

const (
	stateSecret = "tfstate-default-ins-1-web-ca7b1fad-state"
	planSecret  = "tfstate-default-ins-1-web-ca7b1fad-plan"
	stateLease  = "lock-" + stateSecret
)

// A component with its state in a Secret of a real cluster is planned, applied and destroyed with a service account that has
// the minimal permissions. The error about a held lock names its holder, and its hint releases the lock.
func TestStateInACluster(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			n := newNamespace(t)
			s := plane.New(t, plane.Options{})
			a := startAgent(t, s, "", "FAIRLEAD_TOFU="+path, "KUBE_CONFIG_PATH="+n.kubeconfig, "KUBE_INSECURE=true", "FAIRLEAD_PASS_ENV=GORACE,KUBE_CONFIG_PATH,KUBE_INSECURE")
			ref := s.Push(map[string]string{"main.tf": exampleModule})
			plan := succeeded(t, s.UntilFinished(s.Queue(n.of(planSpec("", ref)))))
			apply := succeeded(t, s.UntilFinished(s.Queue(n.of(applySpec("apply", "", ref, plan)))))
			if !apply.Finish.Mutated || string(apply.Finish.Outputs["name"].Value) != `"one"` || len(apply.Finish.Outputs) != 2 {
				t.Errorf("apply: %+v", apply.Finish)
			}
			secrets, held := n.names()
			if !slices.Equal(secrets, []string{planSecret, stateSecret}) || len(held) > 0 {
				t.Errorf("the namespace has the Secrets %s and the held Leases %s", secrets, held)
			}
			if again := succeeded(t, s.UntilFinished(s.Queue(n.of(planSpec("", ref))))); !again.Finish.Plan.NoOp {
				t.Errorf("plan without changes: %+v", again.Finish)
			}

			// A killed tool left this lock.
			lease, err := n.admin.CoordinationV1().Leases(n.name).Get(t.Context(), stateLease, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			id := "0d0a7508-5424-9d9c-2d65-3e4765577c0b"
			lease.Spec.HolderIdentity = &id
			lease.Annotations = map[string]string{"app.terraform.io/lock-info": `{"ID":"` + id + `","Operation":"OperationTypeApply","Info":"","Who":"ann@laptop","Version":"1.12.6","Created":"2026-11-21T08:42:51.436272354Z","Path":""}`}
			if _, err := n.admin.CoordinationV1().Leases(n.name).Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			f := s.UntilFinished(s.Queue(n.of(planSpec("", ref)))).Finish
			if f.Reason != "state-locked" || f.Mutated || !strings.Contains(f.Message, "the state is locked by ann@laptop since 2026-11-21 08:42:51 for Apply, lock "+id) ||
				!strings.Contains(f.Message, "`kubectl delete lease "+stateLease+" --namespace "+n.name+"` releases the lock") {
				t.Errorf("finished as %+v", *f)
			}
			if err := n.admin.CoordinationV1().Leases(n.name).Delete(t.Context(), stateLease, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			sp := n.of(planSpec("", ref))
			sp.Operation = "plan-destroy"
			down := succeeded(t, s.UntilFinished(s.Queue(sp)))
			if gone := succeeded(t, s.UntilFinished(s.Queue(n.of(applySpec("destroy", "", ref, down))))); len(gone.Finish.Outputs) != 0 {
				t.Errorf("destroy: %+v", gone.Finish)
			}
			s.Until("nothing left on disk", a.empty)
			nowhere(t, a.Data, password)
		})
	}
}
