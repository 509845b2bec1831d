package terraform

import (
	"bytes"
	"os"
	"path/filepath"
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
	found := func() (known string, k kind) {
		t.Helper()
		it, err := New(Config{Data: data, Tool: program, Environ: []string{"PATH=" + os.Getenv("PATH")}}).findTool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(it.known, "version.json"), it.kind
	}
	real := kind{openTofu: true, version: "v1.2.3"}
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
			if _, k := found(); k != real {
				t.Errorf("the tool is %+v", k)
			}
			if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, whole) {
				t.Errorf("%q is kept, %v", b, err)
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
			if _, k := found(); k != real {
				t.Errorf("the tool is %+v", k)
			}
		})
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("what was planted was run")
	}
	// One that is whole is used as it is: to ask the tool costs a process.
	if err := os.WriteFile(path, bytes.ReplaceAll(whole, []byte("1.2.3"), []byte("1.2.4")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, k := found(); k.version != "v1.2.4" {
		t.Error("the tool was asked again")
	}
}
