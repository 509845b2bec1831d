package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

// Each executor is made from the configuration alone, and says which variable
// it lacks.
func TestExecutorIsTakenFromTheConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		executor string
		environ  []string
		shared   bool
		want     string // of the error; "": none
	}{
		"none named: processes":         {shared: true},
		"processes":                     {executor: "process", shared: true},
		"containers":                    {executor: "docker", environ: []string{"FAIRLEAD_DOCKER_IMAGE=runner:1"}, shared: true},
		"containers of no image":        {executor: "docker", want: "FAIRLEAD_DOCKER_IMAGE"},
		"containers of too much memory": {executor: "docker", environ: []string{"FAIRLEAD_DOCKER_IMAGE=runner:1", "FAIRLEAD_DOCKER_MEMORY=much"}, want: "much"},
		"an executor that there is not": {executor: "mainframe", want: "docker, process"},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			l, err := openLaunchers(t.Context(), config.Runner{Executor: tc.executor, Data: data, Follow: followEnvironment}, 4, "run_1",
				Options{Environ: tc.environ, StepCommand: []string{"runner"}}, quiet(), nil)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want something about %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			place := l.now.place
			if place.Shared != tc.shared || place.Shared && place.Data != filepath.Clean(data) || !filepath.IsAbs(place.Data) || place.KillFor == 0 {
				t.Errorf("steps are at %+v", place)
			}
		})
	}
}
