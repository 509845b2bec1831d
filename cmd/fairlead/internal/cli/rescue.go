package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

func (c *cli) installUnlock() *cobra.Command {
	var yes bool
	var lock string
	cmd := &cobra.Command{
		Use: "unlock NAME COMPONENT", Short: "Break the lock of a component's state that a dead tool left",
		Long: `Breaks the lock of a component's state. It is refused while the job that took it
holds its lease. The lock of a job that is over needs no breaking: the next job
of the component does so by itself.

'fairlead install show' lists locks with their IDs. With --lock-id no other lock
is broken than the one that you have seen.`,
		Example:           `  fairlead install unlock acme web --lock-id 6f1c3f0e-2a55-4c1b-9d0a-2f1f4b7f9a10`,
		ValidArgsFunction: c.componentNames,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if err := c.confirm(ctx, yes || lock != "", args[1], "This breaks the lock of component %s of install %s.", args[1], args[0]); err != nil {
				return nil, err
			}
			return view.Unlocked{Install: args[0], Component: args[1], Lock: lock}, cl.UnlockState(ctx, args[0], args[1], lock)
		}),
	}
	cmd.Flags().StringVar(&lock, "lock-id", "", "break the lock with this `ID` and no other; nobody is asked")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// maxState is the largest state that the control plane takes, in bytes.
const maxState = 64 << 20

func (c *cli) installPushState() *cobra.Command {
	return &cobra.Command{
		Use: "push-state NAME COMPONENT FILE", Short: "Put a state in place that a tool could not save",
		Long: `Makes the Terraform state in FILE, or on the standard input for "-", the state of
a component. This is for states that a tool could not save and the runner has
kept; 'fairlead deployment show' says where.

It is for installs whose states are at the control plane (a runner with
'--storage http'). It is refused while a job of the component is queued or at
work, and for a state that is of another component or not newer than the one
that is there.`,
		Example: `  fairlead install push-state acme web salvage/job_01kahq…-1/errored.tfstate
  ssh runner cat /var/lib/fairlead/salvage/job_01kahq…-1/errored.tfstate | fairlead install push-state acme web -`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 2 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return c.componentNames(cmd, args, toComplete)
		},
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			state, err := c.readFile(args[2], "state", maxState)
			if err != nil {
				return nil, err
			}
			if len(state) == 0 {
				return nil, usage("", "the state in %s is empty", args[2])
			}
			pushed, err := cl.PushState(ctx, args[0], args[1], state)
			return view.Pushed{Install: args[0], State: pushed}, err
		}),
	}
}

// componentNames completes the name of an install, and then of a component.
func (c *cli) componentNames(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.names(installNames)(cmd, args, toComplete)
	}
	return c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
		in, err := cl.GetInstall(ctx, args[0])
		if err != nil {
			return nil, err
		}
		var names []string
		for _, component := range in.Components {
			names = append(names, cobra.CompletionWithDesc(component.Name, component.State))
		}
		return names, nil
	})
}
