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
		Use: "logs NAME", Short: "Print what a runner's agent itself has said of late",
		Long: `Asks the runner for the end of its agent's own log, up to 64 KiB: when it found the
control plane, what it could not start and why. What jobs said is in their own logs.

The runner's answer is the log of a job, so it is there as long as that is. Of a
runner with several agents, one answers. Whoever runs the agent may decline, with
FAIRLEAD_SHARE_LOG=false.`,
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
