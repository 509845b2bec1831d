package charttest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// The chart's values refer to Secrets of the customer. The cluster gives each to the pods of its component alone, although no account of
// the release may read a Secret. A job whose Secret or key is missing does not wait for it, but fails and names the reference.
func TestPodGetsTheSecretsOfItsComponent(t *testing.T) {
	kubeconfig := cluster.Kubeconfig(t)
	cfg, c := connect(t, kubeconfig)
	ctx := t.Context()
	ns, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secrets-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) })
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	const token, password = "gh-0123456789abcdef", "correct-battery-staple"
	for name, data := range map[string]map[string]string{"enrolment": {"token": s.EnrolmentToken()},
		"shop": {"token": token, "login": `{"username": "shop", "password": "` + password + `"}`}} {
		if _, err := c.CoreV1().Secrets(ns.Name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tools := "registry.example.com/tools@sha256:" + strings.Repeat("b", 64)
	kubelettest.Start(t, c, ns.Name, kubelettest.Options{Image: repository + "@" + digest, Program: program.Build(t, "runner", "-tags=clusters"), Cluster: cfg, Others: map[string][]string{tools: nil}})
	h := newHelm(t, kubeconfig, ns.Name, map[string]any{
		"controlPlane": map[string]any{"url": s.URL()},
		"identity":     map[string]any{"type": "key", "key": map[string]any{"existingSecret": "enrolment"}},
		"image":        map[string]any{"repository": repository, "digest": digest},
		"persistence":  map[string]any{"existingClaim": "data"},
		"status":       map[string]any{"port": freePort(t)},
		"secrets": map[string]any{"web/TOKEN": "kubernetes:shop/token", "web/PASSWORD": "kubernetes:shop/login#password",
			"keyless/TOKEN": "kubernetes:shop/none", "lost/TOKEN": "kubernetes:nothing/token"},
	})
	h.install()
	defer h.uninstall()
	for _, account := range []string{"", "-jobs", "-jobs-read-only", "-jobs-deploy", "-jobs-provision", "-jobs-deprovision"} {
		review, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + ns.Name + ":" + deployed + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: ns.Name}}}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			t.Errorf("the account %s may read Secrets (%v)", deployed+account, err)
		}
	}
	pods, err := c.CoreV1().Pods(ns.Name).Watch(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=fairlead-runner"})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	refs := func(p *corev1.Pod) (all []string) {
		for _, v := range p.Spec.Containers[0].Env {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil && v.ValueFrom.SecretKeyRef.Name != p.Labels["batch.kubernetes.io/job-name"] && v.ValueFrom.SecretKeyRef.Name != deployed+"-install-key" {
				all = append(all, v.ValueFrom.SecretKeyRef.Name+"/"+v.ValueFrom.SecretKeyRef.Key)
			}
		}
		slices.Sort(all)
		return all
	}
	script := map[string]string{"run": "#!/bin/sh\necho \"got $TOKEN and $PASSWORD\"\nprintf %s \"$TOKEN:$PASSWORD\" | sha256sum\nenv\n"}
	hash := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	for what, tt := range map[string]struct{ component, image, text, refs string }{
		"the component with secrets":                         {"web", "", token + ":" + password, "shop/login shop/token"},
		"the component with secrets, in an image of its own": {"web", tools, token + ":" + password, "shop/login shop/token"},
		"a component without secrets":                        {"plain", "", ":", ""},
	} {
		sp := events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: tt.component, Timeout: 60, Grace: 5, Artifact: s.PushOf(tt.component, script), Image: tt.image}
		plan := s.UntilFinished(s.Queue(sp))
		if plan.Finish.Outcome != "succeeded" {
			t.Fatalf("%s: the plan ended as %+v", what, *plan.Finish)
		}
		sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(plan.ID), Digest: plan.Finish.Plan.Digest}
		job := s.Queue(sp)
		j := s.UntilFinished(job)
		log := string(j.Log)
		if j.Finish.Outcome != "succeeded" || !strings.Contains(log, hash(tt.text)) || strings.Contains(log, token) || strings.Contains(log, password) || strings.Contains(log, "FAIRLEAD_GIVEN") {
			t.Errorf("%s: the apply ended as %+v with the log\n%s", what, *j.Finish, log)
		}
		p := podOf(t, pods, job)
		if got := strings.Join(refs(p), " "); got != tt.refs {
			t.Errorf("%s: its pod refers to the Secrets %q, want %q", what, got, tt.refs)
		}
		if text, err := json.Marshal(p); err != nil || strings.Contains(string(text), token) || strings.Contains(string(text), password) {
			t.Errorf("%s: its pod has a secret in plain text (%v)", what, err)
		}
	}
	missing := map[string]string{
		"keyless": "the customer's secret TOKEN cannot be read from kubernetes:shop/none, so nothing was started: the namespace of jobs has no Secret shop with the key none",
		"lost":    "the customer's secret TOKEN cannot be read from kubernetes:nothing/token, so nothing was started: the namespace of jobs has no Secret nothing with the key token",
	}
	for _, component := range slices.Sorted(maps.Keys(missing)) {
		f := s.UntilFinished(s.Queue(events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: component, Timeout: 60, Grace: 5, Artifact: s.PushOf(component, script)})).Finish
		if f.Outcome != "failed" || f.Reason != "secret-unavailable" || !strings.Contains(f.Message, missing[component]) {
			t.Errorf("the plan of %s ended as %+v, want %s", component, *f, missing[component])
		}
	}
}
