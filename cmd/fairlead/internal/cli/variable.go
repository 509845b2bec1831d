package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) variable() *cobra.Command {
	return noun("variable", "Set environment variables of jobs",
		`Variables are set on a runner, a group, an app or an install. Where several set
the same one, that of the install comes first, then that of its app, then those
of its groups, the nearest first, and that of the runner last. Names that begin
with FAIRLEAD_ are Fairlead's own.`,
		c.variableSet(), c.variableUnset(), c.variableList())
}

// scopeFlags name what variables are set on.
func (c *cli) scopeFlags(cmd *cobra.Command, of *client.VariableScope) {
	cmd.Flags().StringVar(&of.Runner, "runner", "", "those of this `RUNNER`")
	cmd.Flags().StringVar(&of.Group, "group", "", "those of the group at this `PATH`; / is the root group")
	cmd.Flags().StringVar(&of.App, "app", "", "those of this `APP`")
	cmd.Flags().StringVar(&of.Install, "install", "", "those of this `INSTALL`")
	cmd.MarkFlagsOneRequired("runner", "group", "app", "install")
	cmd.MarkFlagsMutuallyExclusive("runner", "group", "app", "install")
	c.flagNames(cmd, "runner", runnerNames)
	c.flagNames(cmd, "group", groupPaths)
	c.flagNames(cmd, "app", appNames)
	c.flagNames(cmd, "install", installNames)
}

func (c *cli) variableSet() *cobra.Command {
	var of client.VariableScope
	var plain, secret []string
	cmd := &cobra.Command{
		Use: "set", Short: "Set environment variables of jobs",
		Long: `Sets the variables that are named and keeps the others. Jobs that start from
then on have them.

A sensitive one comes from the environment of this command, by the name of the
variable that holds it, as other users of a machine can read arguments. It is
kept encrypted, never shown again, and masked in logs.`,
		Example: `  fairlead variable set --group customers/acme --var AWS_REGION=eu-central-1
  fairlead variable set --install acme --sensitive-env API_TOKEN=ACME_TOKEN`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			in := wire.SetVariablesRequest{Values: map[string]*wire.Variable{}}
			given, err := pairs("var", "NAME=value", plain)
			if err != nil {
				return nil, err
			}
			for name, value := range given {
				in.Values[name] = &wire.Variable{Value: value}
			}
			for _, pair := range secret {
				name, from, ok := strings.Cut(pair, "=")
				if !ok {
					from = name
				}
				value := c.env.Getenv(from)
				if value == "" {
					return nil, usage("Set it for this command.", "the environment variable %s, for %s, is empty", from, name)
				}
				in.Values[name] = &wire.Variable{Value: value, Sensitive: true}
			}
			if len(in.Values) == 0 {
				return nil, usage("Use --var or --sensitive-env.", "no variable is given")
			}
			v, err := cl.SetVariables(ctx, of, in)
			return view.Variables(v), err
		}),
	}
	c.scopeFlags(cmd, &of)
	cmd.Flags().StringArrayVar(&plain, "var", nil, "set a variable, as `NAME=value`; repeatable")
	cmd.Flags().StringArrayVar(&secret, "sensitive-env", nil, "set a sensitive variable to the value of one of this command's, as `NAME=VARIABLE`; repeatable")
	return cmd
}

func (c *cli) variableUnset() *cobra.Command {
	var of client.VariableScope
	cmd := &cobra.Command{
		Use: "unset NAME", Short: "Remove an environment variable of jobs",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			v, err := cl.SetVariables(ctx, of, wire.SetVariablesRequest{Values: map[string]*wire.Variable{args[0]: nil}})
			return view.Variables(v), err
		}),
	}
	c.scopeFlags(cmd, &of)
	return cmd
}

func (c *cli) variableList() *cobra.Command {
	var of client.VariableScope
	cmd := &cobra.Command{
		Use: "list", Short: "List the environment variables that are set on one thing",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			v, err := cl.GetVariables(ctx, of)
			if err != nil {
				return nil, err
			}
			if len(v.Values) == 0 && !c.json {
				c.say("No variables are set there.")
			}
			return view.Variables(v), nil
		}),
	}
	c.scopeFlags(cmd, &of)
	return cmd
}
