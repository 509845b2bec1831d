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
		`You can set variables on a runner, a group, an app or an install. If several of these
objects set the same variable, a job gets the first value in this order: the install,
the app, the groups from the install's group up to the root group, the runner. Names
that begin with FAIRLEAD_ or TF_VAR_ are reserved.`,
		c.variableSet(), c.variableUnset(), c.variableList())
}

// scopeFlags adds the flags that select whose variables the command uses: those of a
// runner, a group, an app or an install.
func (c *cli) scopeFlags(cmd *cobra.Command, of *client.VariableScope) {
	cmd.Flags().StringVar(&of.Runner, "runner", "", "variables of this `RUNNER`")
	cmd.Flags().StringVar(&of.Group, "group", "", "variables of the group at this `PATH`; / is the root group")
	cmd.Flags().StringVar(&of.App, "app", "", "variables of this `APP`")
	cmd.Flags().StringVar(&of.Install, "install", "", "variables of this `INSTALL`")
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
	var accept bool
	cmd := &cobra.Command{
		Use: "set", Short: "Set environment variables of jobs",
		Long: `Sets the named variables and keeps the others. Jobs that start later get the new
values.

Give sensitive values with --sensitive-env. The command then reads the value from an
environment variable, because other users of a machine can read arguments. A sensitive
value is stored encrypted, never shown again, and redacted in logs. If the runner of an
install has a seed of install keys, the command encrypts the sensitive variables of the
install, and the control plane cannot read them. It can read those of a runner, a group
or an app.`,
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
					return nil, usage("Set it for this command.", "the environment variable %s for %s is empty", from, name)
				}
				in.Values[name] = &wire.Variable{Value: value, Sensitive: true}
			}
			if len(in.Values) == 0 {
				return nil, usage("Use --var or --sensitive-env.", "the command has no variable")
			}
			if of.Install != "" && len(secret) > 0 {
				if err := c.encryptVariables(ctx, cl, of.Install, in, accept); err != nil {
					return nil, err
				}
			}
			v, err := cl.SetVariables(ctx, of, in)
			return view.Variables(v), err
		}),
	}
	c.scopeFlags(cmd, &of)
	acceptFlag(cmd, &accept)
	cmd.Flags().StringArrayVar(&plain, "var", nil, "set a variable, as `NAME=value`; can be repeated")
	cmd.Flags().StringArrayVar(&secret, "sensitive-env", nil, "set a sensitive variable to the value of an environment variable, as `NAME=VARIABLE`; can be repeated")
	return cmd
}

func (c *cli) variableUnset() *cobra.Command {
	var of client.VariableScope
	cmd := &cobra.Command{
		Use: "unset NAME", Short: "Remove an environment variable of jobs",
		Long:    "Removes a variable from a runner, group, app or install. Jobs that start later do\nnot get this value. They can still get the variable from another of these objects.",
		Example: "  fairlead variable unset AWS_REGION --group customers/acme",
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
		Use: "list", Short: "List environment variables of jobs",
		Long:    "Lists the variables that are set on one runner, group, app or install. Values of\nsensitive variables are hidden.",
		Example: "  fairlead variable list --install acme",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			v, err := cl.GetVariables(ctx, of)
			if err != nil {
				return nil, err
			}
			if len(v.Values) == 0 && !c.json {
				c.say("No variables are set.")
			}
			return view.Variables(v), nil
		}),
	}
	c.scopeFlags(cmd, &of)
	return cmd
}
