// Command light is fairlead-step: it runs one job, like `fairlead-runner step`, and links no client of a cloud and no builder of
// artifacts. So its process starts with a third of the CPU time. An agent that finds it beside its own program starts it for
// the jobs that need neither.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/runner/step"
)

// version is set by the linker.
var version = "dev"

const usage = `usage: fairlead-step <command>

  step      run one job that needs no client of a cloud; started by the agent
  version   print the version
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch args[0] {
	case "step":
		return step.Main(context.Background(), args[1:], step.Options{Version: version, Stderr: os.Stderr, Environ: os.Environ()})
	case "version":
		fmt.Println(version)
		return 0
	case "help", "-h", "--help":
		fmt.Print(usage)
		return 0
	}
	fmt.Fprint(os.Stderr, usage)
	return 2
}
