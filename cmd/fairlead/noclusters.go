//go:build !clusters

package main

import "github.com/fairlead/fairlead/runner/agent"

// executors returns the executors other than process and docker: this build has none.
func executors() map[string]agent.OpenExecutor { return nil }
