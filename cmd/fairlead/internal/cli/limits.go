package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

func (c *cli) limits() *cobra.Command {
	return &cobra.Command{
		Use: "limits", Short: "Show the limits of the org, and what is used",
		Long: `Shows how many apps, installs and other objects the org has and can have, and the rates
at which the org and your token can send requests. Needs the role viewer of the whole
org. An error that names a limit or a quota uses the names of this table.`,
		Example: "  fairlead limits",
		Args:    cobra.NoArgs,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			l, err := cl.GetLimits(ctx)
			return view.Limits(l), err
		}),
	}
}
