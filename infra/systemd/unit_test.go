// Package systemd_test checks the runner's systemd unit with systemd's own tools.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/tools/testserver"
)

const unit = "fairlead-runner.service"

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// analyzer returns the path of systemd-analyze. If systemd-analyze is missing, the
// test is skipped, or fails if FAIRLEAD_REQUIRE_SYSTEMD is "1".
func analyzer(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		testserver.Missing(t, "THE UNIT IS NOT VERIFIED", "FAIRLEAD_REQUIRE_SYSTEMD", "Install systemd", err)
	}
	return path
}

// systemd-analyze accepts the unit, with the program that it names.
func TestUnitIsValid(t *testing.T) {
	analyze := analyzer(t)
	program := filepath.Join(t.TempDir(), "fairlead-runner")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o711); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(t.TempDir(), unit)
	text := strings.ReplaceAll(read(t, unit), "/usr/local/bin/fairlead-runner", program)
	if err := os.WriteFile(installed, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=one", installed).CombinedOutput()
	if err != nil || strings.Contains(string(out), unit) {
		t.Errorf("%v\n%s", err, out)
	}
}

// maxExposure is a limit on systemd's exposure scale, where 10 means no confinement. A
// unit without settings has 9.6. A unit that uses the network and starts other
// programs cannot get much below 2.
const maxExposure = 2.5

func TestUnitIsConfined(t *testing.T) {
	analyze := analyzer(t)
	abs, err := filepath.Abs(unit)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", abs).CombinedOutput()
	m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Skipf("SKIPPED: this systemd cannot rate a unit that is not loaded (%v): %s", err, out)
	}
	if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level > maxExposure {
		t.Errorf("the unit's exposure is %s, more than %v:\n%s", m[1], maxExposure, out)
	}
}

// These settings decide whether a stop of the agent also stops its jobs.
func TestJobsOutliveTheAgent(t *testing.T) {
	text := read(t, unit)
	for _, line := range []string{"KillMode=process", "OOMPolicy=continue", "Restart=always"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for _, no := range []string{"\nPrivateTmp=", "\nDynamicUser=", "\nRuntimeMaxSec="} {
		if strings.Contains(text, no) {
			t.Errorf("the unit has %s, which removes what jobs use when the agent stops", strings.TrimSpace(no))
		}
	}
}

func TestVariablesAreDeclared(t *testing.T) {
	declared := map[string]bool{}
	for _, v := range config.Variables(&config.Runner{}) {
		declared[v.Name] = true
	}
	found := regexp.MustCompile(`\bFAIRLEAD_[A-Z_]+\b`).FindAllString(read(t, unit)+read(t, "environment"), -1)
	if len(found) < 4 {
		t.Errorf("the unit names only the variables %v", found)
	}
	for _, name := range found {
		if !declared[name] {
			t.Errorf("nothing declares %s", name)
		}
	}
}

// Jobs run as the unit's user. If this user could read the program, Linux would let a job read the environment of a step
// that starts, with its launch token, until the step protects itself.
func TestToolsCannotReadTheInstalledProgram(t *testing.T) {
	modes := regexp.MustCompile(`(?m)^install (.*\bfairlead-runner\b.*) /usr/local/bin/`).FindAllStringSubmatch(read(t, "../../docs/vendor/runner-kinds.md"), -1)
	if len(modes) != 1 || modes[0][1] != "-m 711 fairlead-runner fairlead-step" {
		t.Errorf("the page installs the programs with %q, want one installation by root with the mode 711", modes)
	}
	if text := read(t, unit); !strings.Contains(text, "\nExecStart=/usr/local/bin/fairlead-runner agent\n") || !strings.Contains(text, "\nUser=fairlead-runner\n") {
		t.Error("the unit does not start this program as a user of its own")
	}
}
