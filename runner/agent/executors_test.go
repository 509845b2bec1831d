package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

// The agent's file alone selects and configures the executor. The error for an incomplete file names the missing field.
func TestAgentFileSelectsTheExecutor(t *testing.T) {
	for name, tc := range map[string]struct {
		config string // the runner_configuration; "": there is no file
		shared bool
		want   string // part of the error; "": no error
	}{
		"no file: the process executor":       {shared: true},
		"the process executor":                {config: "{type: local}", shared: true},
		"the docker executor":                 {config: "{type: docker, job: {image: 'runner:1'}}", shared: true},
		"docker without an image":             {config: "{type: docker}", want: "runner_configuration.job.image is missing"},
		"docker with an invalid memory limit": {config: "{type: docker, job: {image: 'runner:1', memory_limit: much}}", want: "runner_configuration.job.memory_limit wants a size"},
		"an executor that is not compiled in": {config: "{type: aws-ecs}", want: "docker, process"},
		"an unknown kind":                     {config: "{type: mainframe}", want: "FAIRLEAD_AGENT_CONFIG:1:"},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			cfg := config.Runner{Data: data}
			if tc.config != "" {
				cfg.Config = "{final: true, runner_configuration: " + tc.config + "}"
			}
			l, err := openExecutors(t.Context(), cfg, "run_1", Options{StepCommand: []string{"runner"}}, quiet(), nil)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got error %v, want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			place := l.now.place
			if place.Shared != tc.shared || place.Shared && place.Data != filepath.Clean(data) || !filepath.IsAbs(place.Data) || place.KillFor == 0 {
				t.Errorf("wrong place of steps: %+v", place)
			}
		})
	}
}
