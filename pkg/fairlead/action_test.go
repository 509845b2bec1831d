package fairlead_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestActionsFindsVerbsInText(t *testing.T) {
	args := fairlead.Args{Install: "acme"}
	for _, tt := range []struct {
		name, text string
		want       []fairlead.Verb
	}{
		{"a verb in braces is an action", "Wait for it ({deployment.show}).", []fairlead.Verb{fairlead.VerbDeploymentShow}},
		{"a text may start with a verb", "{install.migrate-state} moves it.", []fairlead.Verb{fairlead.VerbInstallMigrateState}},
		{"several verbs keep their order", "{app.list}, then {app.show}.", []fairlead.Verb{fairlead.VerbAppList, fairlead.VerbAppShow}},
		{"a reference to an input is no action", `A reference needs quotes: "${inputs.name}".`, nil},
		{"a reference to an output is no action", "${components.db.outputs.url}", nil},
		{"a map of YAML is no action", "Inside [ ] and { }.", nil},
		{"an open brace is no action", "{app.list", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []fairlead.Verb
			for _, a := range fairlead.Actions(tt.text, args) {
				got = append(got, a.Verb)
				if a.Args.Install != "acme" {
					t.Errorf("%s has the arguments %+v", a.Verb, a.Args)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
