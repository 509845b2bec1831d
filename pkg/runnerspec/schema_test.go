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

// instance returns a file as a validator takes it; ok is false if it is not even
// YAML.
func instance(src string) (value any, ok bool) {
	n, problems := yamlnode.Read([]byte(src))
	return yamlnode.NewReader("", yamlnode.Rules{}).Plain(n), len(problems) == 0
}

func TestTheSchemaInTheDocumentsIsInStep(t *testing.T) {
	page.HoldFile(t, "docs/runner.schema.json", runnerspec.Schema())
}

func TestTheSchemaTakesWhatIsRight(t *testing.T) {
	schema := compiledSchema(t)
	for _, k := range runnerspec.Kinds() {
		for _, src := range []string{
			minimal(k), direct(k), with(k, "concurrency: ~"), with(k, "job: {environment: , proxy: ~, stop_grace: ~}"),
			strings.Replace(minimal(k), "type: http", "type: s3\n  bucket: states\n  region: eu-west-1\n  path_prefix:", 1),
		} {
			if runnerspec.Parse("r", []byte(src)).Spec == nil {
				continue // aws-ecs has its job already
			}
			value, _ := instance(src)
			if err := schema.Validate(value); err != nil {
				t.Errorf("%v\n%s", err, src)
			}
		}
	}
}

// The schema refuses what the reader refuses, but for what no schema can say.
func TestTheSchemaRefusesTheBadFiles(t *testing.T) {
	const once, amount, more, kinds = "a document has each key once", "an amount has a notation of its own", "it takes more than one field", "it depends on the kind of the runner"
	beyond := map[string]string{
		"a field that is repeated": once, "a variable that is repeated": once, "JSON that repeats itself": once,
		"no time at all": amount, "an image that is none": "an image's reference has a notation of its own",
		"Fargate grants two minutes": kinds, "Fargate has no 3 CPUs": kinds, "Fargate has no 1 CPU with 1Gi": more, "Fargate has no disk of 10Gi": kinds,
		"a task definition has its image": more, "no execution role": more, "a certificate without key": more, "a cluster without credentials": more,
		"a cluster without namespace": more, "more than the limit": more, "a variable twice": more, "a secret in plain": kinds,
	}
	schema := compiledSchema(t)
	for name, c := range badRunners() {
		value, ok := instance(c.src)
		if !ok {
			continue // it is no document
		}
		reason, ok := beyond[name]
		if err := schema.Validate(value); (err == nil) != ok {
			t.Errorf("%s: the schema says %v, and it is beyond it: %q\n%s", name, err, reason, c.src)
		}
	}
}
