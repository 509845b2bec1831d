// Command apidoc writes what the APIs say of themselves into a folder: their
// OpenAPI documents, and the list of problems.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apidoc FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	docs, err := api.Documents()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "openapi"), 0o755); err != nil {
		return err
	}
	files := map[string][]byte{"PROBLEMS.md": api.ProblemsMarkdown()}
	for name, doc := range docs {
		files[filepath.Join("openapi", name+".yaml")] = doc
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
