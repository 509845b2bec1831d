package terraform

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a power cut has emptied, or torn, of what is known of the tool is asked
// again: until a person removed it, no job could be run. So is what a job has
// put there to have it run by the next one.
func TestATornAnswerOfTheToolFailsEveryJobAfterAPowerCut(t *testing.T) {
	data, program := t.TempDir(), filepath.Join(t.TempDir(), "tofu")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = version ] && echo '{\"terraform_version\": \"1.2.3\"}' || echo \"does $1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	found := func() (known, launch string) {
		t.Helper()
		it, err := New(Config{Data: data, Tool: program, Environ: []string{"PATH=" + os.Getenv("PATH")}}).findTool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if launch, err = it.makeLauncher(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(it.known, "version.json"), launch
	}
	says := func(launch, args string) string {
		t.Helper()
		out, err := exec.Command(launch, args).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	path, _ := found()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	for name, torn := range map[string][]byte{
		"empty":                  {},
		"its blocks empty":       make([]byte, len(whole)),
		"its first half":         whole[:len(whole)/2],
		"without its end":        whole[:len(whole)-2],
		"of no version":          []byte(`{}`),
		"a command for a shell":  []byte(`{"terraform_version":"1.2.3'; touch ` + ran + `; '"}`),
		"a command after quotes": []byte(`{"terraform_version":"1.2.3"}'; touch ` + ran + `; '`),
		"a second line":          []byte(`{"terraform_version":"1.2.3\ntouch ` + ran + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			_, launch := found()
			for args, want := range map[string]string{"version": `{"terraform_version":"1.2.3","provider_selections":{}}`, "plan": "does plan"} {
				if got := says(launch, args); got != want {
					t.Errorf("%s says %q", args, got)
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
			_, launch := found()
			if got := says(launch, "plan"); got != "does plan" {
				t.Errorf("plan says %q", got)
			}
			says(launch, "version")
		})
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("what was planted was run")
	}
	// One that is whole is used as it is: to ask the tool costs a process.
	if err := os.WriteFile(path, bytes.ReplaceAll(whole, []byte("1.2.3"), []byte("1.2.4")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, launch := found(); !strings.Contains(says(launch, "version"), "1.2.4") {
		t.Error("the tool was asked again")
	}
}
