package clusters_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/clusters"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

// Each executor is made from the environment alone, and says which variable it
// lacks.
func TestExecutorIsTakenFromTheConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		executor string
		environ  []string
		want     string // of the error; "": none
	}{
		"jobs without a service account": {executor: "kubernetes", environ: []string{"FAIRLEAD_KUBERNETES_IMAGE=runner:1"}, want: "FAIRLEAD_KUBERNETES_SERVICE_ACCOUNT"},
		"jobs of a cluster that is not":  {executor: "kubernetes", environ: []string{"FAIRLEAD_KUBERNETES_IMAGE=runner:1", "FAIRLEAD_KUBERNETES_SERVICE_ACCOUNT=jobs"}, want: "FAIRLEAD_KUBECONFIG"},
		"tasks":                          {executor: "ecs", environ: []string{"FAIRLEAD_ECS_REGION=eu-west-1", "FAIRLEAD_ECS_CLUSTER=c", "FAIRLEAD_ECS_SUBNETS=subnet-1", "FAIRLEAD_ECS_TASK_DEFINITION=runner"}},
		"tasks without a subnet":         {executor: "ecs", environ: []string{"FAIRLEAD_ECS_CLUSTER=c", "FAIRLEAD_ECS_TASK_DEFINITION=runner"}, want: "FAIRLEAD_ECS_SUBNETS"},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			var env launchconfig.Environment
			for _, of := range []any{&env.Kubernetes, &env.ECS} {
				if err := config.Load(of, flag.NewFlagSet("executor", flag.ContinueOnError), nil, tc.environ); err != nil {
					t.Fatal(err)
				}
			}
			e, err := clusters.Executors()[tc.executor](t.Context(), agent.Site{Data: data, Steps: filepath.Join(data, "steps"), Runner: "run_1", Setup: launchconfig.Alone(env)})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want something about %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if place := e.Place(); place.Shared || place.Machine || !filepath.IsAbs(place.Data) || place.KillFor == 0 {
				t.Errorf("steps are at %+v", place)
			}
		})
	}
}
