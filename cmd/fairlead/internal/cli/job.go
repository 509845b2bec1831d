package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) job() *cobra.Command {
	return noun("job", "Look into single jobs and their logs",
		"A job is one operation on one component, run by a runner.",
		c.jobList(), c.jobShow(), c.jobLogs(), c.jobCancel())
}

func (c *cli) jobList() *cobra.Command {
	shown := extent{page: jobsPageSize}
	var filter client.JobFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, the newest first",
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			var err error
			if filter.Deployment != "" {
				if filter.Deployment, err = fullDeployment(ctx, cl, filter.Deployment); err != nil {
					return err
				}
			}
			jobs, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Job], error) {
				return cl.ListJobs(ctx, filter, o)
			})
			if err != nil {
				return err
			}
			return listing(c, jobs, view.Jobs(jobs), "There are no jobs. Deployments and `fairlead runner check` make them.")
		}),
	}
	cmd.Flags().StringVar(&filter.Deployment, "deployment", "", "only those of this `DEPLOYMENT`")
	c.flagNames(cmd, "deployment", deploymentIDs)
	newestFlags(cmd, &shown)
	return cmd
}

func (c *cli) jobShow() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a job and its plan", ValidArgsFunction: c.names(jobIDs),
		RunE: c.whole(fullJob, func(ctx context.Context, cl *client.Client, args []string) error {
			j, err := cl.GetJob(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(view.Job(j))
		}),
	}
}

func (c *cli) jobCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID", Short: "Cancel a job, and with it its deployment's way through that component", ValidArgsFunction: c.names(jobIDs),
		RunE: c.whole(fullJob, func(ctx context.Context, cl *client.Client, args []string) error {
			j, err := cl.CancelJob(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(view.Canceling{Noun: "job", ID: j.ID, State: j.State, Object: j})
		}),
	}
}

func (c *cli) jobLogs() *cobra.Command {
	var noFollow, raw, all bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print a job's log, and follow it until the job is over",
		Long: `Prints what the tool of a job wrote, attempt by attempt. What init printed is one
line, unless it failed; --all shows it. Control sequences are removed, so that no
job can do anything to your terminal; --raw keeps every byte, for a file or a
pipe.

With --json it prints all of it, once the log is complete or with --no-follow at once,
an array of {"epoch", "text"}, one for each attempt.`,
		Example: `  fairlead job logs job_01kahq…
  fairlead job logs job_01kahq… --all
  fairlead job logs job_01kahq… --raw > apply.log`,
		ValidArgsFunction: c.names(jobIDs),
		RunE: c.whole(fullJob, func(ctx context.Context, cl *client.Client, args []string) error {
			if raw && c.env.StdoutTTY {
				return usage("Leave out --raw, or write to a file.", "--raw does not write to a terminal, which the job could then control")
			}
			o := watch.LogOptions{Client: cl, Follow: !noFollow, Now: c.env.Now, Tell: func(text string) { c.say("%s", text) }}
			if c.json {
				return c.logDocument(ctx, args[0], o)
			}
			err := c.copyLog(ctx, args[0], o, raw, all)
			if errors.Is(err, context.Canceled) {
				p := local("interrupted", "Interrupted", fmt.Sprintf("stopped reading; job %s is not affected", args[0]), "")
				return &failure{code: exitInterrupted, problem: p}
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "print what there is now, and end")
	cmd.Flags().BoolVar(&all, "all", false, "show what init printed, too")
	cmd.Flags().BoolVar(&raw, "raw", false, "keep control sequences; not to a terminal")
	return cmd
}

// copyLog writes the log to the standard output as it grows.
func (c *cli) copyLog(ctx context.Context, job string, o watch.LogOptions, raw, all bool) error {
	write := func(data []byte) error {
		_, err := c.env.Stdout.Write(data)
		return err
	}
	end := func() error { return nil }
	if !raw {
		write, end = c.readable(all)
	}
	epoch := int64(0)
	err := watch.Log(ctx, job, o, func(chunk wire.LogChunk) error {
		if epoch != 0 && chunk.Epoch != epoch {
			if err := end(); err != nil {
				return fmt.Errorf("write the log: %w", err)
			}
			c.say("Attempt %d:", chunk.Epoch)
		}
		epoch = chunk.Epoch
		if err := write(chunk.Data); err != nil {
			return fmt.Errorf("write the log: %w", err)
		}
		if chunk.Truncated && chunk.Done {
			c.say("The log is not complete.")
		}
		return nil
	})
	if flushErr := end(); err == nil && flushErr != nil {
		err = fmt.Errorf("write the log: %w", flushErr)
	}
	return err
}

// readable returns what writes a log for people: cleaned, and with what init printed
// as one line unless all is set. end writes what is held at the end of an attempt.
func (c *cli) readable(all bool) (write func([]byte) error, end func() error) {
	cleaned := view.NewCleaner(c.env.Stdout)
	var failed error
	add, rest := watch.Fold(all, func(data []byte) {
		_, err := cleaned.Write(data)
		failed = errors.Join(failed, err)
	}, func(line string) {
		failed = errors.Join(failed, cleaned.Flush())
		_, err := io.WriteString(c.env.Stdout, line+" (--all shows it)\n")
		failed = errors.Join(failed, err)
	})
	return func(data []byte) error {
			add(data)
			return failed
		}, func() error {
			rest()
			return errors.Join(failed, cleaned.Flush())
		}
}

// logDocument prints the log as one document.
func (c *cli) logDocument(ctx context.Context, job string, o watch.LogOptions) error {
	var log view.JobLog
	var text strings.Builder
	add, end := watch.Fold(true, func(data []byte) { text.Write(data) }, nil)
	err := watch.Log(ctx, job, o, func(chunk wire.LogChunk) error {
		if len(log) == 0 || log[len(log)-1].Epoch != chunk.Epoch {
			if end(); len(log) > 0 {
				log[len(log)-1].Text = text.String()
			}
			text.Reset()
			log = append(log, view.Attempt{Epoch: chunk.Epoch})
		}
		add(chunk.Data)
		log[len(log)-1].Truncated = chunk.Truncated
		return nil
	})
	if err != nil {
		return err
	}
	if end(); len(log) > 0 {
		log[len(log)-1].Text = text.String()
	}
	return c.print(log)
}
