package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// maxInputFile is the largest file of inputs that is read, in bytes: the limit
// of an app's own configuration.
const maxInputFile = appspec.MaxFileSize

// inputFlags say which values an install is given.
type inputFlags struct {
	pairs []string // name=value
	env   []string // name=VARIABLE
	file  string
	unset []string // names; only of an update
}

func (f *inputFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.pairs, "input", "i", nil, "give an input a value, as `name=value`; a list or map as JSON; repeatable")
	cmd.Flags().StringArrayVar(&f.env, "input-env", nil, "give an input the value of an environment variable, as `name=VARIABLE`; repeatable")
	cmd.Flags().StringVarP(&f.file, "input-file", "f", "", "read inputs from a YAML or JSON `FILE`; - is the standard input")
}

func (f *inputFlags) any() bool {
	return len(f.pairs)+len(f.env)+len(f.unset) > 0 || f.file != ""
}

// inputs returns the values that the flags give, checked against what the app
// declares. When all is set, required inputs that are missing are reported too.
func (c *cli) inputs(ctx context.Context, cl *client.Client, app string, f inputFlags, all bool) (map[string]json.RawMessage, error) {
	if !f.any() && !all {
		return nil, usage("Use --input, --input-env, --input-file or --unset.", "no input is given")
	}
	a, err := cl.GetApp(ctx, app)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if f.file != "" {
		if values, err = c.inputFile(f.file); err != nil {
			return nil, err
		}
	}
	declared := map[string]wire.AppInput{}
	for _, in := range a.Version.Inputs {
		declared[in.Name] = in
	}
	for _, pair := range f.pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage("Write --input name=value.", "--input %s has no \"=\"", pair)
		}
		in, known := declared[name]
		if known && in.Sensitive {
			return nil, usage("Other users of a machine can read arguments. Use --input-file, or --input-env "+name+"=VARIABLE.",
				"input %q is sensitive and cannot be an argument", name)
		}
		if values[name], err = fromText(in, text); err != nil {
			return nil, usage("", "input %q %v", name, err)
		}
	}
	for _, pair := range f.env {
		name, variable, ok := strings.Cut(pair, "=")
		if !ok || variable == "" {
			return nil, usage("Write --input-env name=VARIABLE.", "--input-env %s names no variable", pair)
		}
		text := c.env.Getenv(variable)
		if text == "" {
			return nil, usage("Set it, or give the input in a file.", "the environment variable %s, for input %q, is empty", variable, name)
		}
		if values[name], err = fromText(declared[name], text); err != nil {
			return nil, usage("", "input %q, from $%s, %v", name, variable, err)
		}
	}
	if err := checkInputs(a.Version.Inputs, values, f.unset, all); err != nil {
		return nil, err
	}
	return encodeInputs(values, f.unset)
}

// fromText reads an argument as the input's type. An input that is not
// declared has none; it is reported later, with all others.
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
			Required: in.Required && all, Sensitive: in.Sensitive,
		})
	}
	given := map[string]any{}
	for name, v := range values {
		given[name] = v
	}
	for _, name := range unset {
		if _, both := given[name]; both {
			return usage("Leave out one of them.", "input %q is both given and unset", name)
		}
		given[name] = nil // names that are not declared are reported
	}
	_, err := app.CheckInputs(given)
	return err
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

// inputFile reads a map of values. Errors name places, never values, which may
// be secret.
func (c *cli) inputFile(name string) (map[string]any, error) {
	var r io.Reader = c.env.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usage("", "the file of inputs cannot be read: %v", err)
		}
		defer file.Close()
		r = file
	}
	data, err := io.ReadAll(io.LimitReader(r, maxInputFile+1))
	if err != nil {
		return nil, usage("", "the file of inputs cannot be read: %v", err)
	}
	if len(data) > maxInputFile {
		return nil, &fairlead.Error{Kind: fairlead.KindTooLarge, Code: "input-file-too-large",
			Message: fmt.Sprintf("the file of inputs %s is larger than %d bytes", name, maxInputFile)}
	}
	values, err := parseInputs(data)
	if err != nil {
		return nil, usage("It holds one map, of input names and their values.", "the file of inputs %s is not valid: %v", name, err)
	}
	return values, nil
}

// parseInputs reads YAML, of which JSON is a part. Numbers keep their digits,
// which they would lose as the float64 of a general decoder; anchors and tags
// are refused because no input needs them.
func parseInputs(data []byte) (map[string]any, error) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, fmt.Errorf("it is neither YAML nor JSON") // the parser's message quotes the file
	}
	var docs []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	switch len(docs) {
	case 0:
		return map[string]any{}, nil
	case 1:
	default:
		return nil, fmt.Errorf("it holds %d documents", len(docs))
	}
	v, err := fromYAML(docs[0], 0)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it does not hold a map")
	}
	return m, nil
}

func fromYAML(n ast.Node, depth int) (any, error) {
	if depth > appspec.MaxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", appspec.MaxDepth)
	}
	line := 0
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return nil, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.StringNode:
		if n.Token.Type == token.StringType { // not quoted
			if v, err := appspec.Number.FromText(n.Value); err == nil {
				return v, nil // one that the parser's own types cannot hold
			}
		}
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode:
		v, err := appspec.Number.FromText(n.GetToken().Value)
		if err != nil {
			return nil, fmt.Errorf("line %d: a number that is not decimal; quote it if it is a string", line)
		}
		return v, nil
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, item := range n.Values {
			v, err := fromYAML(item, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case *ast.MappingNode:
		m := map[string]any{}
		for _, field := range n.Values {
			if err := addField(m, field, depth); err != nil {
				return nil, err
			}
		}
		return m, nil
	case *ast.MappingValueNode: // a map of one entry
		m := map[string]any{}
		return m, addField(m, n, depth)
	}
	return nil, fmt.Errorf("line %d: anchors, tags and the like are not allowed", line)
}

func addField(m map[string]any, field *ast.MappingValueNode, depth int) error {
	line := field.Key.GetToken().Position.Line
	var key string
	switch k := field.Key.(type) {
	case *ast.StringNode:
		key = k.Value
	case *ast.IntegerNode, *ast.BoolNode, *ast.NullNode, *ast.FloatNode:
		key = k.GetToken().Value
	default:
		return fmt.Errorf("line %d: a key that is not a name", line)
	}
	if _, twice := m[key]; twice {
		return fmt.Errorf("line %d: the key %q is repeated", line, key)
	}
	v, err := fromYAML(field.Value, depth+1)
	if err != nil {
		return err
	}
	m[key] = v
	return nil
}

// inputNames completes "name=" for the inputs of the app that the command's
// other words name.
func (c *cli) inputNames(cmd *cobra.Command, app func(context.Context, *client.Client, []string) (string, error), sensitive bool) cobra.CompletionFunc {
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
