package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/jobvalues"
)

func (c *cli) action() *cobra.Command {
	return noun("action", "Run an app's actions on an install",
		"An action is something that an app can do on an install, such as a backup. It runs by\nhand, on a schedule, or before or after an operation of a component. A run is a\ndeployment: it waits for other deployments of the install, and has a plan and a log.",
		c.actionList(), c.actionRun(), c.actionHistory())
}

func (c *cli) actionList() *cobra.Command {
	return &cobra.Command{
		Use: "list INSTALL", Short: "List the actions of an install",
		Long: `Lists the actions of the version that the install has deployed, with the next times of
their schedules. If a schedule skipped its last time, also shows why.`,
		Example:           "  fairlead action list acme",
		ValidArgsFunction: c.names(installNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			all, err := cl.ListActions(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, all.Items, view.Actions(all.Items), "The version that the install has deployed has no actions.")
		}),
	}
}

func (c *cli) actionRun() *cobra.Command {
	var params paramFlags
	var accept bool
	var in wire.RunActionRequest
	var progress progressFlags
	cmd := &cobra.Command{
		Use: "run INSTALL ACTION", Short: "Run an action and follow it to its end",
		Long: `Runs an action of the version that the install has deployed, and shows its log. The
run is planned first. With --ask always it waits for approval before it starts.

An install runs one deployment at a time. If another deployment runs, the run is
queued. With --no-queue the command then exits with code 6 and creates no run.

Ctrl-C stops following the run. The run continues.`,
		Example: `  fairlead action run acme backup
  fairlead action run acme backup --param keep=30
  fairlead action run acme backup --detach`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return c.names(installNames)(cmd, args, toComplete)
			}
			return c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) { return actionNames(ctx, cl, args[0]) })
		},
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			var err error
			if in.Params, in.Encrypted, err = c.params(ctx, cl, args[0], args[1], params, accept); err != nil {
				return err
			}
			d, err := cl.RunAction(ctx, args[0], args[1], in)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	params.register(cmd)
	acceptFlag(cmd, &accept)
	cmd.Flags().StringVar(&in.Ask, "ask", "", "select whether the run waits for approval, as `PLANS`: never or always (default: never)")
	c.must(cmd.RegisterFlagCompletionFunc("ask", cobra.FixedCompletions([]string{"never", "always"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().BoolVar(&in.NoQueue, "no-queue", false, "fail if another deployment of the install has not ended")
	progress.register(cmd)
	return cmd
}

func (c *cli) actionHistory() *cobra.Command {
	var shown extent
	var state string
	cmd := &cobra.Command{
		Use: "history INSTALL ACTION", Short: "List the runs of an action, newest first",
		Long: `Lists the runs of an action that a person or its schedule started, newest first.
A run before or after an operation belongs to the deployment of that operation.
'fairlead job list --deployment ID' lists the jobs of a run.`,
		Example: "  fairlead action history acme backup --limit 5",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return c.names(installNames)(cmd, args, toComplete)
			}
			return c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) { return actionNames(ctx, cl, args[0]) })
		},
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			filter := client.DeploymentFilter{Install: args[0], Action: args[1], State: state}
			ds, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Deployment], error) {
				return cl.ListDeployments(ctx, filter, o)
			})
			if err != nil {
				return err
			}
			return listing(c, ds, view.Runs(ds), fmt.Sprintf("The action has not run. `fairlead action run %s %s` runs it.", args[0], args[1]))
		}),
	}
	cmd.Flags().StringVar(&state, "state", "", "only runs in this `STATE`, such as failed")
	c.must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(deploymentStates(), cobra.ShellCompDirectiveNoFileComp)))
	newestFlags(cmd, &shown)
	return cmd
}

func actionNames(ctx context.Context, cl *client.Client, install string) ([]string, error) {
	all, err := cl.ListActions(ctx, install)
	names := make([]string, len(all.Items))
	for i, a := range all.Items {
		names[i] = a.Name
	}
	return names, err
}

// paramFlags hold the flags that set an action's params.
type paramFlags struct {
	pairs []string // name=value
	env   []string // name=VARIABLE
	file  string
}

func (f *paramFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.pairs, "param", "p", nil, "set a param, as `name=value`; write a list or map as JSON; can be repeated")
	cmd.Flags().StringArrayVar(&f.env, "param-env", nil, "set a param to the value of an environment variable, as `name=VARIABLE`; can be repeated")
	cmd.Flags().StringVarP(&f.file, "param-file", "f", "", "read params from a YAML or JSON `FILE`; - means the standard input")
}

// params returns the values of the flags, as the types that the action declares. The control plane checks them. Sensitive ones are
// encrypted, if the install has a key or gets one. Without flags it sends no request: the control plane reports an action that does not
// exist.
func (c *cli) params(ctx context.Context, cl *client.Client, install, action string, f paramFlags, accept bool) (map[string]json.RawMessage, map[string]wire.Encrypted, error) {
	if len(f.pairs)+len(f.env) == 0 && f.file == "" {
		return nil, nil, nil
	}
	all, err := cl.ListActions(ctx, install)
	if err != nil {
		return nil, nil, err
	}
	var declared []wire.AppInput
	for _, a := range all.Items {
		if a.Name == action {
			declared = a.Params
		}
	}
	values, err := c.given("param", f.pairs, f.env, f.file, declared)
	if err != nil {
		return nil, nil, err
	}
	given, err := encodeInputs(values, nil)
	if err != nil {
		return nil, nil, err
	}
	secrets, others := splitSecrets(declared, given)
	if len(secrets) == 0 {
		return given, nil, nil
	}
	key, err := c.keyOf(ctx, cl, install, accept)
	if err != nil || key == nil {
		return given, nil, err
	}
	encrypted := make(map[string]wire.Encrypted, len(secrets))
	for name, raw := range secrets {
		e, err := jobvalues.Encrypt(key.Seal, jobvalues.ParamPlace(name), raw, nil)
		if err != nil {
			return nil, nil, err
		}
		encrypted[name] = wire.Encrypted{Bytes: e.Encrypted, Type: e.Type, Size: e.Size}
	}
	return others, encrypted, nil
}
