package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) runnerLogs() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "logs NAME", Short: "Print the recent log of a runner's agent",
		Long: `Prints the last 64 KiB of the own log of a runner's agent. This log shows connections
to the control plane. It also shows which steps could not start, and why. The output
of jobs is not in this log: use 'fairlead job logs'.

The control plane stores the answer of the agent as the log of a job, and keeps it as
long as other logs of jobs. If a runner has several agents, one of them answers. With
FAIRLEAD_SHARE_LOG=false the operator of an agent can refuse to share the log.`,
		Example:           "  fairlead runner logs acme-eu",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			j, err := cl.AskRunnerLog(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json {
				var text strings.Builder
				if j, err = c.awaitCheck(ctx, cl, args[0], j, timeout, func(chunk wire.LogChunk) error { text.Write(chunk.Data); return nil }); err != nil {
					return err
				}
				return c.print(view.RunnerLog{Runner: j.Runner, Job: j.ID, Text: text.String()})
			}
			w := view.NewCleaner(c.env.Stdout)
			_, err = c.awaitCheck(ctx, cl, args[0], j, timeout, func(chunk wire.LogChunk) error {
				_, err := w.Write(chunk.Data)
				return err
			})
			if ferr := w.Flush(); err == nil && ferr != nil {
				err = fmt.Errorf("write the log: %w", ferr)
			}
			return err
		}),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the runner")
	return cmd
}
