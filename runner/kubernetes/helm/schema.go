package helm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
)

// closed loads no schema. Helm's own check of the values reads any file of this machine and any URL that a schema names.
type closed struct{}

func (closed) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s: copy that schema into values.schema.json", url)
}

// checkSchema compares the values with the schemas of the chart and of its subcharts.
func checkSchema(c *chartv2.Chart, values map[string]any) error {
	var errs []error
	if c.Schema != nil {
		if err := checkValues(c.Schema, values); err != nil {
			errs = append(errs, fmt.Errorf("chart %s: %w", c.Name(), err))
		}
	}
	for _, sub := range c.Dependencies() {
		v, ok := values[sub.Name()]
		if !ok || v == nil {
			continue
		}
		table, ok := v.(map[string]any)
		if !ok {
			errs = append(errs, fmt.Errorf("chart %s: the values of subchart %s are no map", c.Name(), sub.Name()))
			continue
		}
		errs = append(errs, checkSchema(sub, table))
	}
	return errors.Join(errs...)
}

func checkValues(schema []byte, values map[string]any) error {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	const name = "file:///values.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(closed{})
	if err := compiler.AddResource(name, parsed); err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	return compiled.Validate(values)
}
