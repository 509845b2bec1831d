package process_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/executortest"
	"github.com/fairlead/fairlead/runner/executor/process"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// The programs differ only in their first argument, which the step must see.
func TestLightStepStartsTheLightProgram(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell, which plays the programs")
	}
	program := func(name string) []string { return []string{shell, "-c", "printf " + name} }
	for consequence, tt := range map[string]struct {
		light bool
		of    []string
		want  string
	}{
		"a light step starts the light program":            {true, program("light"), "light"},
		"another step starts the full one":                 {false, program("light"), "full"},
		"without a light program, the full one runs a job": {true, nil, "full"},
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "job_1-1"), 0o700); err != nil {
			t.Fatal(err)
		}
		e := process.New(root, process.Programs{Full: program("full"), Light: tt.of}, nil)
		h, err := e.Start(t.Context(), executor.Step{ID: "job_1-1", Light: tt.light})
		if err != nil {
			t.Fatal(err)
		}
		if x, err := h.Wait(t.Context()); err != nil || x.Code == nil || *x.Code != 0 {
			t.Errorf("%s: it ended as %+v, %v", consequence, x, err)
		}
		if out, err := h.Output(t.Context(), 100); err != nil || out != tt.want {
			t.Errorf("%s: it started %q, %v", consequence, out, err)
		}
		if err := e.Remove(t.Context(), "job_1-1"); err != nil {
			t.Error(err)
		}
	}
}

func TestExecutor(t *testing.T) {
	suite := func(t *testing.T) {
		program := executortest.Program(t)
		executortest.Run(t, executortest.Subject{
			New: func(_ *testing.T, root string, _ func(http.RoundTripper) http.RoundTripper) executor.Executor {
				return process.New(root, process.Programs{Full: []string{program}}, nil)
			},
		})
	}
	t.Run("as on this machine", suite)
	for place, enter := range places {
		t.Run(place, func(t *testing.T) {
			enter(t)
			suite(t)
		})
	}
}
