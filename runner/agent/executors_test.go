package agent

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
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
			l, err := openedWith(t, cfg)
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

func openedWith(t *testing.T, cfg config.Runner) (*executors, error) {
	t.Helper()
	o := Options{StepCommand: []string{"runner"}}
	file, err := readOwnFile(cfg, o)
	if err != nil {
		return nil, err
	}
	return openExecutors(t.Context(), cfg, file, "run_1", o, quiet(), nil)
}

// An agent without a data folder that lasts has one token and one attempt: a mistake in its file must not use up the token.
func TestBrokenFileKeepsTheEnrolmentToken(t *testing.T) {
	for name, row := range map[string]struct{ file, want string }{
		"the file does not exist":          {"/nowhere/agent.yaml", "FAIRLEAD_AGENT_CONFIG: open /nowhere/agent.yaml"},
		"a misspelt setting":               {"{runner_configuration: {type: local, concurency: 3}}", "Did you mean"},
		"the secret itself is in the file": {"{runner_configuration: {type: local}, secrets: {TOKEN: hush}}", "must be a reference"},
		"a variable that the runner sets":  {"{runner_configuration: {type: local}, secrets: {TF_VAR_a: 'file:/x'}}", "write var.NAME"},
		"a registry without its password":  {"{runner_configuration: {type: docker, job: {image: 'runner:1', registry: {username: acme}}}}", "registry.password_file"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Runner{URL: "https://control.example", Data: t.TempDir(), EnrolmentToken: "once", Config: row.file}
			err := Run(t.Context(), cfg, quiet(), Options{StepCommand: []string{"runner"}, Transport: refuseAll(func(r *http.Request) {
				t.Errorf("the agent sent %s %s", r.Method, r.URL.Path)
			})})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got error %v, want one with %q", err, row.want)
			}
		})
	}
}

// refuseAll answers each request with a final refusal, after it reported the request.
type refuseAll func(*http.Request)

func (f refuseAll) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return answer(r, http.StatusForbidden, wire.Problem{Type: wire.ProblemType + "refused"})
}
