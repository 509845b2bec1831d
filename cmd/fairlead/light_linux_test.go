package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/program"
)

// The light program has neither a server nor clients of AWS. For a command that needs them, it becomes the whole program beside it, with
// the same arguments, process and environment.
func TestLightProgramBecomesTheWholeOne(t *testing.T) {
	light := filepath.Join(t.TempDir(), "fairlead")
	built, err := os.ReadFile(program.Build(t, "cmd/fairlead", "-tags=light"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(light, built, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(light, args...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "MINE=kept"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\noperations: [plan]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants := [][]string{
		{"dev", "--listen", "127.0.0.1:0"}, {"server"}, {"--json", "server"}, {"runner", "agent"}, {"runner", "step", "--x"}, {"ops", "replay", "--stage", "prod"},
		{"policy", "test", policy, "--ledger", "s3:bucket/prefix"},
	}
	for _, args := range wants {
		if out, err := run(args...); err == nil || !strings.Contains(out, "fairlead-server") {
			t.Errorf("%v without the whole program: %v, %s", args, err, out)
		}
	}
	whole := "#!/bin/sh\necho \"$MINE: $0 $*\"\nexit 7\n"
	if err := os.WriteFile(light+"-server", []byte(whole), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range wants {
		out, err := run(args...)
		if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 7 || out != "kept: "+light+"-server "+strings.Join(args, " ")+"\n" {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	for _, args := range [][]string{{"version"}, {"server", "--help"}, {"policy", "test", policy, "--ledger", "file:/none"}} {
		if out, _ := run(args...); strings.Contains(out, "kept:") || strings.Contains(out, "fairlead-server") {
			t.Errorf("%v needs no other program: %s", args, out)
		}
	}
}
