package config_test

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

func load(args, environ []string) (config.Runner, error) {
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var c config.Runner
	err := config.Load(&c, fs, args, environ)
	return c, err
}

func TestFlagBeatsEnvironmentBeatsDefault(t *testing.T) {
	c, err := load(
		[]string{"--url", "https://flag.example", "--pass-env", "A,B"},
		[]string{"FAIRLEAD_URL=https://env.example", "FAIRLEAD_CONCURRENCY=7", "UNRELATED=x"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if c.URL != "https://flag.example" || c.Concurrency != 7 || c.Data != "/var/lib/fairlead-runner" || len(c.PassEnv) != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		args, environ []string
		want          string
	}{
		"a number that is none":        {environ: []string{"FAIRLEAD_CONCURRENCY=many"}, want: "Concurrency"},
		"an argument nobody asked for": {args: []string{"now"}, want: `"now"`},
		"a flag that does not exist":   {args: []string{"--enrolment-token=x"}, want: "not defined"},
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
		if v.Doc == "" || !strings.HasPrefix(v.Name, "FAIRLEAD_") {
			t.Errorf("%+v lacks documentation or the prefix", v)
		}
		if strings.Contains(v.Name, "TOKEN") && v.Flag != "" && !strings.HasSuffix(v.Name, "_FILE") {
			t.Errorf("%s is a secret and must not be a flag", v.Name)
		}
	}
}
