package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
)

// Labels of jobs, pods and secrets.
const (
	LabelRunner    = "fairlead.dev/runner"
	LabelAttempt   = "fairlead.dev/attempt"
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "fairlead-runner"
)

// Container is the name of a job's container. An overlay refers to it.
const Container = "step"

// CopyContainer is the name of the container that copies the runner's program, in the pod of a step in an image of its own.
const CopyContainer = "runner"

// user is the user and group of the runner's image. It is not root.
const user = 65532

// copyGroup is the group of the container that copies the runner's program. In the runner's image, only root and this group may read
// the program.
const copyGroup = 65533

// name returns the name of an attempt's Job and Secret. Attempt IDs are unique. A
// name in Kubernetes has neither capitals nor underscores.
func name(id string) string {
	return "fairlead-" + strings.ReplaceAll(strings.ToLower(id), "_", "-")
}

func reserved(label string) bool {
	return strings.HasPrefix(label, "fairlead") || label == labelManagedBy
}

func (e *Executor) labelled(id string) map[string]string {
	l := map[string]string{}
	maps.Copy(l, e.o.Job.Labels)
	l[LabelRunner], l[LabelAttempt], l[labelManagedBy] = e.o.Runner, id, managedBy
	return l
}

func (e *Executor) secret(s executor.Step) *corev1.Secret {
	fixed := true
	data := map[string]string{}
	for _, v := range s.Secrets {
		name, value, _ := strings.Cut(v, "=")
		data[name] = value
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name(s.ID), Labels: e.labelled(s.ID)}, Immutable: &fixed, StringData: data}
}

// job returns the Job of a step.
func (e *Executor) job(s executor.Step) (*batchv1.Job, error) {
	pod, err := e.pod(s)
	if err != nil {
		return nil, err
	}
	none, one := int32(0), int32(1)
	keep := int32(time.Duration(e.o.Job.KeepFor) / time.Second)
	// With the policy Failed, the cluster does not replace a terminating pod before
	// the pod has ended. After the pod has failed, BackoffLimit 0 forbids another
	// pod.
	replace := batchv1.Failed
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name(s.ID), Labels: e.labelled(s.ID)},
		Spec: batchv1.JobSpec{BackoffLimit: &none, Completions: &one, Parallelism: &one, PodReplacementPolicy: &replace,
			TTLSecondsAfterFinished: &keep, Template: pod},
	}, nil
}

// pod returns the pod of a step, merged with the overlay.
func (e *Executor) pod(s executor.Step) (corev1.PodTemplateSpec, error) {
	yes, no := true, false
	id := int64(user)
	grace := int64(time.Duration(e.o.Job.StopGrace) / time.Second)
	scratch := func(name string) corev1.Volume {
		v := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
		if e.o.Job.Disk > 0 {
			v.EmptyDir.SizeLimit = resource.NewQuantity(int64(e.o.Job.Disk), resource.BinarySI)
		}
		return v
	}
	var pull []corev1.LocalObjectReference
	for _, name := range e.o.Job.PullSecrets {
		pull = append(pull, corev1.LocalObjectReference{Name: name})
	}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: e.labelled(s.ID)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: e.account(s.Role), ImagePullSecrets: pull,
			TerminationGracePeriodSeconds: &grace, NodeSelector: e.o.Job.NodeSelector,
			EnableServiceLinks: &no, // service links would add variables that the step does not expect
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: Container, Image: e.o.Job.Image, ImagePullPolicy: corev1.PullPolicy(e.o.Job.ImagePullPolicy), Args: s.Args, Env: e.environment(s),
				Resources: e.resources(s), TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Privileged: &no,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: e.o.Job.Data}, {Name: "tmp", MountPath: "/tmp"}},
			}},
			Volumes: []corev1.Volume{scratch("data"), scratch("tmp")},
		},
	}
	if e.overlay != nil {
		var err error
		if pod, err = overlaid(pod, e.overlay); err != nil {
			return pod, err
		}
	}
	mountPolicy(&pod, s)
	if s.Image == "" {
		return pod, nil
	}
	return pod, inImage(&pod, s.Image, e.o.Job.PassEnv)
}

