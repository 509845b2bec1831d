//go:build light

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
)

// wholeProgram is the name of this program with all of its parts. It is in the folder of the light one.
const wholeProgram = "fairlead-server"

// connect adds nothing: the light program only calls the API of a control plane, and starts four times as fast as the whole one. For a
// command that needs more, it becomes the whole program.
func connect(env *cli.Env) { env.Whole = becomeWhole }

func runnerAgent([]string) int { return becomeWholeOrFail() }
func runnerStep([]string) int  { return becomeWholeOrFail() }

func becomeWholeOrFail() int {
	fmt.Fprintln(os.Stderr, "fairlead:", becomeWhole())
	return 1
}

// becomeWhole replaces this process by the whole program, with the same arguments. It returns only an error.
func becomeWhole() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	program := filepath.Join(filepath.Dir(self), wholeProgram)
	return fmt.Errorf("start %s: %w", program, syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()))
}
