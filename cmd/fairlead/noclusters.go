//go:build !clusters && !light

package main

import "github.com/fairlead/fairlead/runner/agent"

// executors returns nil, because this build has only the executors process and docker.
func executors() map[string]agent.OpenExecutor { return nil }
