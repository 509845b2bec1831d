package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

func (c *cli) appRender() *cobra.Command {
	var version, component string
	cmd := &cobra.Command{
		Use: "render INSTALL", Short: "Show what a deployment would give to each component",
		Long: `Shows what the next deployment of the install would give to each component: its type,
its source, its variables and options with all references resolved, and the names of
its environment variables. The command changes nothing and starts no job.

Secrets are shown as (sensitive). A value that an output of another component decides
is shown as (known after COMPONENT) until that component is deployed. An output that
exists is shown as it is now; a deployment of its component can change it.`,
		Example: `  fairlead app render acme
  fairlead app render acme --version v1.4.0 --component web
  fairlead app render acme --json | jq '.components[] | {name, vars}'`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			version, err := fullVersion(ctx, cl, args[0], version)
			if err != nil {
				return nil, err
			}
			r, err := cl.RenderInstall(ctx, args[0], version, component)
			return view.Rendered(r), err
		}),
	}
	cmd.Flags().StringVar(&version, "version", "", "show this `VERSION`, an ID or a name from 'fairlead app versions' (default: the newest version)")
	c.must(cmd.RegisterFlagCompletionFunc("version", c.versionIDs))
	cmd.Flags().StringVar(&component, "component", "", "show only this `COMPONENT`")
	return cmd
}