// mountPolicy mounts the step's ConfigMap, also in an image of the vendor, whose own folder of this name the mount hides. The
// ConfigMap is optional: the step then reports that the policy is missing, where the pod would only wait.
func mountPolicy(pod *corev1.PodTemplateSpec, s executor.Step) {
	if s.ConfigMap == "" {
		return
	}
	const volume = "policy"
	optional := true
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: s.ConfigMap}, Optional: &optional, Items: []corev1.KeyToPath{{Key: s.ConfigKey, Path: s.ConfigKey}}}}})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: runnerspec.PolicyFolder, ReadOnly: true})
}

// inImage makes the pod of a step one in an image of its own. A first container, of the runner's image, copies the runner's
// program to a volume. The step's container mounts it and runs it, in place of the program of its image. The overlay is merged
// before, so its image is that of the runner.
func inImage(pod *corev1.PodTemplateSpec, image string, pass []string) error {
	c := &pod.Spec.Containers[0]
	if len(c.EnvFrom) > 0 {
		return &executor.LaunchError{Cause: fairlead.CauseImageRefused, Err: errors.New(
			"job.pod_template has envFrom, and nothing distinguishes its variables from those of the image, so the vendor's tool would get both. Write the variables under env")}
	}
	const volume = "runner-program"
	group, security := int64(copyGroup), &corev1.SecurityContext{}
	if c.SecurityContext != nil {
		security = c.SecurityContext.DeepCopy()
	}
	security.RunAsGroup = &group
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
		Name: CopyContainer, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Args: []string{executor.CopyCommand, executor.ImageFolder},
		Resources: c.Resources, SecurityContext: security, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: executor.ImageFolder}},
	})
	if c.ImagePullPolicy == corev1.PullAlways {
		c.ImagePullPolicy = corev1.PullIfNotPresent // an image by digest never changes
	}
	var environ []string
	for _, v := range c.Env {
		environ = append(environ, v.Name+"=")
	}
	for _, v := range executor.EnvironIn(image, environ, pass) {
		name, value, _ := strings.Cut(v, "=")
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
	c.Image, c.Command, c.WorkingDir = image, []string{executor.ImageProgram}, "/tmp"
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: executor.ImageFolder, ReadOnly: true})
	return nil
}

// account returns the service account of a role. A role without one uses the account of all jobs.
func (e *Executor) account(role component.Role) string {
	of := e.o.Job.ServiceAccounts
	return cmp.Or(map[component.Role]string{component.ReadOnly: of.ReadOnly, component.Deploy: of.Deploy,
		component.Provision: of.Provision, component.Deprovision: of.Deprovision}[role], e.o.Job.ServiceAccount)
}

// environment returns the step's variables: plain values in the pod, secrets as
// references.
func (e *Executor) environment(s executor.Step) []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: "HOME", Value: "/tmp"}} // a tool needs a home
	for _, v := range s.Env {
		name, value, _ := strings.Cut(v, "=")
		// $$( prevents the kubelet from expanding $(…).
		env = append(env, corev1.EnvVar{Name: name, Value: strings.ReplaceAll(value, "$(", "$$(")})
	}
	if s.Input != nil {
		env = append(env, corev1.EnvVar{Name: executor.InputVariable, Value: strings.ReplaceAll(string(s.Input), "$(", "$$(")})
	}
	refer := func(variable, secret, key string, optional *bool) {
		env = append(env, corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key, Optional: optional}}})
	}
	for _, v := range s.Secrets {
		key, _, _ := strings.Cut(v, "=")
		refer(key, name(s.ID), key, nil)
	}
	for _, variable := range slices.Sorted(maps.Keys(e.o.Job.Secrets)) {
		secret, key, _ := strings.Cut(e.o.Job.Secrets[variable], "/")
		refer(variable, secret, key, nil)
	}
	// Without optional, the pod would wait for a missing Secret. The step starts, and reports what is missing.
	optional := true
	for _, variable := range slices.Sorted(maps.Keys(s.Stored)) {
		secret, key, _ := strings.Cut(s.Stored[variable], "/")
		refer(variable, secret, key, &optional)
	}
	return env
}

