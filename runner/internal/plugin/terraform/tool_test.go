package terraform

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A launcher that a power cut has emptied, or torn, is made anew: until a person
// removed it, no job could be run.
func TestAnEmptyLauncherFailsEveryJobAfterAPowerCut(t *testing.T) {
	data, program := t.TempDir(), filepath.Join(t.TempDir(), "tofu")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = version ] && echo '{\"terraform_version\": \"1.2.3\"}' || echo \"does $1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	found := func() *tool {
		t.Helper()
		it, err := New(Config{Data: data, Tool: program, Environ: []string{"PATH=" + os.Getenv("PATH")}}).findTool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
	path := filepath.Join(found().known, "launcher")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, torn := range map[string][]byte{
		"empty":            {},
		"its blocks empty": make([]byte, len(whole)),
		"its first half":   whole[:len(whole)/2],
		"without its end":  whole[:len(whole)-2],
		"of another tool":  bytes.ReplaceAll(whole, []byte(program), []byte("/bin/other")),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, torn, 0o700); err != nil {
				t.Fatal(err)
			}
			launch := found().launch
			for args, want := range map[string]string{"version": `{"terraform_version":"1.2.3"}`, "plan": "does plan"} {
				if out, err := exec.Command(launch, args).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
					t.Errorf("%s says %q, %v", args, out, err)
				}
			}
		})
	}
	// One that is whole is used as it is: to ask the tool costs a process.
	if err := os.WriteFile(path, bytes.ReplaceAll(whole, []byte("1.2.3"), []byte("1.2.4")), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(found().launch, "version").CombinedOutput(); err != nil || !strings.Contains(string(out), "1.2.4") {
		t.Errorf("it was made again: %q, %v", out, err)
	}
}
