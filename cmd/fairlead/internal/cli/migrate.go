package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) installMigrateState() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use: "migrate-state NAME", Short: "Move an install's state to its runner's state storage",
		Long: `Copies the states of an install's components to the state storage of the install's
runner. Use this command after you changed the state storage of the runner. Until the
copies are complete, deployments of the install are refused.

The command reads each copy back and compares its lineage, serial and checksum with
the old state. If all copies are correct, the install uses the copies from then on.
Before that, the install uses the old states, and the command does not change the old
states. If the command fails or is interrupted, you can run it again.

If the control plane stored the old states, it deletes them afterwards. In other
storages the old states remain, and you can delete them.`,
		Example: `  fairlead runner update acme --set 'state_storage_configuration={type: s3, bucket: acme-states, region: eu-central-1}'
  fairlead install migrate-state acme`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			j, err := cl.MigrateState(ctx, args[0])
			if err != nil {
				return err
			}
			if detach {
				return c.print(view.Migration{Install: args[0], Job: j})
			}
			return c.awaitMigration(ctx, cl, args[0], j.ID)
		}),
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	return cmd
}

// migrated shows the log of the job that moves states, and returns the job when it ends.
func (c *cli) migrated(ctx context.Context, cl *client.Client, install, job string) (wire.Job, error) {
	log := view.NewCleaner(c.env.Stderr)
	err := watch.Log(ctx, job, watch.LogOptions{Client: cl, Follow: true, Now: c.env.Now, Tell: func(text string) { c.say("%s", text) }},
		func(chunk wire.LogChunk) error {
			_, err := log.Write(chunk.Data)
			return err
		})
	if err = errors.Join(err, log.Flush()); err != nil {
		return wire.Job{}, err
	}
	j, err := cl.GetJob(ctx, job)
	if err != nil || j.State == "succeeded" {
		return j, err
	}
	detail := fmt.Sprintf("the migration of the state of install %s %s", install, j.State)
	if j.Message != "" {
		detail += ": " + j.Message
	}
	return j, &failure{code: exitFailed, problem: local("migration-"+j.State, "State not moved", detail, fmt.Sprintf("`fairlead job logs %s` shows the job's log.", job))}
}

func (c *cli) awaitMigration(ctx context.Context, cl *client.Client, install, job string) error {
	j, err := c.migrated(ctx, cl, install, job)
	if err != nil {
		return err
	}
	return c.print(view.Migration{Install: install, Job: j})
}
