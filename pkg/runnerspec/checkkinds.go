package runnerspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

func (r *ECSRunner) check(c *checker) {
	const where = "runner_configuration.job"
	j := &r.Job
	if r.direct() { // such an agent has no file, and runs in no cluster of the customer
		for _, f := range []struct {
			name  string
			given bool
		}{{"region", j.Region != ""}, {"cluster", j.Cluster != ""}, {"subnets", len(j.Subnets) > 0}} {
			if !f.given {
				c.Report(where+"."+f.name, "missing-field", fmt.Sprintf("%s lacks the field %q", where, f.name), "It is required if auth is set.")
			}
		}
	}
	if j.TaskDefinition == "" {
		if j.ExecutionRoleARN == "" && (r.direct() || j.Image != "") {
			c.Report(where+".execution_role_arn", "missing-field", where+` lacks the field "execution_role_arn"`,
				"The role that pulls the image. Only with task_definition may it be absent.")
		}
	} else {
		for _, f := range []struct {
			name  string
			given bool
		}{
			{"image", j.Image != ""}, {"execution_role_arn", j.ExecutionRoleARN != ""}, {"pull_secret", j.PullSecret != ""},
			{"secrets", len(j.Secrets) > 0}, {"log_group", j.LogGroup != ""},
		} {
			if c.side == agentSide && (f.name == "execution_role_arn" || f.name == "log_group") {
				continue // the agent uses this field together with an existing task definition
			}
			if f.given {
				c.Report(where+"."+f.name, "conflicting-fields", fmt.Sprintf("%s.%s cannot be set, because task_definition already sets it", where, f.name), "Remove one of the two.")
			}
		}
	}
	if j.LaunchType == "ec2" {
		return
	}
	if j.CPU != 0 || j.Memory != 0 {
		cpu, memory := j.CPU, j.Memory
		if cpu == 0 {
			cpu = 1000
		}
		if memory == 0 {
			memory = 2 << 30
		}
		if field, message, hint := OnFargate(cpu, memory); field != "" {
			c.Report(where+"."+field, "invalid-value", where+"."+message, hint)
		}
	}
	if disk := j.Disk.Mebibytes(); j.Disk != 0 && (disk < 21<<10 || disk > 200<<10) {
		c.Report(where+".disk", "invalid-value", where+".disk must be from 21Gi to 200Gi on Fargate", "Leave it out for 20Gi.")
	}
}

// OnFargate returns what is wrong if Fargate does not support a task of this size: the field, "cpu" or "memory", a
// message that begins with the field, and a hint. If Fargate supports the size, field is "". The table comes from
// Amazon's documentation.
func OnFargate(cpu CPU, memory Size) (field, message, hint string) {
	sizes := []struct {
		cpu             CPU
		least, most, by int64 // MiB
	}{
		{250, 512, 2048, 512}, {500, 1024, 4096, 1024}, {1000, 2048, 8192, 1024}, {2000, 4096, 16384, 1024},
		{4000, 8192, 30720, 1024}, {8000, 16384, 61440, 4096}, {16000, 32768, 122880, 8192},
	}
	for _, s := range sizes {
		if s.cpu != cpu {
			continue
		}
		mib := memory.Mebibytes()
		fits := mib >= s.least && mib <= s.most && mib%s.by == 0 && memory%(1<<20) == 0
		if cpu == 250 && mib == 1536 {
			fits = false // Fargate has only 0.5, 1 and 2 GB
		}
		if !fits {
			return "memory", fmt.Sprintf("memory is %s, which Fargate does not support with %s CPUs", memory, cpu),
				fmt.Sprintf("It supports %s to %s, in steps of %s.", Size(s.least<<20), Size(s.most<<20), Size(s.by<<20))
		}
		return "", "", ""
	}
	var can []string
	for _, s := range sizes {
		can = append(can, s.cpu.String())
	}
	return "cpu", fmt.Sprintf("cpu is %s, which Fargate does not support", cpu), "It supports: " + strings.Join(can, ", ") + "."
}

func (r *ClusterRunner[C]) check(c *checker) {
	c.kubernetesJob(&r.Job, r.direct())
	if cluster, ok := any(r.Cluster).(*KubernetesCluster); ok && cluster != nil {
		c.kubernetesAuth(cluster.Auth)
	}
}

func (c *checker) kubernetesAuth(a KubernetesAuth) {
	const where = "runner_configuration.cluster.auth"
	switch {
	case (a.ClientCertificateData == "") != (a.ClientKeyData == ""):
		c.Report(where, "missing-field", where+" needs both client_certificate_data and client_key_data", "")
	case (a.ServiceAccountToken == "") == (a.ClientKeyData == ""):
		c.Report(where, "conflicting-fields", where+" needs either a client certificate with its key, or service_account_token", "")
	case a.ServiceAccountToken == Masked:
		c.Report(where+".service_account_token", "invalid-value", where+".service_account_token is not a token", maskHint(Masked))
	}
}

// kubernetesJob checks rules that cover more than one field. direct is true if an agent outside the cluster makes the
// jobs: such an agent has no namespace of its own as a default.
func (c *checker) kubernetesJob(j *KubernetesJob, direct bool) {
	const where = "runner_configuration.job"
	if direct {
		for _, f := range []struct{ name, value string }{{"namespace", j.Namespace}, {"service_account", j.ServiceAccount}} {
			if f.value == "" {
				c.Report(where+"."+f.name, "missing-field", fmt.Sprintf("%s lacks the field %q", where, f.name), "It is required if cluster is set.")
			}
		}
	}
	if j.CPULimit != 0 && j.CPURequest > j.CPULimit {
		c.Report(where+".cpu_request", "invalid-value", fmt.Sprintf("%s.cpu_request is %s, more than the limit of %s", where, j.CPURequest, j.CPULimit), "")
	}
	if j.MemoryLimit != 0 && j.MemoryRequest > j.MemoryLimit {
		c.Report(where+".memory_request", "invalid-value", fmt.Sprintf("%s.memory_request is %s, more than the limit of %s", where, j.MemoryRequest, j.MemoryLimit), "")
	}
}

