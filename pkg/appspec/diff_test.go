package appspec_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

const diffed = `fairlead: v1
name: shop
description: A shop.
inputs:
  size: {type: number, default: 2}
  token: {sensitive: true, default: CANARY-one}
aws: {services: [s3]}
components:
  db: {type: terraform, source: ./db, vars: {size: "${inputs.size}"}}
  web:
    type: terraform
    source: ./web
    job: {cpu: 1, memory: 2Gi}
    secrets: [var.password]
    options: {}
    vars: {url: "${components.db.outputs.url}", tags: {a: x, b: y}, list: [1, 2]}
`

func TestDiffNamesEachDifference(t *testing.T) {
	for consequence, test := range map[string]struct {
		edit     []string // texts of the app before, and the texts that replace them
		artifact string   // of the component web after; "": unchanged
		want     []string // action, address, changed pointers
	}{
		"equal apps do not differ":                     {},
		"the order of the file is no difference":       {edit: []string{"{a: x, b: y}", "{b: y, a: x}"}},
		"a changed variable has its path":              {edit: []string{"a: x", "a: z"}, want: []string{"update components.web [/vars/tags/a]"}},
		"an element of a list has its path":            {edit: []string{"[1, 2]", "[1, 3]"}, want: []string{"update components.web [/vars/list/1]"}},
		"other code is another artifact":               {artifact: "sha256:2", want: []string{"update components.web [/artifact]"}},
		"a changed reference is a difference":          {edit: []string{"outputs.url", "outputs.host"}, want: []string{"update components.web [/vars/url]"}},
		"a dependency is a difference":                 {edit: []string{"    secrets", "    depends_on: [cache]\n    secrets", "  web:", "  cache: {type: terraform, source: ./cache}\n  web:"}, want: []string{"create components.cache []", "update components.web [/depends_on]"}},
		"a size is a difference":                       {edit: []string{"cpu: 1", "cpu: 0.5"}, want: []string{"update components.web [/job/cpu]"}},
		"a secret of the customer is a difference":     {edit: []string{"[var.password]", "[var.other]"}, want: []string{"update components.web [/secrets/0]"}},
		"a type and a source are differences":          {edit: []string{"terraform, source: ./db", "script, source: ./database"}, want: []string{"update components.db [/source /type]"}},
		"a default is a difference":                    {edit: []string{"default: 2", "default: 3"}, want: []string{"update inputs.size [/default]"}},
		"a new input has no path":                      {edit: []string{"  size:", "  more: {}\n  size:"}, want: []string{"create inputs.more []"}},
		"actions on AWS are differences":               {edit: []string{"services: [s3]", "services: [s3], actions: ['rds:Describe*']"}, want: []string{"update aws [/actions]"}},
		"the first declaration for AWS has no path":    {edit: []string{"aws: {services: [s3]}\n", ""}, want: []string{"delete aws []"}},
		"a description is a difference":                {edit: []string{"A shop.", "A store."}, want: []string{"update description []"}},
		"a changed secret default is named, not shown": {edit: []string{"CANARY-one", "CANARY-two"}, want: []string{"update inputs.token [/default]"}},
		"a default that becomes public stays hidden":   {edit: []string{"{sensitive: true, default: CANARY-one}", "{default: CANARY-two}"}, want: []string{"update inputs.token [/default /sensitive]"}},
		"a removed component is a deletion":            {edit: []string{"  db: {type: terraform, source: ./db, vars: {size: \"${inputs.size}\"}}\n", "", "${components.db.outputs.url}", "none"}, want: []string{"delete components.db []", "update components.web [/depends_on /vars/url]"}},
	} {
		t.Run(consequence, func(t *testing.T) {
			for i := 0; i < len(test.edit); i += 2 {
				if !strings.Contains(diffed, test.edit[i]) {
					t.Fatalf("the app does not have %q", test.edit[i])
				}
			}
			text := strings.NewReplacer(test.edit...).Replace(diffed)
			before, problems := appspec.Parse("app.yaml", []byte(diffed))
			if problems != nil {
				t.Fatal(problems)
			}
			after, problems := appspec.Parse("app.yaml", []byte(text))
			if problems != nil {
				t.Fatal(problems)
			}
			now := map[string]string{"db": "sha256:1", "web": "sha256:1"}
			if test.artifact != "" {
				now["web"] = test.artifact
			}
			set, err := appspec.Diff(before, after, map[string]string{"db": "sha256:1", "web": "sha256:1"}, now)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range set.Changes {
				got = append(got, fmt.Sprintf("%s %s %v", c.Action, c.Address, c.Changed))
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			raw, err := json.Marshal(set)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(raw), "CANARY") {
				t.Errorf("the difference shows a sensitive default: %s", raw)
			}
		})
	}
}
