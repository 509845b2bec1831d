package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

func (c *cli) installUnlock() *cobra.Command {
	var yes bool
	var lock string
	cmd := &cobra.Command{
		Use:   "unlock NAME COMPONENT",
		Short: "Break the lock of a component's state that a dead tool left",
		Long: `Breaks the lock of a component's state. It is refused while the job that took it
holds its lease. The lock of a job that is over needs no breaking: the next job
of the component does so by itself.

'fairlead install show' lists locks with their IDs. With --lock-id no other lock
is broken than the one that you have seen.`,
		Example: `  fairlead install unlock acme web --lock-id 6f1c3f0e-2a55-4c1b-9d0a-2f1f4b7f9a10`,
		Args:    exactly, ValidArgsFunction: c.componentNames,
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			if err := c.confirm(ctx, yes || lock != "", args[1], "This breaks the lock of component %s of install %s.", args[1], args[0]); err != nil {
				return err
			}
			if err := cl.UnlockState(ctx, args[0], args[1], lock); err != nil {
				return err
			}
			return c.print(view.Unlocked{Install: args[0], Component: args[1], Lock: lock})
		}),
	}
	cmd.Flags().StringVar(&lock, "lock-id", "", "break the lock with this `ID` and no other; nobody is asked")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.must(cmd.RegisterFlagCompletionFunc("lock-id", cobra.NoFileCompletions))
	return cmd
}

// maxState is the largest state that the control plane takes, in bytes.
const maxState = 64 << 20

func (c *cli) installPushState() *cobra.Command {
	return &cobra.Command{
		Use:   "push-state NAME COMPONENT FILE",
		Short: "Put a state in place that a tool could not save",
		Long: `Makes the Terraform state in FILE, or on the standard input for "-", the state of
a component. This is for states that a tool could not save and the runner has
kept; 'fairlead deployment show' says where.

It is for installs whose states are at the control plane (a runner with
'--storage http'). It is refused while a job of the component is queued or at
work, and for a state that is of another component or not newer than the one
that is there.`,
		Example: `  fairlead install push-state acme web salvage/job_01kahq…-1/errored.tfstate
  ssh runner cat /var/lib/fairlead/salvage/job_01kahq…-1/errored.tfstate | fairlead install push-state acme web -`,
		Args: exactly,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 2 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return c.componentNames(cmd, args, toComplete)
		},
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			state, err := c.readState(args[2])
			if err != nil {
				return err
			}
			pushed, err := cl.PushState(ctx, args[0], args[1], state)
			if err != nil {
				return err
			}
			return c.print(view.Pushed{Install: args[0], State: pushed})
		}),
	}
}

// readState reads a state from a file, or from the standard input.
func (c *cli) readState(path string) ([]byte, error) {
	in := c.env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usage("", "the state cannot be read: %v", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxState+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the state: %w", err)
	case len(data) > maxState:
		return nil, usage("", "the state in %s is larger than 64 MiB", path)
	case len(data) == 0:
		return nil, usage("", "the state in %s is empty", path)
	}
	return data, nil
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