func (r *DockerRunner) check(c *checker) {
	if reg := r.Job.Registry; reg != nil && reg.Password == Masked {
		const where = "runner_configuration.job.registry.password"
		c.Report(where, "invalid-value", where+" is not a password", maskHint(Masked))
	}
}

func (r *LocalRunner) check(c *checker) {
	if len(r.Job.Labels) > 0 {
		c.Report("runner_configuration.job.labels", "invalid-value", "runner_configuration.job.labels cannot be set for a runner of kind local", "A process has no labels. Remove them.")
	}
}

// podTemplate checks an overlay on a job's pod. It refuses misspelt names and fields that would change the job's
// identity. The API server checks the values.
func (c *checker) podTemplate(n yamlnode.Node, where string) {
	if n.Shape != yamlnode.Map {
		return
	}
	c.directives(n, where)
	c.known(n, where, []string{"metadata", "spec"})
	if meta, ok := n.Child("metadata"); ok {
		c.known(meta, where+".metadata", []string{"labels", "annotations"})
	}
	spec, ok := n.Child("spec")
	if !ok || !c.known(spec, where+".spec", podFields()) {
		return
	}
	for _, f := range spec.Fields {
		instead := map[string]string{
			"serviceAccountName": "job.service_account", "serviceAccount": "job.service_account", "restartPolicy": "", "activeDeadlineSeconds": "job.timeout",
			"terminationGracePeriodSeconds": "job.stop_grace",
		}
		if use, no := instead[f.Key]; no {
			hint := ""
			if use != "" {
				hint = "Set it in " + use + "."
			}
			c.At(f.Place, "reserved-name", fmt.Sprintf("%s.spec.%s cannot be set by a pod template", where, f.Key), hint)
		}
		if f.Key != "containers" && f.Key != "initContainers" {
			continue
		}
		path := where + ".spec." + f.Key
		if f.Value.Shape != yamlnode.List {
			c.WrongType(f.Value, path, "a list", "")
			continue
		}
		for _, item := range f.Value.Items {
			c.container(item, path, f.Key == "containers")
		}
	}
}

// container checks a container of a pod template.
func (c *checker) container(n yamlnode.Node, where string, step bool) {
	if !c.known(n, where, containerFields()) {
		return
	}
	label, ok := n.Child("name")
	text, _ := label.Value.(string)
	switch {
	case !ok:
		c.At(n.Place, "missing-field", fmt.Sprintf("a container of %s lacks the field \"name\"", where), fmt.Sprintf("The container of a job is called %s.", StepContainer))
	case step && text != StepContainer:
		c.At(label.Place, "unknown-container", fmt.Sprintf("a job has no container %s", yamlnode.Quote(text)),
			fmt.Sprintf("The container of a job is called %s. Add a container that runs next to it under initContainers, with restartPolicy: Always.", StepContainer))
	case !step && text == StepContainer:
		c.At(label.Place, "reserved-name", fmt.Sprintf("the name %s is reserved for the container of the job", StepContainer), "")
	}
	for _, f := range n.Fields {
		switch {
		case step && (f.Key == "command" || f.Key == "args"):
			c.At(f.Place, "reserved-name", fmt.Sprintf("the field %q of the container %s cannot be set by a pod template", f.Key, StepContainer), "")
		case f.Key == "image":
			path := where + ".image"
			c.Put(path, f.Value)
			if image, ok := f.Value.Value.(string); ok {
				c.image(image, path)
			}
		case f.Key == "env":
			for _, v := range f.Value.Items {
				if key, ok := v.Child("name"); ok {
					name, _ := key.Value.(string)
					path := where + ".env." + name
					c.Put(path, key)
					c.variable(name, path)
				}
			}
		}
	}
}

// known reports fields that are not in fields. ok is false if n is not a map.
func (c *checker) known(n yamlnode.Node, where string, fields []string) (ok bool) {
	if n.Shape != yamlnode.Map {
		c.WrongType(n, where, "a map", "")
		return false
	}
	for _, f := range n.Fields {
		if !slices.Contains(fields, f.Key) && !strings.HasPrefix(f.Key, "$") {
			c.At(f.Place, "unknown-field", fmt.Sprintf("%s has no field %s", where, yamlnode.Quote(f.Key)), yamlnode.DidYouMean(f.Key, "fields", fields))
		}
	}
	return true
}

// directives refuses the directives of a strategic merge, because a directive could remove the job's own container.
func (c *checker) directives(n yamlnode.Node, where string) {
	for _, item := range n.Items {
		c.directives(item, where)
	}
	for _, f := range n.Fields {
		if strings.HasPrefix(f.Key, "$") {
			c.At(f.Place, "reserved-name", fmt.Sprintf("%s holds the directive %s", where, yamlnode.Quote(f.Key)), "A pod template can add and replace, but not remove.")
		}
		c.directives(f.Value, where)
	}
}

// podFields are the fields of a pod's spec in Kubernetes 1.34.
func podFields() []string {
	return strings.Fields(`activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks
		hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os
		overhead preemptionPolicy priority priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName
		schedulerName schedulingGates securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
		terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes`)
}

// containerFields are the fields of a container in Kubernetes 1.34.
func containerFields() []string {
	return strings.Fields(`args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy
		resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath
		terminationMessagePolicy tty volumeDevices volumeMounts workingDir`)
}
