// Command oldtools builds the oldest Terraform and OpenTofu that are supported into
// the user's cache folder, once, from Go modules: the test of what the terraform
// plugin does with them finds them there. It takes some eight minutes on two cores,
// and then nothing.
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
