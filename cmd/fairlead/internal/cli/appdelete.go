package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

func (c *cli) appDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete an app that no install uses",
		Long: `Deletes an app with all its versions, their names, and the environment variables that
are set on the app. The command is refused while an install uses the app: tear down and
forget its installs first. Past deployments remain, and show the IDs of their versions.

The command asks you to type the app's name. If it was interrupted, run it again.`,
		Example:           "  fairlead app delete hello\n  fairlead app delete hello --yes",
		ValidArgsFunction: c.names(appNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if err := c.confirm(ctx, yes, args[0], "This deletes app %s with all its versions.", args[0]); err != nil {
				return nil, err
			}
			return view.AppDeleted{App: args[0]}, cl.DeleteApp(ctx, args[0])
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}
