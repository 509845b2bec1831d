// Command buildkitd builds the pinned BuildKit and its client buildctl from Go modules into the user's cache folder, for
// tests that build images. The first run takes about four minutes on two cores; later runs find the programs and do
// nothing.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
)

func main() {
	dir, err := daemon.Programs().Build(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
