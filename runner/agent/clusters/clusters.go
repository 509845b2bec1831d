// Package clusters makes the executors that have large clients: Kubernetes and ECS. A program that
// needs them passes them to its agent.
package clusters

import (
	"context"
	"fmt"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/assume"
	"github.com/fairlead/fairlead/runner/executor/ecs"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
)

// Executors returns the executors by name.
func Executors() map[string]agent.OpenExecutor {
	return map[string]agent.OpenExecutor{runnerspec.ExecutorKubernetes: openKubernetes, runnerspec.ExecutorECS: openECS}
}

func openKubernetes(_ context.Context, s agent.Site) (executor.Executor, error) {
	return Kubernetes(s, nil)
}

// Kubernetes makes the executor of a cluster. The parameter reach configures the connection to the
// cluster. If reach is nil, the site's setup selects a kubeconfig, or the agent runs in a pod of the
// cluster.
func Kubernetes(s agent.Site, reach *rest.Config) (executor.Executor, error) {
	return kubernetes.New(kubernetes.Options{Job: *runnerspec.KubernetesJobOf(s.Setup.Runner), Runner: s.Runner, Cluster: reach})
}

func openECS(ctx context.Context, s agent.Site) (executor.Executor, error) {
	r := s.Setup.Runner.(*runnerspec.ECSRunner)
	ac, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment, like every program that uses the SDK
	if err != nil {
		return nil, fmt.Errorf("AWS configuration: %w", err)
	}
	if r.Auth != nil {
		ac = assume.Role(ac, *r.Auth, r.Job.Region, "fairlead-"+s.Runner)
	}
	return ecs.New(ecs.Options{Job: r.Job, Steps: s.Steps, Runner: s.Runner, AWS: ac})
}
