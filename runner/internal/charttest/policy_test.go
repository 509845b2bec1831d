package charttest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// The customer's policy is in a ConfigMap of the namespace of jobs. Jobs start only with it, and no account of jobs can change it or
// the ledger, also if a person binds a role that permits everything in the namespace.
func TestNoJobChangesItsPolicy(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t)
	cfg, c := connect(t, kubeconfig)
	ctx := t.Context()
	namespace := func(prefix string) string {
		ns, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) })
		return ns.Name
	}
	ns, ledger := namespace("policy-"), namespace("policy-ledger-")
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	if _, err := c.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "enrolment"}, StringData: map[string]string{"token": s.EnrolmentToken()}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelettest.Start(t, c, ns, kubelettest.Options{Image: repository + "@" + digest, Program: program.Build(t, "runner", "-tags=clusters"), Cluster: cfg})
	h := newHelm(t, kubeconfig, ns, map[string]any{
		"controlPlane": map[string]any{"url": s.URL()},
		"identity":     map[string]any{"type": "key", "key": map[string]any{"existingSecret": "enrolment"}},
		"image":        map[string]any{"repository": repository, "digest": digest},
		"persistence":  map[string]any{"existingClaim": "data"},
		"status":       map[string]any{"port": freePort(t)},
		"policy":       map[string]any{"configMap": "acme-policy"},
	})
	h.install()
	defer h.uninstall()

	policy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "acme-policy"}, Data: map[string]string{"policy.yaml": "version: 1\ntypes: [terraform]\n"}}
	script := map[string]string{"run": "#!/bin/sh\necho ran\n"}
	sp := events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: "web", Timeout: 60, Grace: 5, Artifact: s.PushOf("web", script)}
	expect := func(what, reason, message string) {
		t.Helper()
		if f := s.UntilFinished(s.Queue(sp)).Finish; f.Reason != reason || !strings.Contains(f.Message, message) {
			t.Errorf("%s: the job ended as %+v, want %s", what, *f, reason)
		}
	}
	expect("a job without its policy", "policy-unavailable", "/policy/policy.yaml, so nothing was started")
	if _, err := c.CoreV1().ConfigMaps(ns).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("a job that the policy denies", "policy-denied", `rule types (line 2): it does not list the type "script"`)
	policy.Data["policy.yaml"] = "version: 1\ntypes: [script]\n"
	if _, err := c.CoreV1().ConfigMaps(ns).Update(ctx, policy, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("a job that the policy permits", "", "")
	h.values["policy"] = map[string]any{"configMap": "acme-policy", "ledgerNamespace": ledger}
	h.upgrade()
	// The accounts get all rights in both namespaces: only the chart's admission policy is between them and the policy.
	for _, in := range []string{ns, ledger} {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everything"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}
		for _, account := range accountsOfJobs() {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: ns})
		}
		if _, err := c.RbacV1().RoleBindings(in).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-ledger-first", Labels: map[string]string{"fairlead.io/ledger": "admitted"}}}
	if _, err := c.CoreV1().ConfigMaps(ledger).Create(ctx, first, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, account := range accountsOfJobs() {
		as := rest.CopyConfig(cfg)
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + ns + ":" + account}
		job, err := kubernetes.NewForConfig(as)
		if err != nil {
			t.Fatal(err)
		}
		untilForbidden(t, account+" changes the policy", func() error {
			_, err := job.CoreV1().ConfigMaps(ns).Update(ctx, policy, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
		// The API server takes over a changed admission policy a moment later.
		untilForbidden(t, account+" empties the ledger", func() error {
			return job.CoreV1().ConfigMaps(ledger).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{})
		})
	}
	for _, account := range accountsOfJobs() { // each adds to the ledger, also that of plans, which otherwise only does dry runs
		as := rest.CopyConfig(cfg)
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + ns + ":" + account}
		job, err := kubernetes.NewForConfig(as)
		if err != nil {
			t.Fatal(err)
		}
		entry := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-ledger-" + account, Labels: map[string]string{"fairlead.io/ledger": "admitted"}}}
		until(t, account+" adds to the ledger", func() error {
			_, err := job.CoreV1().ConfigMaps(ledger).Create(ctx, entry, metav1.CreateOptions{})
			return err
		}, func(err error) bool { return err == nil })
	}
	entries, err := c.CoreV1().ConfigMaps(ledger).List(ctx, metav1.ListOptions{LabelSelector: "fairlead.io/ledger"})
	if err != nil || len(entries.Items) == 0 {
		t.Fatalf("the ledger has %d entries (%v)", len(entries.Items), err)
	}
	for _, account := range accountsOfJobs() {
		as := rest.CopyConfig(cfg)
		as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + ns + ":" + account}
		job, err := kubernetes.NewForConfig(as)
		if err != nil {
			t.Fatal(err)
		}
		maps, entry := job.CoreV1().ConfigMaps(ns), entries.Items[0].Name
		for what, do := range map[string]func() error{
			"changes the policy": func() error {
				_, err := maps.Patch(ctx, "acme-policy", "application/merge-patch+json", []byte(`{"data": {"policy.yaml": "version: 1"}}`), metav1.PatchOptions{})
				return err
			},
			"removes the policy": func() error { return maps.Delete(ctx, "acme-policy", metav1.DeleteOptions{}) },
			"removes all ConfigMaps": func() error {
				return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=acme-policy"})
			},
			"creates a policy of the same name": func() error {
				_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "acme-policy"}}, metav1.CreateOptions{})
				return err
			},
			"removes an entry": func() error { return job.CoreV1().ConfigMaps(ledger).Delete(ctx, entry, metav1.DeleteOptions{}) },
			"removes the whole ledger": func() error {
				return job.CoreV1().ConfigMaps(ledger).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			},
		} {
			if err := do(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("%s %s: %v", account, what, err)
			}
		}
	}
	if still, err := c.CoreV1().ConfigMaps(ns).Get(ctx, "acme-policy", metav1.GetOptions{}); err != nil || still.Data["policy.yaml"] != policy.Data["policy.yaml"] {
		t.Errorf("the policy is %+v (%v)", still, err)
	}
	if left, err := c.CoreV1().ConfigMaps(ledger).List(ctx, metav1.ListOptions{LabelSelector: "fairlead.io/ledger"}); err != nil || len(left.Items) < len(entries.Items) {
		t.Errorf("the ledger has %d of %d entries (%v)", len(left.Items), len(entries.Items), err)
	}
}

// accountsOfJobs returns the service accounts of jobs.
func accountsOfJobs() []string {
	var all []string
	for _, role := range []string{"read-only", "deploy", "provision", "deprovision"} {
		all = append(all, deployed+"-jobs-"+role)
	}
	return all
}

// untilForbidden waits until the API server refuses a request: it enforces a new admission policy after a moment.
func untilForbidden(t *testing.T, what string, do func() error) {
	t.Helper()
	until(t, what, do, func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) })
}

// until repeats do until its error is the expected one.
func until(t *testing.T, what string, do func() error, expected func(error) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := do()
		if expected(err) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
