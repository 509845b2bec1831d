package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

// Each executor is made from the agent's file alone, and names the field that it
// lacks.
func TestExecutorIsTakenFromTheConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		config string // of the runner_configuration; "": there is no file
		shared bool
		want   string // of the error; "": none
	}{
		"no file: processes":            {shared: true},
		"processes":                     {config: "{type: local}", shared: true},
		"containers":                    {config: "{type: docker, job: {image: 'runner:1'}}", shared: true},
		"containers of no image":        {config: "{type: docker}", want: "runner_configuration.job.image is missing"},
		"containers of too much memory": {config: "{type: docker, job: {image: 'runner:1', memory_limit: much}}", want: "runner_configuration.job.memory_limit wants a size"},
		"an executor that there is not": {config: "{type: aws-ecs}", want: "docker, process"},
		"a kind that there is not":      {config: "{type: mainframe}", want: "FAIRLEAD_AGENT_CONFIG:1:"},
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
