package view

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The customer reads how to give each secret to the runner of its component. An install that no runner serves has all forms.
func TestSecretHasTheFormOfItsRunner(t *testing.T) {
	const task, pod, file = "in the parameter JobSecrets of the runner's stack: ENTRY=ARN", "ENTRY: kubernetes:SECRET/KEY", "ENTRY: file:/path"
	of := func(component, kind string) wire.CustomerSecret {
		return wire.CustomerSecret{Component: component, Name: "TOKEN", Entry: component + "/TOKEN", RunnerKind: kind}
	}
	for what, tt := range map[string]struct {
		all        []wire.CustomerSecret
		want, none []string
	}{
		"a stack":                 {[]wire.CustomerSecret{of("web", "aws-ecs")}, []string{"gives them " + task}, []string{pod, file}},
		"a cluster":               {[]wire.CustomerSecret{of("web", "aws-eks")}, []string{"gives them under secrets of the values of the runner's chart", pod}, []string{task, file}},
		"a machine":               {[]wire.CustomerSecret{of("web", "docker")}, []string{file}, []string{task, pod}},
		"no runner":               {[]wire.CustomerSecret{of("web", "")}, []string{task, pod, file}, nil},
		"a stack and its sandbox": {[]wire.CustomerSecret{of("base", "aws-ecs"), of("web", "kubernetes"), of("web", "kubernetes")}, []string{"gives those of base " + task, "gives those of web under", pod}, []string{file}},
	} {
		p := &Page{}
		secrets(p, tt.all)
		for _, text := range tt.want {
			if !strings.Contains(p.buf.String(), text) {
				t.Errorf("%s: the page lacks %q:\n%s", what, text, p.buf.String())
			}
		}
		for _, text := range tt.none {
			if strings.Contains(p.buf.String(), text) {
				t.Errorf("%s: the page has %q:\n%s", what, text, p.buf.String())
			}
		}
	}
}
