package runnerspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

func TestTheReferenceIsThatOfTheCode(t *testing.T) {
	page.Hold(t, "docs/RUNNERS.md", "reference", reference())
	for _, k := range Kinds() {
		for _, f := range RunnerFields(k) {
			if f.Doc == "" || f.Type == "" {
				t.Errorf("%s of %s is not described", f.Path, k)
			}
			if f.Secret != strings.Contains(f.Doc, "Secret.") {
				t.Errorf("%s of %s does not say that it is a secret", f.Path, k)
			}
		}
	}
}

// reference renders all fields of all kinds and the matrix, in Markdown. What
// every kind has, and jobs of kinds that have the same fields, are described once.
func reference() string {
	var b strings.Builder
	table := func(prefix string, fields []Field) {
		b.WriteString("\n| field | | |\n|---|---|---|\n")
		for _, f := range fields {
			what := f.Type
			if f.Required {
				what += ", required"
			}
			if f.Only == agentSide {
				what += ", in an agent's file"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.TrimPrefix(f.Path, prefix), what, strings.ReplaceAll(f.Doc, "|", `\|`))
		}
	}
	b.WriteString("### The file\n")
	table("", describe(reflect.TypeFor[Spec](), ""))
	b.WriteString("\n### Every kind\n")
	shared := describe(reflect.TypeFor[struct {
		Common
		Job JobCommon `json:"job" doc:"The jobs."`
	}](), "runner_configuration")
	shared = slices.DeleteFunc(shared, func(f Field) bool { return f.Path == "runner_configuration.job" })
	table("runner_configuration.", shared)
	seen := map[string]Kind{}
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "\n### `%s`\n", k)
		var fields []Field
		same := Kind("")
		for _, f := range RunnerFields(k) {
			if slices.ContainsFunc(shared, func(s Field) bool { return s.Path == f.Path }) {
				continue
			}
			path := strings.TrimPrefix(f.Path, "runner_configuration.")
			if name, ok := strings.CutPrefix(path, "job."); ok {
				jobs := reflect.TypeOf(newConfiguration(k)).Elem()
				job, _ := jobs.FieldByName("Job")
				if first, ok := seen[job.Type.Name()]; ok && first != k {
					same = first
					continue
				}
				seen[job.Type.Name()] = k
				f.Path = "runner_configuration.job." + name
			}
			fields = append(fields, f)
		}
		table("runner_configuration.", fields)
		if same != "" {
			fmt.Fprintf(&b, "\nThe fields of `job` are those of `%s`.\n", same)
		}
	}
	b.WriteString("\n### An agent's file\n")
	table("", describe(reflect.TypeFor[Agent](), ""))
	for _, k := range StorageKinds() {
		fmt.Fprintf(&b, "\n### State storage `%s`\n", k)
		table("state_storage_configuration.", describe(reflect.TypeOf(newStorage(k)).Elem(), "state_storage_configuration"))
	}
	b.WriteString("\n### Which runner may use which state storage\n\n```\n" + Matrix() + "```\n")
	return b.String()
}
