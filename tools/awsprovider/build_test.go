package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The list of built services equals the services that the examples use.
func TestEveryServiceOfTheExamplesIsBuilt(t *testing.T) {
	// The names in resource types that differ from the provider's names of the services.
	other := map[string]string{"cloudwatch": "logs", "security": "ec2", "vpc": "ec2", "partition": "meta", "caller": "sts"}
	modules, err := filepath.Glob("../../examples/*/*/*.tf")
	if err != nil || len(modules) == 0 {
		t.Fatal(modules, err)
	}
	var used []string
	for _, module := range modules {
		body, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:resource|data) "aws_([a-z0-9]+)`).FindAllStringSubmatch(string(body), -1) {
			service := m[1]
			if name, ok := other[service]; ok {
				service = name
			}
			used = append(used, service)
		}
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(used, services()) {
		t.Errorf("the examples use %q, but the built services are %q", used, services())
	}
}

// Without a network the command prints a message and no folder, so that tests run
// without the provider. If the variable requireEnv is "1", the command fails.
func TestUnreachableSourceIsReported(t *testing.T) {
	source, err := filepath.Abs("source")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"GOMODCACHE", "XDG_CACHE_HOME"} {
		t.Setenv(name, t.TempDir())
	}
	t.Setenv("GOPROXY", "off")
	for _, test := range []struct{ require, want string }{{"", "WITHOUT THE PROVIDER"}, {"1", "download its source"}} {
		t.Setenv(requireEnv, test.require)
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), []string{"-source", source}, &stdout, &stderr)
		if (err != nil) != (test.require == "1") || stdout.Len() != 0 {
			t.Errorf("%s=%s: error %v, standard output %q, want none", requireEnv, test.require, err, &stdout)
		}
		if err != nil {
			stderr.WriteString(err.Error())
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s=%s: the message is %q, want %q in it", requireEnv, test.require, &stderr, test.want)
		}
	}
}
