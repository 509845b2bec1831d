// Command runner is what a customer runs beside their resources: `runner agent`
// claims jobs, `runner step`, which the agent starts, runs one.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/step"
)

// version is set by the linker.
var version = "dev"

const usage = `usage: runner <command>

  agent     claim jobs and run them until told to stop (see agent --help)
  agent pause | drain | disable | enable | mode
            say whether the agent works: the vendor cannot overrule it
  step      run one job; started by the agent
  version   print the version
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch args[0] {
	case "agent":
		return agent.Main(context.Background(), args[1:], agent.Options{Version: version, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Executors: executors()})
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
