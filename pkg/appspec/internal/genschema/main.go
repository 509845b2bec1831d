// Command genschema writes the JSON schema of app.yaml to the file it is given.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead/fairlead/pkg/appspec"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genschema FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], appspec.Schema(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
