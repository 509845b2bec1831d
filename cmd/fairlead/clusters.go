//go:build clusters

package main

import (
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
)

// executors returns the executors other than process and docker. With them a server runs
// the agents of runners whose jobs run on compute that the server reaches.
func executors() map[string]agent.OpenExecutor { return clouds.Executors(clouds.Identity{}) }
