package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// maxInputFile is the largest input file in bytes. It is the limit of app.yaml.
const maxInputFile = appspec.MaxFileSize

// inputFlags hold the flags that set an install's inputs.
type inputFlags struct {
	pairs []string // name=value
	env   []string // name=VARIABLE
	file  string
	unset []string // names of inputs; only for an update
}

func (f *inputFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.pairs, "input", "i", nil, "set an input, as `name=value`; write a list or map as JSON; can be repeated")
	cmd.Flags().StringArrayVar(&f.env, "input-env", nil, "set an input to the value of an environment variable, as `name=VARIABLE`; can be repeated")
	cmd.Flags().StringVarP(&f.file, "input-file", "f", "", "read inputs from a YAML or JSON `FILE`; - means the standard input")
}

func (f *inputFlags) any() bool {
	return len(f.pairs)+len(f.env)+len(f.unset) > 0 || f.file != ""
}

// inputs returns the values of the flags after a check against the app's declared
// inputs. If all is set, it also reports missing required inputs.
func (c *cli) inputs(ctx context.Context, cl *client.Client, app string, f inputFlags, all bool) (map[string]json.RawMessage, error) {
	if !f.any() && !all {
		return nil, usage("Use --input, --input-env, --input-file or --unset.", "the command has no input flag")
	}
	a, err := cl.GetApp(ctx, app)
	if err != nil {
		return nil, err
	}
	values, err := c.given("input", f.pairs, f.env, f.file, a.Version.Inputs)
	if err != nil {
		return nil, err
	}
	if err := checkInputs(a.Version.Inputs, values, f.unset, all); err != nil {
		return nil, err
	}
	return encodeInputs(values, f.unset)
}

// given returns the values of the flags --NOUN, --NOUN-env and --NOUN-file for the declared inputs or params. noun is
// which of the two.
func (c *cli) given(noun string, pairs, env []string, file string, all []wire.AppInput) (map[string]any, error) {
	values := map[string]any{}
	if file != "" {
		var err error
		if values, err = c.inputFile(file); err != nil {
			return nil, err
		}
	}
	declared := map[string]wire.AppInput{}
	for _, in := range all {
		declared[in.Name] = in
	}
	var err error
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage("Write --"+noun+" name=value.", "--%s %s has no \"=\"", noun, pair)
		}
		in, known := declared[name]
		if known && in.Sensitive {
			return nil, usage("Other users of a machine can read arguments. Use --"+noun+"-file, or --"+noun+"-env "+name+"=VARIABLE.",
				"%s %q is sensitive and cannot be an argument", noun, name)
		}
		if values[name], err = fromText(in, text); err != nil {
			return nil, usage("", "%s %q %v", noun, name, err)
		}
	}
	for _, pair := range env {
		name, variable, ok := strings.Cut(pair, "=")
		if !ok || variable == "" {
			return nil, usage("Write --"+noun+"-env name=VARIABLE.", "--%s-env %s has no variable name", noun, pair)
		}
		text := c.env.Getenv(variable)
		if text == "" {
			return nil, usage("Set it, or use --"+noun+"-file.", "the environment variable %s for %s %q is empty", variable, noun, name)
		}
		if values[name], err = fromText(declared[name], text); err != nil {
			return nil, usage("", "%s %q, from $%s, %v", noun, name, variable, err)
		}
	}
	return values, nil
}

// fromText parses an argument as the input's type. An undeclared input has no type and
// stays text; checkInputs reports it together with the other problems.
func fromText(in wire.AppInput, text string) (any, error) {
	if in.Type == "" {
		return text, nil
	}
	return appspec.Type(in.Type).FromText(text)
}

func checkInputs(declared []wire.AppInput, values map[string]any, unset []string, all bool) error {
	app := appspec.App{}
	for _, in := range declared {
		app.Inputs = append(app.Inputs, appspec.Input{
			Name: in.Name, Type: appspec.Type(in.Type), Description: in.Description,
			Required: in.Required && all, Sensitive: in.Sensitive, From: in.From,
		})
	}
	given := map[string]any{}
	for name, v := range values {
		given[name] = v
	}
	for _, name := range unset {
		if _, both := given[name]; both {
			return usage("Remove one of the two flags.", "input %q is both set and unset", name)
		}
		given[name] = nil // CheckGiven reports undeclared names
	}
	return app.CheckGiven(given)
}

func encodeInputs(values map[string]any, unset []string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for name, v := range values {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode input %q: %w", name, err)
		}
		out[name] = data
	}
	for _, name := range unset {
		out[name] = json.RawMessage("null")
	}
	return out, nil
}

// inputFile reads a map of input values. Errors name lines and never values, because
// values may be secret.
func (c *cli) inputFile(name string) (map[string]any, error) {
	data, err := c.readFile(name, "input file", maxInputFile)
	if err != nil {
		return nil, err
	}
	values, err := parseInputs(data)
	if err != nil {
		return nil, usage("It must be one map from names to values.", "the input file %s is not valid: %v", name, err)
	}
	return values, nil
}

// parseInputs parses a YAML or JSON map. Numbers keep all digits. Errors name the line
// and never quote the text, which may be secret.
func parseInputs(data []byte) (map[string]any, error) {
	root, problems := yamlnode.Read(data)
	if len(problems) > 0 {
		what := map[string]string{"unsupported-yaml": "anchors, tags and merge keys are not allowed", "file-too-large": "the file has too many values"}[problems[0].Code]
		return nil, fmt.Errorf("line %d: %s", problems[0].Line, cmp.Or(what, "the text is neither YAML nor JSON"))
	}
	if root.IsNull() {
		return map[string]any{}, nil
	}
	v, err := plain(root)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is not a map")
	}
	return m, nil
}

// plain returns the value of a node with the types that encoding/json uses.
func plain(n yamlnode.Node) (_ any, err error) {
	switch n.Shape {
	case yamlnode.List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			if list[i], err = plain(item); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yamlnode.Map:
		fields, repeated := n.Unique()
		if len(repeated) > 0 {
			return nil, fmt.Errorf("line %d: a key is repeated", repeated[0].Line)
		}
		m := map[string]any{}
		for _, f := range fields {
			if m[f.Key], err = plain(f.Value); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return n.Value, nil
}

// completeInputs registers the completion of input names for --input and --input-env.
func (c *cli) completeInputs(cmd *cobra.Command, app func(context.Context, *client.Client, []string) (string, error)) {
	c.must(cmd.RegisterFlagCompletionFunc("input", c.inputNames(app, false)))
	c.must(cmd.RegisterFlagCompletionFunc("input-env", c.inputNames(app, true)))
}

// inputNames returns a completion of "name=" for the inputs of an app. The function
// app finds the app in the command's other arguments.
func (c *cli) inputNames(app func(context.Context, *client.Client, []string) (string, error), sensitive bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if strings.Contains(toComplete, "=") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		offered, directive := c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
			name, err := app(ctx, cl, args)
			if err != nil {
				return nil, err
			}
			a, err := cl.GetApp(ctx, name)
			if err != nil {
				return nil, err
			}
			inputs := slices.DeleteFunc(a.Version.Inputs, func(in wire.AppInput) bool { return in.Sensitive && !sensitive })
			out := make([]string, len(inputs))
			for i, in := range inputs {
				out[i] = cobra.CompletionWithDesc(in.Name+"=", in.Type+" "+in.Description)
			}
			return out, nil
		})
		return offered, directive | cobra.ShellCompDirectiveNoSpace
	}
}
