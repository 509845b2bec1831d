// Package clouds makes the executors of agents that run next to the control plane: those of package
// clusters, plus the connections to clusters from outside. An agent in a customer's account needs
// none of these connections, so its program does not contain them.
package clouds

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/clusters"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/kubernetes/remote"
)

// Identity is how the control plane authenticates to the clouds. The zero value uses this process's
// environment and machine.
type Identity struct {
	AWS  func(ctx context.Context) (aws.Config, error)
	HTTP *http.Client // for clouds other than AWS
}

// Executors returns the executors by name.
func Executors(of Identity) map[string]agent.OpenExecutor {
	if of.AWS == nil {
		of.AWS = func(ctx context.Context) (aws.Config, error) { return awsconfig.LoadDefaultConfig(ctx) }
	}
	all := maps.Clone(clusters.Executors())
	all[runnerspec.ExecutorKubernetes] = of.openKubernetes
	return all
}

func (of Identity) openKubernetes(ctx context.Context, s agent.Site) (executor.Executor, error) {
	o := remote.Options{Session: "fairlead-" + s.Runner, HTTP: of.HTTP, Now: time.Now}
	if s.Setup.Runner.Kind() != runnerspec.Kubernetes {
		var err error
		if o.AWS, err = of.AWS(ctx); err != nil {
			return nil, fmt.Errorf("AWS configuration: %w", err)
		}
	}
	cfg, err := remote.Config(s.Setup.Runner, o)
	if err != nil {
		return nil, err
	}
	return clusters.Kubernetes(s, cfg)
}
