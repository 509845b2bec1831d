// Command runner runs in the customer's account, next to their resources: `runner agent` claims
// jobs and starts `runner step` for each; `runner step` runs one job.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/selfcopy"
	"github.com/fairlead/fairlead/runner/step"
	"github.com/fairlead/fairlead/runner/step/parts"
)

// version is set by the linker.
var version = "dev"

const usage = `usage: runner <command>

  agent     claim jobs and run them until it is stopped (see agent --help)
  agent pause | drain | disable | enable | mode
            set or show the customer's mode; the vendor cannot override it
  install-key show INSTALL_ID | rotate
            print the public key of an install, or add a seed; for the customer
  step      run one job; started by the agent
  copy      copy this program to a folder, for a step in an image of its own;
            started by the agent
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
	case "install-key":
		return agent.InstallKey(args[1:], agent.Options{Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()})
	case "step":
		return step.Main(context.Background(), args[1:], step.Options{Version: version, Stderr: os.Stderr, Environ: os.Environ(), Parts: parts.All()})
	case executor.CopyCommand:
		if len(args) != 2 {
			break
		}
		if err := selfcopy.To(args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
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
