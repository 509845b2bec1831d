// Command statesdoc writes docs/STATES.md: the states of jobs from the table
// of package job, those of deployments by walking through every life of a
// small one, and what a state or an event means from the comments beside them.
// Nothing in the document can differ from the code but the few sentences in
// this command.
//
//	go run ./pkg/job/statesdoc docs/STATES.md
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "statesdoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: statesdoc FILE")
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	doc, err := render(root)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], doc, 0o644)
}

// moduleRoot returns the nearest folder upwards that holds a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
}

// render returns the whole document; root is the module's folder.
func render(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# States\n\n")
	b.WriteString("Generated from the code by `go generate ./pkg/job`; edit `pkg/job/transitions.go`, the comments in\n" +
		"`pkg/job` and `pkg/deployment`, or `pkg/job/statesdoc`, and generate again.\n\n")
	if err := writeJobs(&b, root); err != nil {
		return nil, err
	}
	b.WriteString("\n")
	if err := writeDeployments(&b, root); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
