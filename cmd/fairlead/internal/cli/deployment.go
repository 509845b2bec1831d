package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) deployment() *cobra.Command {
	return noun("deployment", "Watch, approve, cancel and retry deployments",
		"A deployment is a graph of jobs on one install. For each component, one job plans the\nchange. After the plan is approved, a second job applies the plan.",
		c.deploymentList(), c.deploymentShow(), c.deploymentApprove(), c.deploymentCancel(), c.deploymentRetry())
}

func (c *cli) deploymentList() *cobra.Command {
	var shown extent
	var filter client.DeploymentFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List deployments, newest first",
		Long:    "Lists deployments with their states and times. Also shows with which API token each\ndeployment was created.",
		Example: "  fairlead deployment list --install acme --limit 5\n  fairlead deployment list --state awaiting-approval",
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			ds, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Deployment], error) {
				return cl.ListDeployments(ctx, filter, o)
			})
			if err != nil {
				return err
			}
			return listing(c, ds, view.Deployments(ds), "There are no deployments. `fairlead install deploy NAME` starts one.")
		}),
	}
	cmd.Flags().StringVar(&filter.Install, "install", "", "only deployments of this `INSTALL`; the install may already be deleted with 'fairlead install forget'")
	c.flagNames(cmd, "install", installNames)
	cmd.Flags().StringVar(&filter.State, "state", "", "only deployments in this `STATE`, such as awaiting-approval")
	c.must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(deploymentStates(), cobra.ShellCompDirectiveNoFileComp)))
	newestFlags(cmd, &shown)
	return cmd
}

func (c *cli) deploymentShow() *cobra.Command {
	var wait bool
	var progress progressFlags
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a deployment and the status of each component",
		Long: `Shows a deployment and the status of each component. After a failure, also shows what
to do next. Instead of the whole ID you can give its first characters.`,
		Example: `  fairlead deployment show dep_01kahq
  fairlead deployment show dep_01kahq --follow`,
		ValidArgsFunction: c.names(deploymentIDs),
		RunE: c.whole(fullDeployment, func(ctx context.Context, cl *client.Client, args []string) error {
			d, err := cl.GetDeployment(ctx, args[0])
			if err != nil {
				return err
			}
			if wait {
				progress.attached = true
				return c.see(ctx, cl, d, progress)
			}
			return c.print(view.Deployment(d))
		}),
	}
	cmd.Flags().BoolVarP(&wait, "follow", "f", false, "follow the deployment to its end, as 'fairlead install deploy' does")
	cmd.Flags().BoolVarP(&progress.quiet, "quiet", "q", false, "with --follow: show only the result, without progress and logs")
	verboseFlag(cmd, &progress)
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
	return cmd
}

func (c *cli) deploymentApprove() *cobra.Command {
	var in wire.ApproveRequest
	progress := progressFlags{attached: true}
	cmd := &cobra.Command{
		Use: "approve ID [COMPONENT...]", Short: "Approve waiting plans and follow the deployment",
		Long: `Approves the plans that wait for approval now. If you name components, approves only
the plans of these components. Then follows the deployment to its end, as 'fairlead
install deploy' does. Plans that are created later need another approval.`,
		Example: `  fairlead deployment approve dep_01kahq
  fairlead deployment approve dep_01kahq network --detach`,
		Args: atLeastID,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return c.names(deploymentIDs)(cmd, args, toComplete)
			}
			return c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
				d, err := cl.GetDeployment(ctx, args[0])
				if err != nil {
					return nil, err
				}
				var names []string
				for _, component := range d.Components {
					if component.State == "awaiting-approval" {
						names = append(names, component.Name)
					}
				}
				return names, nil
			})
		},
		RunE: c.whole(fullDeployment, func(ctx context.Context, cl *client.Client, args []string) error {
			in.Components = args[1:]
			d, err := cl.ApproveDeployment(ctx, args[0], in)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	progress.register(cmd)
	return cmd
}

func (c *cli) deploymentCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID", Short: "Cancel a deployment",
		Long: `Cancels a deployment. Queued jobs do not start. A running tool is interrupted,
saves its state and stops. Components that were applied stay applied.`,
		Example:           "  fairlead deployment cancel dep_01kahq",
		ValidArgsFunction: c.names(deploymentIDs),
		RunE: c.whole(fullDeployment, func(ctx context.Context, cl *client.Client, args []string) error {
			d, err := cl.CancelDeployment(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(view.CancelingDeployment(d))
		}),
	}
}

func (c *cli) deploymentRetry() *cobra.Command {
	var progress progressFlags
	cmd := &cobra.Command{
		Use: "retry ID", Short: "Resume a failed deployment",
		Long: `Creates a new deployment that continues a failed or canceled deployment. The new
deployment uses the same version of the app and the current inputs of the install. It
skips the components that the old deployment completed. The command is refused if a
later deployment changed the install.`,
		Example:           "  fairlead deployment retry dep_01kahq",
		ValidArgsFunction: c.names(deploymentIDs),
		RunE: c.whole(fullDeployment, func(ctx context.Context, cl *client.Client, args []string) error {
			d, err := cl.RetryDeployment(ctx, args[0])
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	progress.register(cmd)
	return cmd
}

func atLeastID(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("ID is missing")
	}
	return nil
}
