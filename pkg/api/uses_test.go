package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

// CloudFormation refuses a link with a longer value.
func TestSentencesFitAParameter(t *testing.T) {
	if got := usesForm([]string{"One.", "Two."}); got != "One. Two." {
		t.Errorf("two sentences are %q", got)
	}
	long := slices.Repeat([]string{strings.Repeat("x", 99) + "."}, 60)
	if got := usesForm(long); len(got) > wire.MaxStackParameter || len(got) < 3900 || !strings.HasSuffix(got, "x. There is more: see AppActions.") {
		t.Errorf("60 sentences have %d bytes and end with %q", len(got), got[len(got)-40:])
	}
	if got := usesForm([]string{strings.Repeat("x", 5000)}); got != "There is more: see AppActions." {
		t.Errorf("a sentence that is too long gives %.60q", got)
	}
}

// The link of a stack asks only for secrets that the stack can give: a component in the sandbox has a runner in the cluster.
func TestStackAsksNotForSecretsOfTheCluster(t *testing.T) {
	of := func(component, kind string) wire.CustomerSecret {
		return wire.CustomerSecret{Component: component, Entry: component + "/TOKEN", RunnerKind: kind}
	}
	for want, all := range map[string][]wire.CustomerSecret{
		"&param_JobSecrets=base%2FTOKEN%3DARN": {of("base", "aws-ecs"), of("web", "aws-eks")},
		"&param_JobSecrets=web%2FTOKEN%3DARN":  {of("web", "")},
		"":                                     {of("web", "kubernetes")},
	} {
		link := quickCreate(wire.Stack{StackName: "s", CustomerSecrets: all}, control.StackStates{})
		if !strings.HasSuffix(link, "stackName=s"+want) {
			t.Errorf("for %+v the link is %s, want %q at its end", all, link, want)
		}
	}
}
