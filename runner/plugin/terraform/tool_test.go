package terraform

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A version file that a power cut emptied or truncated, or that a job altered to make the next job run a command, must be
// replaced by a new answer of the tool.
func TestTornVersionFileIsReplaced(t *testing.T) {
	data, program := t.TempDir(), filepath.Join(t.TempDir(), "tofu")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = version ] && echo '{\"terraform_version\": \"1.2.3\"}' || echo \"does $1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	find := func() (known, launch string) {
		t.Helper()
		it, err := New(Config{Data: data, Tool: program, Environ: []string{"PATH=" + os.Getenv("PATH")}}).findTool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if launch, err = it.makeLauncher(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(it.facts, "version.json"), launch
	}
	outputOf := func(launch, args string) string {
		t.Helper()
		out, err := exec.Command(launch, args).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	path, _ := find()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	for name, torn := range map[string][]byte{
		"empty":                            {},
		"zero bytes":                       make([]byte, len(whole)),
		"the first half":                   whole[:len(whole)/2],
		"without the last bytes":           whole[:len(whole)-2],
		"without a version":                []byte(`{}`),
		"a shell command":                  []byte(`{"terraform_version":"1.2.3'; touch ` + ran + `; '"}`),
		"a shell command after the object": []byte(`{"terraform_version":"1.2.3"}'; touch ` + ran + `; '`),
		"a second line":                    []byte(`{"terraform_version":"1.2.3\ntouch ` + ran + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			_, launch := find()
			for args, want := range map[string]string{"version": `{"terraform_version":"1.2.3","provider_selections":{}}`, "plan": "does plan"} {
				if got := outputOf(launch, args); got != want {
					t.Errorf("%s prints %q", args, got)
				}
			}
		})
	}
	for name, text := range map[string]string{
		"a platform that is a command": `{"terraform_version":"1.2.3","platform":"'; touch ` + ran + `; '"}`,
		"more than an answer":          `{"terraform_version":"1.2.3","provider_selections":{"x":"'; touch ` + ran + `; '"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, launch := find()
			if got := outputOf(launch, "plan"); got != "does plan" {
				t.Errorf("plan prints %q", got)
			}
			outputOf(launch, "version")
		})
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the planted command ran")
	}
	// A complete file is used unchanged: asking the tool costs a process.
	if err := os.WriteFile(path, bytes.ReplaceAll(whole, []byte("1.2.3"), []byte("1.2.4")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, launch := find(); !strings.Contains(outputOf(launch, "version"), "1.2.4") {
		t.Error("the tool was asked again")
	}
}
