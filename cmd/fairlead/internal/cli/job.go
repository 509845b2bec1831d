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
	return noun("job", "Show jobs and their logs",
		"A job is one operation on one component, such as a plan or an apply. Each\njob is run by a runner.",
		c.jobList(), c.jobShow(), c.jobLogs(), c.jobCancel())
}

func (c *cli) jobList() *cobra.Command {
	shown := extent{page: jobsPageSize}
	var filter client.JobFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long:    "Lists jobs with their operations, states and times.",
		Example: "  fairlead job list --limit 5\n  fairlead job list --deployment dep_01kahq",
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
			return listing(c, jobs, view.Jobs(jobs), "There are no jobs. Deployments and `fairlead runner check` create them.")
		}),
	}
	cmd.Flags().StringVar(&filter.Deployment, "deployment", "", "only jobs of this `DEPLOYMENT`")
	c.flagNames(cmd, "deployment", deploymentIDs)
	newestFlags(cmd, &shown)
	return cmd
}

func (c *cli) jobShow() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a job and its plan",
		Long:              "Shows the state and the times of a job. If the job failed, shows why. If the job has a\nplan, shows the plan. Instead of the whole ID you can give its first characters.",
		Example:           "  fairlead job show job_01kahq",
		ValidArgsFunction: c.names(jobIDs),
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
		Use: "cancel ID", Short: "Cancel a job and skip the remaining jobs of its component",
		Long: `Cancels a job. A queued job does not start. The tool of a running job is
interrupted, saves its state and stops. The deployment skips the component and the
components that depend on it.`,
		Example:           "  fairlead job cancel job_01kahq",
		ValidArgsFunction: c.names(jobIDs),
		RunE: c.whole(fullJob, func(ctx context.Context, cl *client.Client, args []string) error {
			j, err := cl.CancelJob(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(view.CancelingJob(j))
		}),
	}
}

func (c *cli) jobLogs() *cobra.Command {
	var noFollow, raw, all bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print a job's log and follow it to its end",
		Long: `Prints the output of a job's tool, for each attempt of the job. A successful init is
printed as one line. With --all the command prints the whole output of init.

The command removes control sequences, because a job could control your terminal with
them. With --raw the command keeps every byte, and must write to a file or a pipe.

With --json the command waits until the log is complete, and then prints one array
with an object for each attempt. With --json --no-follow it prints the array at once.`,
		Example: `  fairlead job logs job_01kahq
  fairlead job logs job_01kahq --all
  fairlead job logs job_01kahq --raw > apply.log`,
		ValidArgsFunction: c.names(jobIDs),
		RunE: c.whole(fullJob, func(ctx context.Context, cl *client.Client, args []string) error {
			if raw && c.env.StdoutTTY {
				return usage("Remove --raw, or write to a file.", "--raw cannot write to a terminal: the job could control it")
			}
			o := watch.LogOptions{Client: cl, Follow: !noFollow, Now: c.env.Now, Tell: func(text string) { c.say("%s", text) }}
			if c.json {
				return c.logDocument(ctx, args[0], o)
			}
			err := c.copyLog(ctx, args[0], o, raw, all)
			if errors.Is(err, context.Canceled) {
				p := local("interrupted", "Interrupted", fmt.Sprintf("stopped reading the log; job %s is not affected", args[0]), "")
				return &failure{code: exitInterrupted, problem: p}
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "print the current log and exit")
	cmd.Flags().BoolVar(&all, "all", false, "print the whole output of init")
	cmd.Flags().BoolVar(&raw, "raw", false, "keep control sequences; the output must be a file or a pipe")
	return cmd
}

// copyLog follows the log and writes it to the standard output.
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
	var incomplete watch.Incomplete
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
		if text := incomplete.Next(chunk); text != "" {
			c.say("%s%s.", strings.ToUpper(text[:1]), text[1:])
		}
		return nil
	})
	if flushErr := end(); err == nil && flushErr != nil {
		err = fmt.Errorf("write the log: %w", flushErr)
	}
	return err
}

// readable returns functions that write a log for people: without control sequences,
// and with a successful init as one line unless all is set. write takes the next
// piece. end must be called at the end of an attempt: it writes the text that write
// held back.
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

// logDocument prints the whole log as one JSON document.
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
		log[len(log)-1].Truncated, log[len(log)-1].TruncatedBy = chunk.Truncated, chunk.TruncatedBy
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
