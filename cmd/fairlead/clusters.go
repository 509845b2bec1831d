//go:build clusters

package main

import (
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
)

// executors are those beside process and docker. With them a server serves the
// runners whose jobs run on compute that it reaches.
func executors() map[string]agent.OpenExecutor { return clouds.Executors(clouds.Identity{}) }
