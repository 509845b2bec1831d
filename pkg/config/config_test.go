package config_test

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
)

func load(args, environ []string) (config.Runner, error) {
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var c config.Runner
	err := config.Load(&c, fs, args, environ)
	return c, err
}

func TestFlagOverridesEnvironmentAndDefault(t *testing.T) {
	c, err := load(
		[]string{"--url", "https://flag.example", "--pass-env", "A,B"},
		[]string{"FAIRLEAD_URL=https://env.example", "FAIRLEAD_DRAIN_FOR=7s", "UNRELATED=x"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if c.URL != "https://flag.example" || c.DrainFor != 7*time.Second || c.Data != "/var/lib/fairlead-runner" || len(c.PassEnv) != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestLoadRefusesWrongValues(t *testing.T) {
	for name, tc := range map[string]struct {
		args, environ []string
		want          string
	}{
		"an invalid duration":    {environ: []string{"FAIRLEAD_DRAIN_FOR=long"}, want: "DrainFor"},
		"an unexpected argument": {args: []string{"now"}, want: `"now"`},
		"an unknown flag":        {args: []string{"--enrolment-token=x"}, want: "not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(tc.args, tc.environ)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestHelpIsNotAnError(t *testing.T) {
	if _, err := load([]string{"-h"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
}

func TestEveryVariableIsDocumented(t *testing.T) {
	for _, v := range config.Variables(&config.Runner{}) {
		if v.Doc == "" || !strings.HasPrefix(v.Name, "FAIRLEAD_") && !strings.HasPrefix(v.Name, "OTEL_") {
			t.Errorf("%+v lacks documentation or the prefix", v)
		}
		if strings.Contains(v.Name, "TOKEN") && v.Flag != "" && !strings.HasSuffix(v.Name, "_FILE") {
			t.Errorf("%s is a secret and must not be a flag", v.Name)
		}
	}
}

// If the agent ignored the variables of an earlier agent, the runner would silently
// lose its limits.
func TestReplacedVariablesAreRefused(t *testing.T) {
	err := config.Replaced([]string{"FAIRLEAD_URL=https://x", "FAIRLEAD_EXECUTOR=docker", "FAIRLEAD_DOCKER_PULL=Never", "FAIRLEAD_KUBERNETES_MEMORY_LIMIT=2Gi", "FAIRLEAD_ECS_TAGS=", "FAIRLEAD_FOLLOW=environment"})
	for _, want := range []string{"FAIRLEAD_EXECUTOR is no longer supported: set runner_configuration.type in", "FAIRLEAD_DOCKER_PULL is no longer supported: set runner_configuration.job.image_pull_policy in",
		"FAIRLEAD_KUBERNETES_MEMORY_LIMIT is no longer supported: set runner_configuration.job.memory_limit in", "FAIRLEAD_FOLLOW is no longer supported: set final in"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "FAIRLEAD_URL") || strings.Contains(err.Error(), "FAIRLEAD_ECS_TAGS")) {
		t.Errorf("the error names a supported or an empty variable: %v", err)
	}
	if err := config.Replaced([]string{"FAIRLEAD_URL=https://x", "PATH=/bin"}); err != nil {
		t.Error(err)
	}
}
