// Command direct runs beside a serverless control plane, in the vendor's account: it runs the agents
// of runners whose compute the control plane's account reaches, so that nothing is installed there.
//
// It is not a command of the runner: its clients of clusters and clouds would delay the start of each
// step's process by two milliseconds.
package main

import (
	"context"
	"os"

	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
	"github.com/fairlead/fairlead/runner/agent/direct/service"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(service.Main(context.Background(), os.Args[1:], service.Options{Version: version, Stderr: os.Stderr, Environ: os.Environ(), Executors: clouds.Executors(clouds.Identity{})}))
}
