//go:build !clusters

package main

import "github.com/fairlead/fairlead/runner/agent"

// executors are those beside process and docker: none in this build.
func executors() map[string]agent.OpenExecutor { return nil }
