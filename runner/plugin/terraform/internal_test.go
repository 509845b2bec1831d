package terraform

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/fairlead/fairlead/runner/internal/redact"
)

func TestNeedsInit(t *testing.T) {
	const it = `resource "terraform_data" "x" {}`
	for name, tc := range map[string]struct {
		files map[string]string
		needs bool
	}{
		"built-in resources alone":         {map[string]string{"main.tf": it, "v.tf": `variable "a" {}`, "README.md": "module"}, false},
		"a version constraint":             {map[string]string{"main.tf": "terraform {\n  required_version = \"> 1\"\n}\n" + it}, false},
		"a resource of a provider":         {map[string]string{"main.tf": `resource "aws_vpc" "x" {}`}, true},
		"a data source of a provider":      {map[string]string{"main.tf": `data "aws_vpc" "x" {}`}, true},
		"a module":                         {map[string]string{"main.tf": "module \"m\" {\n  source = \"./m\"\n}"}, true},
		"a provider block":                 {map[string]string{"main.tf": `provider "aws" {}`}, true},
		"required providers":               {map[string]string{"main.tf": "terraform {\n  required_providers {\n  }\n}"}, true},
		"a backend of its own":             {map[string]string{"main.tf": "terraform {\n  backend \"s3\" {}\n}"}, true},
		"a chosen provider":                {map[string]string{"main.tf": "resource \"terraform_data\" \"x\" {\n  provider = other\n}"}, true},
		"an unknown block":                 {map[string]string{"main.tf": `ephemeral "x" "y" {}`}, true},
		"JSON":                             {map[string]string{"main.tf.json": `{}`}, true},
		"a lock file":                      {map[string]string{"main.tf": it, ".terraform.lock.hcl": ""}, true},
		"a file that does not parse":       {map[string]string{"main.tf": `resource {`}, true},
		"OpenTofu's own files, a provider": {map[string]string{"main.tofu": `resource "aws_vpc" "x" {}`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := needsInit(dir); got != tc.needs {
				t.Errorf("needsInit returns %v", got)
			}
		})
	}
}

func decode(t *testing.T, s string) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSummaryShowsChangesAndNoSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after, unknown, beforeSecret, afterSecret string
		wantBefore, wantAfter                             string
	}{
		"created": {`null`, `{"a":1,"b":"x"}`, `{"id":true}`, `false`, `{}`,
			`null`, `{"a":1,"b":"x","id":"(known after apply)"}`},
		"updated: unchanged attributes are omitted": {`{"a":1,"b":"x","id":"i"}`, `{"a":1,"b":"y","id":"i"}`, `{}`, `{}`, `{}`,
			`{"b":"x"}`, `{"b":"y"}`},
		"a secret": {`{"p":"old","q":1}`, `{"p":"new","q":1}`, `{}`, `{"p":true}`, `{"p":true}`,
			`{"p":"(sensitive)"}`, `{"p":"(sensitive)"}`},
		"a secret within": {`null`, `{"l":[{"p":"new","n":1},2]}`, `{}`, `false`, `{"l":[{"p":true}]}`,
			`null`, `{"l":[{"n":1,"p":"(sensitive)"},2]}`},
		"the whole value secret":              {`{"a":1}`, `{"a":2}`, `{}`, `true`, `true`, `"(sensitive)"`, `"(sensitive)"`},
		"a secret that is unknown":            {`null`, `{}`, `{"p":true}`, `false`, `{"p":true}`, `null`, `{"p":"(sensitive)"}`},
		"an update to an unknown value":       {`{"a":1}`, `{}`, `{"a":true}`, `{}`, `{}`, `{"a":1}`, `{"a":"(known after apply)"}`},
		"the job's secret, which is unmarked": {`null`, `{"a":"x hunter22 y","n":7654000}`, `{}`, `false`, `{}`, `null`, `{"a":"x (sensitive) y","n":"(sensitive)"}`},
		"a number that no float could hold":   {`null`, `{"n":12345678901234567890}`, `{}`, `false`, `{}`, `null`, `{"n":12345678901234567890}`},
		"deleted":                             {`{"a":1}`, `null`, `{}`, `{}`, `false`, `{"a":1}`, `null`},
		"an unknown element of a list":        {`null`, `{"l":["a"]}`, `{"l":[false,true]}`, `false`, `{}`, `null`, `{"l":["a","(known after apply)"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			c := &tfjson.Change{Before: decode(t, tc.before), After: decode(t, tc.after), AfterUnknown: decode(t, tc.unknown),
				BeforeSensitive: decode(t, tc.beforeSecret), AfterSensitive: decode(t, tc.afterSecret)}
			mask := redact.New(json.RawMessage(`"hunter22"`), json.RawMessage(`7654000`)).String
			before, after := values(c, mask)
			for what, pair := range map[string][2]any{"before": {before, tc.wantBefore}, "after": {after, tc.wantAfter}} {
				b, err := json.Marshal(pair[0])
				if err != nil || string(b) != pair[1] {
					t.Errorf("%s: %s, want %s", what, b, pair[1])
				}
			}
		})
	}
}

func TestSummaryIsBounded(t *testing.T) {
	p := &shownPlan{}
	for i := range 5000 {
		p.ResourceChanges = append(p.ResourceChanges, &tfjson.ResourceChange{Address: fmt.Sprintf("x.y[%d]", i), Type: "x",
			Change: &tfjson.Change{Actions: tfjson.Actions{tfjson.ActionCreate}, After: map[string]any{"v": strings.Repeat("z", 100)}}})
	}
	p.ResourceChanges[0].Change.After = map[string]any{"v": strings.Repeat("z", 1<<20)}
	c, b, err := summarize(p, func(s string) string { return s })
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if c.Add != 5000 || len(s.Resources)+s.Omitted != 5000 || s.Omitted == 0 || len(b) > maxSummary+1000 || !s.Resources[0].Omitted {
		t.Errorf("changes %+v: %d shown, %d omitted, %d bytes", c, len(s.Resources), s.Omitted, len(b))
	}
}

func TestOutputsOfAState(t *testing.T) {
	for name, tc := range map[string]struct {
		state string
		n     int
		err   bool
	}{
		"no state":           {"", 0, false},
		"no outputs":         {`{"version":4}`, 0, false},
		"two":                {`{"version":4,"outputs":{"a":{"value":1,"type":"number"},"b":{"value":"x","type":"string","sensitive":true}}}`, 2, false},
		"encrypted":          {`{"serial":1,"encrypted_data":"AAAA","encryption_version":"v0"}`, 0, true},
		"of a newer version": {`{"version":5,"outputs":{}}`, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := outputsOf([]byte(tc.state))
			if (err != nil) != tc.err || len(got) != tc.n {
				t.Errorf("outputs %v, error %v; want %d outputs", got, err, tc.n)
			}
		})
	}
}
