package main

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/tools/shortrun"
	"github.com/fairlead/fairlead/tools/testserver"
)

// inGroup returns a configuration of a user with a group, as an access entry of EKS makes it from an AWS role.
func (r *chartRunner) inGroup(group string) *rest.Config {
	cfg := rest.CopyConfig(r.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "arn:aws:sts::111122223333:assumed-role/" + group + "/job", Groups: []string{group, "system:authenticated"}}
	return cfg
}

// The access entries of an EKS cluster give each AWS role of operations a group, and the chart gives the groups their permissions. The
// group of plans changes nothing and runs no program, also if a person has made it an administrator. The groups of applies and
// destroys may make changes.
func TestGroupOfPlansChangesNothing(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	r := installRunner(t, map[string]any{"clusterAdmin": true, "groupPrefix": "acme"})
	ns := r.newNamespace("seeds-")
	r.awaitPolicy(ns)
	r.seed(ns)
	plans := r.inGroup("acme-read-only")
	before := r.stable()
	r.refusesWrites(plans, ns, "")
	c, err := kubernetes.NewForConfig(plans)
	if err != nil {
		t.Fatal(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	if _, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run by the group of plans: %v", err)
	}
	if _, err := c.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the group of plans reads: %v", err)
	}

	// A person makes the group an administrator by mistake. The policy still refuses.
	mistake := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mistake-" + ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "acme-read-only"}}}
	if _, err := r.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), mistake, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	testserver.Until(t, "the group is an administrator", func() bool {
		_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, dry)
		return err == nil
	})
	if _, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), byPolicy) {
		t.Errorf("a change by an administrator of the group of plans is answered with %v", err)
	}
	client, err := rest.HTTPClientFor(plans)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"pods/seed/exec?command=id&stdout=true", "pods/seed/portforward?ports=80", "services/seed/proxy"} {
		status, answer, err := send(t.Context(), client, http.MethodPost, plans.Host+"/api/v1/namespaces/"+ns+"/"+path)
		if err != nil || status != http.StatusForbidden || !strings.Contains(answer, byPolicy) {
			t.Errorf("%s is answered with %d %s (%v)", path, status, answer, err)
		}
	}
	if err := r.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), mistake.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if after := r.objects(); !maps.Equal(before, after) {
		t.Errorf("the group of plans changed the cluster: %s", difference(before, after))
	}

	for _, group := range []string{"acme-deploy", "acme-provision", "acme-deprovision"} {
		c, err := kubernetes.NewForConfig(r.inGroup(group))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s creates an object: %v", group, err)
		}
		if err := c.CoreV1().ConfigMaps(ns).Delete(t.Context(), settings.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s deletes an object: %v", group, err)
		}
	}

	// Another prefix is another app: its groups have no permission.
	other, err := kubernetes.NewForConfig(r.inGroup("other-deploy"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a group of another prefix reads: %v", err)
	}
}
