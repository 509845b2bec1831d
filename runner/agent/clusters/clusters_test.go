package clusters_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/clusters"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

// The agent's file alone selects and configures the executor. The error for an incomplete file names the missing field.
func TestAgentFileSelectsTheExecutor(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   string // part of the error; "": no error
	}{
		"kubernetes without a service account": {config: "{type: kubernetes, job: {image: 'runner:1'}}", want: "runner_configuration.job.service_account"},
		"EKS without a kubeconfig":             {config: "{type: aws-eks, job: {image: 'runner:1', service_account: jobs}}", want: "runner_configuration.job.kubeconfig"},
		"ECS":                                  {config: "{type: aws-ecs, job: {region: eu-west-1, cluster: c, subnets: [subnet-01234567], task_definition: runner}}"},
		"ECS without a subnet":                 {config: "{type: aws-ecs, job: {cluster: c, task_definition: runner}}", want: "runner_configuration.job.subnets"},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			file, err := agent.ReadFile("{runner_configuration: " + tc.config + "}")
			if err != nil {
				t.Fatal(err)
			}
			setup, err := launchconfig.Of(file.Runner, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			e, err := clusters.Executors()[setup.Executor()](t.Context(), agent.Site{Data: data, Steps: filepath.Join(data, "steps"), Runner: "run_1", Setup: setup})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got error %v, want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if place := e.Place(); place.Shared || place.Machine || !filepath.IsAbs(place.Data) || place.KillFor == 0 {
				t.Errorf("wrong place of steps: %+v", place)
			}
		})
	}
}
