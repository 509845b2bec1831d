//go:build clusters && !light

package main

import (
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
)

// executors returns all executors except process and docker. With these executors, a
// server also runs agents itself: the agents of runners whose jobs run on compute that
// the server reaches.
func executors() map[string]agent.OpenExecutor { return clouds.Executors(clouds.Identity{}) }
