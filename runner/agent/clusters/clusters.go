// Package clusters makes the executors whose clients are large: Kubernetes' and
// ECS'. A program that is to have them names them to its agent.
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

// Executors returns them by name.
func Executors() map[string]agent.OpenExecutor {
	return map[string]agent.OpenExecutor{runnerspec.ExecutorKubernetes: openKubernetes, runnerspec.ExecutorECS: openECS}
}

func openKubernetes(_ context.Context, s agent.Site) (executor.Executor, error) {
	return Kubernetes(s, nil)
}

// Kubernetes makes the executor of a cluster, which is reached as reach says;
// nil: as the site's setup says, by a kubeconfig or from a pod of the cluster.
func Kubernetes(s agent.Site, reach *rest.Config) (executor.Executor, error) {
	return kubernetes.New(kubernetes.Options{Job: *runnerspec.KubernetesJobOf(s.Setup.Runner), Runner: s.Runner, Cluster: reach})
}

func openECS(ctx context.Context, s agent.Site) (executor.Executor, error) {
	r := s.Setup.Runner.(*runnerspec.ECSRunner)
	ac, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment itself, as every program on the SDK does
	if err != nil {
		return nil, fmt.Errorf("AWS configuration: %w", err)
	}
	if r.Auth != nil {
		ac = assume.Role(ac, *r.Auth, r.Job.Region, "fairlead-"+s.Runner)
	}
	return ecs.New(ecs.Options{Job: r.Job, Steps: s.Steps, Runner: s.Runner, AWS: ac})
}
