package runnerspec_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

func TestControlCharactersAreRefused(t *testing.T) {
	local, k8s := runnerspec.Local, runnerspec.Kubernetes
	for name, c := range map[string]struct {
		src      string
		settings []string
		want     string
	}{
		"a description":    {src: "description: \"\\e]52;c;eA==\\a\"\n" + minimal(local), want: `r:1:14: the text holds the control character U+001B [control-character]. Remove it.`},
		"JSON":             {src: `{"description": "a\u0000", "runner_configuration": {"type": "local"}, "state_storage_configuration": {"type": "http"}}`, want: `r:1:17: the text holds the control character U+0000`},
		"a variable":       {src: with(local, `job: environment: {A: "x\x9b"}`), want: `r:5:22: the text holds the control character U+009B`},
		"a variable's key": {src: with(k8s, `job: pod_template: {metadata: {annotations: {"a\x7f": x}}}`), want: `the key holds the control character U+007F`},
		"a pod template":   {src: with(k8s, `job: pod_template: {metadata: {annotations: {a: "\x01"}}}`), want: `the text holds the control character U+0001`},
		"a setting":        {src: minimal(local), settings: []string{`description="\e[2J"`}, want: `--set description:1:1: the text holds the control character U+001B`},
	} {
		t.Run(name, func(t *testing.T) {
			r := runnerspec.Parse("r", []byte(c.src), c.settings...)
			if r.Spec != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems.Error(), c.want) {
				t.Errorf("got %v, want %s", r.Problems, c.want)
			}
		})
	}
	r := runnerspec.Update(parse(t, minimal(local)), "p", []byte(`description: "a\0"`))
	if r.Spec != nil || !strings.Contains(r.Problems.Error(), "p:1:14: the text holds the control character U+0000") {
		t.Errorf("problems of an update: %v", r.Problems)
	}
	r = runnerspec.Parse("r", []byte(with(local, `job: environment: {A: "one\n\ttwo"}`)))
	if r.Spec == nil {
		t.Errorf("a text of two lines: %v", r.Problems)
	}
}
