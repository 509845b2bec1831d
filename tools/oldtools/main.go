// Command oldtools builds the oldest supported Terraform and OpenTofu from Go modules
// into the user's cache folder. Tests of the terraform plugin use them. The first run
// takes some eight minutes on two cores; later runs find the programs and do nothing.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead/fairlead/tools/oldtools/oldtool"
)

func main() {
	for _, p := range oldtool.All() {
		path, err := p.Build(os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(path)
	}
}
