package runnerspec_test

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/tools/page"
)

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(runnerspec.Schema())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("runner.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("runner.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// instance returns the content of a file as a value for the schema validator. ok is
// false if the file is not YAML.
func instance(src string) (value any, ok bool) {
	n, problems := yamlnode.Read([]byte(src))
	return yamlnode.NewReader("", yamlnode.Rules{}).Plain(n), len(problems) == 0
}

func TestCommittedSchemaIsCurrent(t *testing.T) {
	page.HoldFile(t, "docs/runner.schema.json", runnerspec.Schema())
}

func TestSchemaAcceptsValidFiles(t *testing.T) {
	schema := compiledSchema(t)
	for _, k := range runnerspec.Kinds() {
		for _, src := range []string{
			minimal(k), direct(k), with(k, "concurrency: ~"), with(k, "job: {environment: , proxy: ~, stop_grace: ~}"),
			strings.Replace(minimal(k), "type: http", "type: s3\n  bucket: states\n  region: eu-west-1\n  path_prefix:", 1),
		} {
			if runnerspec.Parse("r", []byte(src)).Spec == nil {
				continue // the file of aws-ecs already has a job
			}
			value, _ := instance(src)
			if err := schema.Validate(value); err != nil {
				t.Errorf("%v\n%s", err, src)
			}
		}
	}
}

// The schema refuses all files that the reader refuses, except those whose problem a
// schema cannot express.
func TestSchemaRefusesBadFiles(t *testing.T) {
	const once, amount, more, kinds = "the validator sees each key once", "an amount has its own notation", "the rule covers several fields", "the rule depends on the runner kind"
	beyond := map[string]string{
		"a repeated field": once, "a repeated variable": once, "a repeated field in JSON": once,
		"a timeout of zero": amount, "an invalid image": "an image reference has its own notation",
		"a stop grace beyond Fargate's": kinds, "3 CPUs on Fargate": kinds, "1 CPU with 1Gi on Fargate": more, "a disk of 10Gi on Fargate": kinds,
		"a task definition and its role": more, "no execution role": more, "no subnet": more, "a certificate without key": more, "a cluster without credentials": more,
		"a cluster without namespace": more, "more than the limit": more, "a reserved variable as login": "the rule is on a part of a text", "a variable twice": more, "a secret in plain": kinds,
	}
	schema := compiledSchema(t)
	for name, c := range badRunners() {
		value, ok := instance(c.src)
		if !ok {
			continue // not YAML
		}
		reason, ok := beyond[name]
		if err := schema.Validate(value); (err == nil) != ok {
			t.Errorf("%s: schema: %v; reason why it cannot refuse the file: %q\n%s", name, err, reason, c.src)
		}
	}
}