// resources returns what the pod's container may use. The size that a component asks for is
// both reserved and the limit.
func (e *Executor) resources(s executor.Step) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	set := func(l corev1.ResourceList, name corev1.ResourceName, q *resource.Quantity) {
		if !q.IsZero() {
			l[name] = *q
		}
	}
	cpu, cpuLimit := cmp.Or(s.CPU, e.o.Job.CPURequest), cmp.Or(s.CPU, e.o.Job.CPULimit)
	memory, memoryLimit := cmp.Or(s.Memory, e.o.Job.MemoryRequest), cmp.Or(s.Memory, e.o.Job.MemoryLimit)
	if memoryLimit > 0 {
		memory = min(memory, memoryLimit)
	}
	set(r.Requests, corev1.ResourceCPU, resource.NewMilliQuantity(int64(cpu), resource.DecimalSI))
	set(r.Limits, corev1.ResourceCPU, resource.NewMilliQuantity(int64(cpuLimit), resource.DecimalSI))
	set(r.Requests, corev1.ResourceMemory, resource.NewQuantity(int64(memory), resource.BinarySI))
	set(r.Limits, corev1.ResourceMemory, resource.NewQuantity(int64(memoryLimit), resource.BinarySI))
	set(r.Limits, corev1.ResourceEphemeralStorage, resource.NewQuantity(int64(e.o.Job.Disk), resource.BinarySI))
	return r
}

// overlayOf returns an overlay as JSON. It refuses fields that a pod template does
// not have.
func overlayOf(template runnerspec.Object) ([]byte, error) {
	b, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var known corev1.PodTemplateSpec
	return b, yaml.UnmarshalStrict(b, &known)
}

// overlaid merges an overlay into the pod as the API server would. It refuses an
// overlay that changes the step itself.
func overlaid(pod corev1.PodTemplateSpec, overlay []byte) (corev1.PodTemplateSpec, error) {
	base, err := json.Marshal(pod)
	if err != nil {
		return pod, err
	}
	merged, err := strategicpatch.StrategicMergePatch(base, overlay, pod)
	if err != nil {
		return pod, fmt.Errorf("merge the pod template: %w", err)
	}
	var out corev1.PodTemplateSpec
	if err := json.Unmarshal(merged, &out); err != nil {
		return pod, fmt.Errorf("merge the pod template: %w", err)
	}
	if err := unchanged(pod, out); err != nil {
		return pod, fmt.Errorf("pod template: %w", err)
	}
	return out, nil
}

// unchanged returns an error if the overlay changed a field that it may not set.
// The control plane does the same check, but it does not see an overlay in the
// agent's file.
func unchanged(pod, out corev1.PodTemplateSpec) error {
	if len(out.Spec.Containers) != 1 || out.Spec.Containers[0].Name != Container {
		return fmt.Errorf("a job has one container, named %s: put other containers into initContainers, with restartPolicy: Always", Container)
	}
	for _, same := range []struct {
		what     string
		was, now any
	}{
		{"spec.restartPolicy", pod.Spec.RestartPolicy, out.Spec.RestartPolicy},
		{"spec.serviceAccountName", pod.Spec.ServiceAccountName, out.Spec.ServiceAccountName},
		{"spec.terminationGracePeriodSeconds", pod.Spec.TerminationGracePeriodSeconds, out.Spec.TerminationGracePeriodSeconds},
		{"spec.activeDeadlineSeconds", pod.Spec.ActiveDeadlineSeconds, out.Spec.ActiveDeadlineSeconds},
		{"the command of " + Container, pod.Spec.Containers[0].Command, out.Spec.Containers[0].Command},
		{"the args of " + Container, pod.Spec.Containers[0].Args, out.Spec.Containers[0].Args},
	} {
		if !reflect.DeepEqual(same.was, same.now) {
			return fmt.Errorf("%s cannot be set", same.what)
		}
	}
	for name := range pod.Labels {
		if reserved(name) && out.Labels[name] != pod.Labels[name] {
			return fmt.Errorf("the label %s is reserved", name)
		}
	}
	given := map[string]corev1.EnvVar{}
	for _, v := range out.Spec.Containers[0].Env {
		given[v.Name] = v
	}
	for _, v := range pod.Spec.Containers[0].Env {
		if strings.HasPrefix(v.Name, "FAIRLEAD_") && !reflect.DeepEqual(given[v.Name], v) {
			return fmt.Errorf("the variable %s is reserved", v.Name)
		}
		delete(given, v.Name)
	}
	for name := range given {
		if strings.HasPrefix(name, "FAIRLEAD_") {
			return fmt.Errorf("the variable %s is reserved", name)
		}
	}
	return nil
}
