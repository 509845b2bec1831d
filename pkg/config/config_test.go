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

func TestAmounts(t *testing.T) {
	for text, want := range map[string]config.Bytes{"": 0, "512Mi": 512 << 20, "2Gi": 2 << 30, "42 MB": 42e6, "1.5G": 1.5e9, "1073741824": 1 << 30} {
		var b config.Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q is %d (%v), want %d", text, b, err, want)
		}
	}
	for text, want := range map[string]config.MilliCPU{"": 0, "2": 2000, "0.5": 500, "250m": 250} {
		var c config.MilliCPU
		if err := c.UnmarshalText([]byte(text)); err != nil || c != want {
			t.Errorf("%q is %d (%v), want %d", text, c, err, want)
		}
	}
	for _, text := range []string{"much", "2XB", "-1Mi", "Mi", "1e30Gi"} {
		var b config.Bytes
		var c config.MilliCPU
		if b.UnmarshalText([]byte(text)) == nil || c.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is taken for an amount", text)
		}
	}
}

func TestEveryVariableOfAnExecutorIsDocumented(t *testing.T) {
	for prefix, cfg := range map[string]any{"FAIRLEAD_DOCKER_": &config.Docker{}, "FAIRLEAD_KUBE": &config.Kubernetes{}, "FAIRLEAD_ECS_": &config.ECS{}} {
		for _, v := range config.Variables(cfg) {
			if v.Doc == "" || !strings.HasPrefix(v.Name, prefix) || v.Flag != "" {
				t.Errorf("%+v lacks documentation or the prefix, or has a flag", v)
			}
			if strings.HasSuffix(v.Name, "PASSWORD") || strings.HasSuffix(v.Name, "TOKEN") {
				t.Errorf("%s looks like a secret; name its file instead", v.Name)
			}
		}
	}
}
