package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// replacements maps each variable of earlier agents to the field of the agent's file
// that replaced the variable. If a variable with an executor's prefix is not in this
// list, the field of the same name in runner_configuration.job replaced it.
const replacements = `
FAIRLEAD_EXECUTOR type
FAIRLEAD_FOLLOW final
FAIRLEAD_CONCURRENCY concurrency
FAIRLEAD_STEP_URL job.endpoint
FAIRLEAD_KUBECONFIG job.kubeconfig
FAIRLEAD_DOCKER_HOST host
FAIRLEAD_DOCKER_PULL job.image_pull_policy
FAIRLEAD_DOCKER_REGISTRY_USERNAME job.registry.username
FAIRLEAD_DOCKER_REGISTRY_PASSWORD_FILE job.registry.password_file
FAIRLEAD_DOCKER_CPU job.cpu_limit
FAIRLEAD_DOCKER_MEMORY job.memory_limit
FAIRLEAD_DOCKER_PIDS job.pids_limit
FAIRLEAD_KUBERNETES_PULL job.image_pull_policy
FAIRLEAD_KUBERNETES_POD_TEMPLATE_FILE job.pod_template
FAIRLEAD_ECS_TASK_ROLE job.task_role_arn
FAIRLEAD_ECS_EXECUTION_ROLE job.execution_role_arn
FAIRLEAD_ECS_TAGS job.labels
`

// Replaced returns an error if environ ("name=value" strings) sets variables that only
// earlier agents read. The error names the field that replaced each variable.
func Replaced(environ []string) error {
	fields := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(replacements)) {
		name, field, _ := strings.Cut(strings.TrimSpace(line), " ")
		fields[name] = field
	}
	set := env.ToMap(environ)
	var found []error
	for _, name := range slices.Sorted(maps.Keys(set)) {
		field := fields[name]
		for _, prefix := range []string{"FAIRLEAD_DOCKER_", "FAIRLEAD_KUBERNETES_", "FAIRLEAD_ECS_"} {
			if rest, ok := strings.CutPrefix(name, prefix); ok && field == "" {
				field = "job." + strings.ToLower(rest)
			}
		}
		if field == "" || set[name] == "" {
			continue
		}
		if field != "final" {
			field = "runner_configuration." + field
		}
		found = append(found, fmt.Errorf("%s is no longer supported: set %s in the agent's file, which FAIRLEAD_AGENT_CONFIG names", name, field))
	}
	return errors.Join(found...)
}
