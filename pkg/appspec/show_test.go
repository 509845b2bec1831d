package appspec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

func TestShownValueHidesSecrets(t *testing.T) {
	scope := appspec.Scope{
		Inputs: map[string]appspec.Resolved{
			"size": {Value: json.Number("3")}, "list": {Value: []any{"a"}},
			"password": {Value: "CANARY-in", Sensitive: true}, "login": {Value: map[string]any{"user": "CANARY-user"}, Sensitive: true},
		},
		Install: map[string]string{"name": "acme"},
		Outputs: func(component, output string) (appspec.Resolved, bool) {
			if component != "db" {
				return appspec.Resolved{}, false
			}
			return appspec.Resolved{Value: "CANARY-out", Sensitive: output == "token"}, output == "token"
		},
	}
	for consequence, test := range map[string]struct {
		value string // JSON, as in app.yaml
		want  string // value, sensitive, components, problem
	}{
		"a literal is shown":                           {`{"a":[1,"x",null]}`, `{"a":[1,"x",null]} false []`},
		"an input and a fact are resolved":             {`"${install.name}-${inputs.size}"`, `"acme-3" false []`},
		"a secret input is hidden":                     {`"${inputs.password}"`, `"(sensitive)" true []`},
		"the whole text around a secret is hidden":     {`"user:${inputs.password}"`, `"(sensitive)" true []`},
		"what is beside a secret is shown":             {`{"n":"${inputs.size}","p":["${inputs.password}"]}`, `{"n":3,"p":["(sensitive)"]} true []`},
		"a part of a secret map is hidden":             {`"${inputs.login.user}"`, `"(sensitive)" true []`},
		"a secret output is hidden":                    {`"${components.db.outputs.token}"`, `"(sensitive)" true []`},
		"an output that does not exist yet is named":   {`"http://${components.net.outputs.host}/"`, `"(known after net)" false [net]`},
		"an unknown output hides the secret beside it": {`"${inputs.password}@${components.net.outputs.host}"`, `"(known after net)" false [net]`},
		"each component is named once":                 {`["${components.net.outputs.a}","${components.dns.outputs.b}","${components.net.outputs.c}"]`, `["(known after net)","(known after dns)","(known after net)"] false [dns net]`},
		"a list in a text is a problem":                {`"x-${inputs.list}"`, `null false [] ${inputs.list} is a list, which cannot be part of a text`},
		"a path that is not there is a problem":        {`"${inputs.login.name}"`, `null false [] ${inputs.login.name} cannot be resolved: ${inputs.login} is a map without "name"`},
	} {
		t.Run(consequence, func(t *testing.T) {
			var v appspec.Value
			if err := json.Unmarshal([]byte(test.value), &v); err != nil {
				t.Fatal(err)
			}
			shown, err := v.Show(scope)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(shown.Value)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSpace(fmt.Sprintf("%s %t %v %s", raw, shown.Sensitive, shown.After, shown.Problem))
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if strings.Contains(got, "CANARY") {
				t.Errorf("a secret is shown: %s", got)
			}
		})
	}
}
