package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/statefile"
)

func (c *cli) installUnlock() *cobra.Command {
	var yes bool
	var lock string
	cmd := &cobra.Command{
		Use: "unlock NAME COMPONENT", Short: "Remove the state lock of a tool that died",
		Long: `Removes the state lock of a component. If the job that took the lock still has its
lease, the command fails. You rarely need this command: the next job of the component
removes a lock that an ended job left.

'fairlead install show' lists locks with their IDs. With --lock-id the command
removes only the lock with that ID. Without it, the command asks for confirmation
and removes the current lock.`,
		Example:           `  fairlead install unlock acme web --lock-id 6f1c3f0e-2a55-4c1b-9d0a-2f1f4b7f9a10`,
		ValidArgsFunction: c.componentNames,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if err := c.confirm(ctx, yes || lock != "", args[1], "This removes the state lock of component %s of install %s.", args[1], args[0]); err != nil {
				return nil, err
			}
			return view.Unlocked{Install: args[0], Component: args[1], Lock: lock}, cl.UnlockState(ctx, args[0], args[1], lock)
		}),
	}
	cmd.Flags().StringVar(&lock, "lock-id", "", "remove only the lock with this `ID`, without confirmation")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// maxState is the largest state that the control plane accepts, in bytes.
const maxState = 64 << 20

func (c *cli) installPushState() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use: "push-state NAME COMPONENT FILE", Short: "Upload a recovered state file",
		Long: `Uploads the Terraform state in FILE as the state of a component. If FILE is "-", the
command reads the standard input. Use this command if a tool could not save its state
and the runner kept the state in a file. 'fairlead deployment show' prints the path of
this file.

The command works only if the control plane stores the states of the install. This is
the case if the runner has the state storage "http". The command is refused while
a job of the component is queued or running. It is also refused if FILE has the state
of another component, or if the state in FILE is not newer than the stored state.

If the runner encrypts states, use --key-file: the command then encrypts the state, so
that the control plane cannot read it. The file has the seed of the install keys, as the
runner has it (install-key.seed in the data folder of its agent).`,
		Example: `  fairlead install push-state acme web salvage/job_01kahq…-1/errored.tfstate
  ssh runner cat /var/lib/fairlead/salvage/job_01kahq…-1/errored.tfstate | fairlead install push-state acme web -
  fairlead install push-state acme web errored.tfstate --key-file install-key.seed`,
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
			if state, err = c.encryptState(ctx, cl, args[0], args[1], keyFile, state); err != nil {
				return nil, err
			}
			pushed, err := cl.PushState(ctx, args[0], args[1], state)
			return view.Pushed{Install: args[0], State: pushed}, err
		}),
	}
	keyFlag(c, cmd, &keyFile)
	return cmd
}

// encryptState encrypts a state with the seed that this person has, so that steps accept it as one that the customer's side
// made. Without a seed it returns the state as it is: the control plane refuses it if the stored state is encrypted.
func (c *cli) encryptState(ctx context.Context, cl *client.Client, install, component, keyFile string, state []byte) ([]byte, error) {
	in, err := cl.GetInstall(ctx, install)
	if err != nil {
		return nil, err
	}
	keys, err := c.ring(cl, keyFile, fairlead.InstallID(in.ID))
	if err != nil || keys.IsZero() {
		return state, err
	}
	return statefile.Seal(keys, component, state)
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
