//go:build clusters

package main

import (
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/clusters"
)

// executors returns the executors that this build has in addition to process and docker.
func executors() map[string]agent.OpenExecutor { return clusters.Executors() }
