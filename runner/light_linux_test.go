package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// A module's apply needs no client of a cloud, so its step runs in fairlead-step, which the agent finds beside itself. If
// fairlead-step is of another release or absent, the agent's own program runs all jobs.
func TestJobWithoutCloudStartsTheLightProgram(t *testing.T) {
	t.Parallel()
	for consequence, tt := range map[string]struct{ version, want string }{ // version: of fairlead-step; "": it is not installed
		"a job without a cloud starts the light program":    {"v1.0.0", "fairlead-step"},
		"a program of another release reads other files":    {"v1.0.1", "fairlead-runner"},
		"a job starts only if the light program is present": {"", "fairlead-runner"},
	} {
		t.Run(consequence, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			installed(t, dir, tt.version)
			gate := filepath.Join(dir, "gate")
			s := plane.New(t, plane.Options{})
			a := startProgram(t, s, filepath.Join(dir, "fairlead-runner"), "", "FAIRLEAD_TOFU="+tool(t))
			job := applying(t, s, module(`echo working; while ! test -e `+gate+`; do sleep 0.05; done; echo the-last-of-it`), nil)
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", a.stepPID(job)))
			if started, _, _ := strings.Cut(string(line), "\x00"); err != nil || started != filepath.Join(dir, tt.want) {
				t.Errorf("the step is %q, %v; want %s", line, err, tt.want)
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if j := succeeded(t, s.UntilFinished(job)); !hasLine(j.Log, "the-last-of-it") {
				t.Errorf("the log is %q", j.Log)
			}
			if warned := strings.Contains(a.out.String(), "another version than this agent"); warned != (tt.version == "v1.0.1") {
				t.Errorf("the agent logs about another release: %t", warned)
			}
			s.Until("nothing left on disk", a.empty)
		})
	}
}

// A job whose secret is in SSM runs in the agent's own program. The secret cannot be read here, and the job's failure shows that a
// client of SSM tried it.
func TestSecretInSSMIsReadByTheFullProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installed(t, dir, "v1.0.0")
	s := plane.New(t, plane.Options{})
	startProgram(t, s, filepath.Join(dir, "fairlead-runner"), "", "FAIRLEAD_TOFU="+tool(t), file("{type: local}, secrets: {TOKEN: 'ssm:/token'}"),
		"AWS_EC2_METADATA_DISABLED=true", "AWS_REGION=eu-central-1")
	j := s.UntilFinished(s.Queue(spec("plan", "local", s.Push(module("true")))))
	if j.Finish.Reason != "secret-unavailable" || strings.Contains(j.Finish.Message, "has no client of AWS") {
		t.Errorf("the job ended as %+v", j.Finish)
	}
}

// installed writes the runner's program and, unless version is "", fairlead-step with this version to dir.
func installed(t *testing.T, dir, version string) {
	t.Helper()
	release(t, filepath.Join(dir, "fairlead-runner"), "v1.0.0")
	if version == "" {
		return
	}
	b, err := os.ReadFile(program.Build(t, "runner/fairlead-step", "-ldflags=-X main.version="+version))
	if err != nil {
		t.Fatal(err)
	}
	program.Write(t, filepath.Join(dir, "fairlead-step"), b)
}
