// Package clusters makes the executors whose clients are large: Kubernetes' and
// ECS'. A program that is to have them names them to its agent.
package clusters

import (
	"context"
	"fmt"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/assume"
	"github.com/fairlead/fairlead/runner/executor/ecs"
	"github.com/fairlead/fairlead/runner/executor/kubernetes"
)

// Executors returns them by the FAIRLEAD_EXECUTOR that names them.
func Executors() map[string]agent.OpenExecutor {
	return map[string]agent.OpenExecutor{"kubernetes": openKubernetes, "ecs": openECS}
}

func openKubernetes(_ context.Context, s agent.Site) (executor.Executor, error) {
	return Kubernetes(s, nil)
}

// Kubernetes makes the executor of a cluster, which is reached as reach says;
// nil: as the site's setup says, by a kubeconfig or from a pod of the cluster.
func Kubernetes(s agent.Site, reach *rest.Config) (executor.Executor, error) {
	k := s.Setup.Kubernetes
	return kubernetes.New(kubernetes.Options{Kubernetes: k.Kubernetes, Runner: s.Runner, PodTemplate: k.PodTemplate, SecretEnv: k.Secrets, Cluster: reach})
}

func openECS(ctx context.Context, s agent.Site) (executor.Executor, error) {
	e := s.Setup.ECS
	ac, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment itself, as every program on the SDK does
	if err != nil {
		return nil, fmt.Errorf("AWS configuration: %w", err)
	}
	if e.Auth != nil {
		ac = assume.Role(ac, *e.Auth, e.Region, "fairlead-"+s.Runner)
	}
	o := ecs.Options{ECS: e.ECS, Steps: s.Steps, Runner: s.Runner, AWS: ac}
	if d := e.Definition; d != nil {
		o.Definition = &ecs.Definition{Image: d.Image, PullSecret: d.PullSecret, Secrets: d.Secrets, StopGrace: d.StopGrace}
	}
	return ecs.New(o)
}
