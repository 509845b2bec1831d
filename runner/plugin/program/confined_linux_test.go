package program_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
)

// A confined program of the runner can be read and executed, also from a private folder, but not changed.
func TestConfinedProgramOfTheRunnerIsReadOnly(t *testing.T) {
	if !confine.Supported() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: this kernel has no Landlock")
	}
	folder, data := t.TempDir(), t.TempDir()
	greet := filepath.Join(folder, "greet")
	if err := os.WriteFile(greet, []byte("#!/bin/sh\nread -r request\nif (: >>'"+greet+"') 2>/dev/null; then echo changed >&2; fi\nif (: >\"$TMPDIR/x\"); then echo own >&2; fi\n"+
		`echo '{"event":"failed","reason":"tool-failed","message":"no"}'`+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := spec("plan", "sha256:greeting")
	log := plugintest.NewLog()
	env := plugintest.Env(t, data, "job_1-1", log, sources, s)
	env.Confine = func(own confine.Own, f func() error) error {
		return confine.Run(confine.Reach{Read: confine.System(), Private: []string{folder, data}, Own: own}, f)
	}
	_, err := newOf(component.Type{Name: "helm", Protocol: true, Program: "greet"}, data, folder).Run(t.Context(), s, env)
	if err == nil || err.Error() != "no" || strings.Contains(log.String(), "changed") || !strings.Contains(log.String(), "own") {
		t.Errorf("error %v, log:\n%s", err, log)
	}
}
