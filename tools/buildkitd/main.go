// Command buildkitd builds the pinned BuildKit, its client buildctl and the program ko from Go modules into the user's cache
// folder, for tests that build images. The first run takes about six minutes on two cores; later runs find the programs and
// do nothing.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
	"github.com/fairlead/fairlead/tools/kotool"
	"github.com/fairlead/fairlead/tools/pinned"
)

func main() {
	for _, programs := range []pinned.Programs{daemon.Programs(), kotool.Programs()} {
		dir, err := programs.Build(os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(dir)
	}
}
