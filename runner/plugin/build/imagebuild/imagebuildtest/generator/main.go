// Command generator is a small generator of SBOMs, by BuildKit's protocol: it reads the root folder of an image, and writes
// an in-toto statement. It must be static, because its image has no other files.
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Getenv("BUILDKIT_SCAN_SOURCE"), os.Getenv("BUILDKIT_SCAN_DESTINATION")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(source, destination string) error {
	var files []map[string]string
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(source, path)
		files = append(files, map[string]string{"fileName": name})
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"_type": "https://in-toto.io/Statement/v0.1", "predicateType": "https://spdx.dev/Document",
		"predicate": map[string]any{"spdxVersion": "SPDX-2.3", "files": files}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(destination, filepath.Base(source)+".spdx.json"), text, 0o644)
}
