package runnerspec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

func TestAgentFileIsRead(t *testing.T) {
	a, problems := runnerspec.ParseAgent("agent.yaml", []byte(`
final: true
runner_configuration:
  type: kubernetes
  concurrency: 3
  job:
    memory_limit: 2Gi
    keep_for: 2h
    pass_env: []
    pod_template: {spec: {tolerations: [{key: spot}]}}
`))
	k, ok := a.Runner.(*runnerspec.KubernetesRunner)
	if len(problems) > 0 || !ok || !a.Final {
		t.Fatalf("agent %+v, problems %v", a, problems)
	}
	if k.Concurrency != 3 || k.Job.MemoryLimit != 2<<30 || time.Duration(k.Job.KeepFor) != 2*time.Hour || k.Job.PassEnv == nil || k.Job.PodTemplate["spec"] == nil {
		t.Errorf("runner %+v", k)
	}
	// Fields that only the control plane's configuration requires may be absent here.
	if a, problems = runnerspec.ParseAgent("agent.yaml", []byte(`{runner_configuration: {type: aws-ecs, job: {task_definition: own, log_group: own, execution_role_arn: "arn:aws:iam::123456789012:role/execution"}}}`)); len(problems) > 0 || a.Final {
		t.Errorf("agent %+v, problems %v", a, problems)
	}
}

func TestAgentFileMistakesAreReported(t *testing.T) {
	for name, c := range map[string]struct{ src, want string }{
		"an empty file":                 {"", `agent.yaml:1:1: the file must be a map`},
		"no runner":                     {"final: true", `agent.yaml:1:1: the file lacks the field "runner_configuration" [missing-field]`},
		"no type":                       {"runner_configuration:\n  job: {}", `agent.yaml:2:3: runner_configuration lacks the field "type" [missing-field]`},
		"an unknown kind":               {"runner_configuration: {type: dokcer}", `agent.yaml:1:30: "dokcer" is not a kind of runner [unknown-type]. Did you mean "docker"?`},
		"an unknown field":              {"runner_configuration:\n  type: docker\n  job: {immage: x}", `agent.yaml:3:9: runner_configuration.job has no field "immage" [unknown-field]. Did you mean "image"?`},
		"a field of the control plane":  {"{description: x, runner_configuration: {type: local}}", `the file has no field "description"`},
		"an invalid size":               {"runner_configuration:\n  type: docker\n  job: {memory_limit: much}", `agent.yaml:3:23: runner_configuration.job.memory_limit wants a size`},
		"an unknown pull policy":        {"{runner_configuration: {type: docker, job: {image_pull_policy: sometimes}}}", `Always, IfNotPresent or Never`},
		"a volume without a target":     {"{runner_configuration: {type: docker, job: {volumes: [/srv]}}}", `/host/folder:/container/folder`},
		"a volume with a relative path": {"{runner_configuration: {type: docker, job: {volumes: ['srv:/srv']}}}", `/host/folder:/container/folder`},
		"a relative data folder":        {"{runner_configuration: {type: docker, job: {host_data: data}}}", `must be an absolute path`},
		"a reserved label":              {"{runner_configuration: {type: docker, job: {labels: {fairlead.dev/attempt: x}}}}", `is reserved`},
		"a reserved label of a pod":     {"{runner_configuration: {type: kubernetes, job: {labels: {fairlead.dev/attempt: x}}}}", `is reserved`},
		"a reserved tag":                {"{runner_configuration: {type: aws-ecs, job: {labels: {fairlead-runner: x}}}}", `is reserved`},
		"a selector that is a list":     {"{runner_configuration: {type: kubernetes, job: {node_selector: [ssd]}}}", `must be a map`},
		"an invalid address":            {"{runner_configuration: {type: docker, host: nowhere}}", `unix:///path`},
		"an unknown launch type":        {"{runner_configuration: {type: aws-ecs, job: {launch_type: rocket}}}", `fargate, fargate-spot or ec2`},
		"an image with a tag":           {"{runner_configuration: {type: docker, job: {images: ['registry.example.com/tools:1']}}}", `without tag and digest`},
		"a limit of no processes":       {"{runner_configuration: {type: docker, job: {pids_limit: 0}}}", `above 0, or -1 for no limit`},
		"variables of jobs":             {"{runner_configuration: {type: local, job: {environment: {A: b}}}}", `agent.yaml:1:57: runner_configuration.job.environment cannot be set here [other-side]. The control plane uses it`},
		"credentials for ECS":           {"{runner_configuration: {type: aws-ecs, auth: {role_arn: 'arn:aws:iam::123456789012:role/r'}}}", `runner_configuration.auth cannot be set here [other-side]`},
		"a password":                    {"{runner_configuration: {type: docker, job: {registry: {username: u, password: hush}}}}", `runner_configuration.job.registry.password cannot be set here [other-side]`},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := runnerspec.ParseAgent("agent.yaml", []byte(c.src))
			if len(problems) == 0 || !strings.Contains(problems.Error(), c.want) || strings.Contains(problems.Error(), "hush") {
				t.Errorf("got %v, want %s", problems, c.want)
			}
		})
	}
	r := runnerspec.Parse("r", []byte("runner_configuration:\n  type: docker\n  job: {host_data: /etc}\nstate_storage_configuration: {type: http}"))
	if want := `r:3:20: runner_configuration.job.host_data cannot be set here [other-side]. It depends on the agent's machine`; r.Spec != nil || !strings.Contains(r.Problems.Error(), want) {
		t.Errorf("got %v, want %s", r.Problems, want)
	}
}
