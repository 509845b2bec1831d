package runnerspec_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/runnerspec/runnerspectest"
	"github.com/fairlead/fairlead/tools/page"
)

func TestReferencePageIsCurrent(t *testing.T) {
	page.Hold(t, "docs/reference/runner-file.md", "reference", reference(t))
	for _, k := range runnerspec.Kinds() {
		for _, f := range runnerspectest.RunnerFields(t, k) {
			if f.Doc == "" || f.Type == "" {
				t.Errorf("field %s of kind %s has no documentation", f.Path, k)
			}
			if f.Secret != strings.Contains(f.Doc, "Secret.") {
				t.Errorf("the documentation of field %s of kind %s must hold \"Secret.\" if and only if it is a secret", f.Path, k)
			}
		}
	}
}

// reference renders all fields of all kinds and the matrix, in Markdown. It describes
// only once the fields that every kind has. It also describes only once the jobs of
// kinds whose jobs have the same fields.
func reference(t *testing.T) string {
	var b strings.Builder
	table := func(prefix string, fields []runnerspectest.Field) {
		b.WriteString("\n| field | | |\n|---|---|---|\n")
		for _, f := range fields {
			what := f.Type
			if f.Required {
				what += ", required"
			}
			if f.Only == "agent" {
				what += ", in an agent's file"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.TrimPrefix(f.Path, prefix), what, strings.ReplaceAll(f.Doc, "|", `\|`))
		}
	}
	b.WriteString("### The file\n")
	table("", runnerspectest.Describe(reflect.TypeFor[runnerspec.Spec](), ""))
	b.WriteString("\n### Every kind\n")
	shared := runnerspectest.Describe(reflect.TypeFor[struct {
		runnerspec.Common
		Job runnerspec.JobCommon `json:"job" doc:"The jobs."`
	}](), "runner_configuration")
	shared = slices.DeleteFunc(shared, func(f runnerspectest.Field) bool { return f.Path == "runner_configuration.job" })
	table("runner_configuration.", shared)
	seen := map[string]runnerspec.Kind{}
	for _, k := range runnerspec.Kinds() {
		fmt.Fprintf(&b, "\n### `%s`\n", k)
		var fields []runnerspectest.Field
		same := runnerspec.Kind("")
		for _, f := range runnerspectest.RunnerFields(t, k) {
			if slices.ContainsFunc(shared, func(s runnerspectest.Field) bool { return s.Path == f.Path }) {
				continue
			}
			path := strings.TrimPrefix(f.Path, "runner_configuration.")
			if name, ok := strings.CutPrefix(path, "job."); ok {
				r, err := runnerspec.DecodeRunner(fmt.Appendf(nil, `{"type":%q}`, k))
				if err != nil {
					t.Fatal(err)
				}
				job, _ := reflect.TypeOf(r).Elem().FieldByName("Job")
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
	table("", runnerspectest.Describe(reflect.TypeFor[runnerspec.Agent](), ""))
	for _, k := range runnerspec.StorageKinds() {
		fmt.Fprintf(&b, "\n### State storage `%s`\n", k)
		table("state_storage_configuration.", runnerspectest.StorageFields(t, k))
	}
	for _, k := range runnerspec.RegistryKinds() {
		fmt.Fprintf(&b, "\n### Registry `%s`\n", k)
		table("registry.", runnerspectest.RegistryFields(t, k))
	}
	b.WriteString("\n### Runner kinds and state storages\n\n```\n" + runnerspec.Matrix() + "```\n")
	return b.String()
}
