// Package clouds makes the executors of agents beside the control plane: those
// of package clusters, with the ways by which a cluster is reached from outside.
// An agent that is installed has none of them, so its program does not carry
// them either.
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

// Identity is who the control plane is to the clouds. The zero value is who this
// process is, by its environment and its machine.
type Identity struct {
	AWS  func(ctx context.Context) (aws.Config, error)
	HTTP *http.Client // asks the clouds other than AWS
}

// Executors returns them by name.
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
