package appspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

func TestInputsHaveGroupsAndGivers(t *testing.T) {
	text := wrap("input_groups:\n  network: {order: 2}\n  access: {title: Who may log in, order: 1}\n  billing: {order: 2}\n" +
		"inputs:\n  cidr: {group: network, from: customer}\n  size: {from: vendor}\n  plan: {group: billing}\ncomponents:" + component)
	app, problems := appspec.Parse("app.yaml", []byte(text))
	if problems != nil {
		t.Fatal(problems)
	}
	var order []string
	for _, g := range app.GroupsInOrder() {
		order = append(order, g.Name)
	}
	if fmt.Sprint(order) != "[access billing network]" {
		t.Errorf("the groups are shown as %v", order)
	}
	// The default giver has one spelling, so that it makes no other version.
	stored := canonical(t, app)
	without, problems := appspec.Parse("app.yaml", []byte(strings.Replace(text, "{from: vendor}", "{}", 1)))
	if problems != nil || canonical(t, without) != stored {
		t.Errorf("an input from the vendor makes another version: %s, %v", stored, problems)
	}
	if !strings.Contains(stored, `"name":"size","type":"string","required":true}`) {
		t.Fatalf("the canonical form is %s", stored)
	}
	if _, err := appspec.FromCanonical([]byte(strings.Replace(stored, `"name":"size","type":"string","required":true`, `"name":"size","type":"string","required":true,"from":"vendor"`, 1))); err == nil {
		t.Error("a stored app may name the default giver, so one app has two addresses")
	}

	for consequence, test := range map[string]struct {
		given map[string]any
		early string // the problem of an install that is not deployed yet; "" for none
		want  string // the problem of a deployment
	}{
		"all are given": {given: map[string]any{"cidr": "10.0.0.0/8", "size": "1", "plan": "a"}},
		"the customer may be late, until a deployment": {given: map[string]any{"size": "1", "plan": "a"}, want: `input "cidr" is required; the customer gives it.`},
		"the vendor may not be late":                   {given: map[string]any{"cidr": "x", "plan": "a"}, early: `input "size" is required.`, want: `input "size" is required.`},
		"a value of the customer is checked":           {given: map[string]any{"cidr": true, "size": "1", "plan": "a"}, early: `input "cidr" wants a string, got a bool.`, want: `input "cidr" wants a string, got a bool.`},
	} {
		text := func(err error) string {
			if err == nil {
				return ""
			}
			return strings.TrimPrefix(err.Error(), "an input is wrong: ")
		}
		_, err := app.CheckInputs(test.given)
		if early := app.CheckGiven(test.given); text(early) != test.early || text(err) != test.want {
			t.Errorf("%s: before a deployment %q, at a deployment %q", consequence, text(early), text(err))
		}
	}
}
