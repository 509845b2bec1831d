package kubernetes_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
)

// ownImage is an image of a step's own.
const ownImage = "registry.example.com/tools@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// startOwn starts a step in ownImage.
func startOwn(t *testing.T, o kubernetes.Options) (executor.Handle, error) {
	t.Helper()
	return open(t, o).Start(t.Context(), executor.Step{ID: "job_own-1", Args: []string{"step"}, Image: ownImage})
}

func templated(t *testing.T, o kubernetes.Options, overlay string) kubernetes.Options {
	t.Helper()
	if err := yaml.Unmarshal([]byte(overlay), &o.Job.PodTemplate); err != nil {
		t.Fatal(err)
	}
	return o
}

// The image of a pod template is that of the runner, with the operator's tools. It must not replace the image that the signed
// spec names, and its variables are the step's.
func TestPodTemplateKeepsAStepsOwnImage(t *testing.T) {
	s := newSite(t)
	o := templated(t, s.options(), `{spec: {containers: [{name: step, image: registry.example.com/runner-with-tools, env: [{name: EXTRA, value: "1"}]}]}}`)
	if _, err := startOwn(t, o); err != nil {
		t.Fatal(err)
	}
	job, err := s.admin.BatchV1().Jobs(s.namespace).Get(t.Context(), "fairlead-job-own-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.Template.Spec
	if c := pod.Containers[0]; c.Image != ownImage || strings.Join(c.Command, " ") != executor.ImageProgram || len(pod.InitContainers) != 1 ||
		pod.InitContainers[0].Image != "registry.example.com/runner-with-tools" {
		t.Errorf("the pod is %+v", pod)
	}
	if of := pod.InitContainers[0].SecurityContext; of == nil || of.RunAsGroup == nil || *of.RunAsGroup != 65533 || pod.Containers[0].SecurityContext.RunAsGroup != nil {
		t.Errorf("only the copying container must have the group that may read the runner's program; it has %+v", of)
	}
	for _, v := range pod.Containers[0].Env {
		if v.Name == executor.OwnVariable && !strings.Contains(","+v.Value+",", ",EXTRA,") {
			t.Errorf("the step's own variables are %s", v.Value)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPath == executor.ImageFolder && !m.ReadOnly {
			t.Error("the tool can write the runner's program")
		}
	}
}

// The names of variables from a ConfigMap or a Secret are not known. They would count as the image's, and reach the vendor's tool.
func TestPodTemplateWithUnknownVariablesIsRefused(t *testing.T) {
	s := newSite(t)
	o := templated(t, s.options(), `{spec: {containers: [{name: step, envFrom: [{secretRef: {name: vault}}]}]}}`)
	_, err := startOwn(t, o)
	if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseImageRefused {
		t.Errorf("the start: %v", err)
	}
	if _, err := open(t, o).Start(t.Context(), executor.Step{ID: "job_plain-1", Args: []string{"step"}}); err != nil {
		t.Errorf("a step in the runner's image: %v", err)
	}
}

// A runner's image that is older than the agent has no command that copies its program.
func TestProgramThatCannotBeCopiedIsReported(t *testing.T) {
	no, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	kubelettest.Start(t, s.admin, s.namespace, kubelettest.Options{Image: image, Program: no, Others: map[string][]string{ownImage: nil}})
	h, err := startOwn(t, s.options())
	if err != nil {
		t.Fatal(err)
	}
	if x, err := h.Wait(t.Context()); err != nil || x.Cause != fairlead.CauseLaunchFailed || !strings.Contains(x.Message, "older than the agent") || !strings.Contains(x.Message, image) {
		t.Errorf("ended as %+v (%v)", x, err)
	}
}
