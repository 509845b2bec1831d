package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
)

func (c *cli) ops() *cobra.Command {
	return noun("ops", "Operate a control plane",
		"Commands for the operator of a control plane. They work on its data directly, and need\nno API token.",
		c.opsRestore())
}

func (c *cli) opsRestore() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "restore", Short: "Make a restored backup safe to serve",
		Long: `Run this command after you restored a backup into an empty data folder, and before you
start the server. The backup does not know the jobs after it, so the command:

- refuses all sessions and leases from before the restore; agents log in again
- cancels the deployments that were not finished
- marks every existing component as unknown: its next deployment plans first, and waits
  for an approval if the plan finds changes, also with --auto-approve`,
		Example: `  fairlead ops restore --data /var/lib/fairlead
  fairlead ops restore --data /var/lib/fairlead --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.env.AfterRestore == nil {
				return usage("", "this build has no control plane")
			}
			dir := cmp.Or(data, c.env.Getenv("FAIRLEAD_DATA"), c.dataDir())
			if dir == "" {
				return usage("Set --data.", "no data folder is set, and the user has no home folder")
			}
			done, err := c.env.AfterRestore(cmd.Context(), dir)
			if err != nil {
				return err
			}
			return c.print(done)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the restored data folder `DIR` (default: $FAIRLEAD_DATA, else \"fairlead\" in the user's data folder)")
	c.must(cmd.MarkFlagDirname("data"))
	return cmd
}

// AfterRestore is the result of Env.AfterRestore.
type AfterRestore = view.AfterRestore
