package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
)

// startServer starts a control plane in this process.
func startServer(context.Context, cli.ServerOptions) (cli.Server, error) {
	return nil, errors.New("this build holds no control plane")
}

// runnerAgent is `runner agent`.
func runnerAgent([]string) int { return noRunner() }

// runnerStep is `runner step`.
func runnerStep([]string) int { return noRunner() }

func noRunner() int {
	fmt.Fprintln(os.Stderr, "Error: this build holds no runner.")
	return 1
}
