package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
)

func (c *cli) ops() *cobra.Command {
	return noun("ops", "Operate a control plane",
		"Commands for the operator of a control plane. They work on its data directly, and need\nno API token.",
		c.opsReplay(), c.opsRestore())
}

func (c *cli) opsReplay() *cobra.Command {
	o := ReplayOptions{}
	cmd := &cobra.Command{
		Use: "replay [QUEUE]...", Short: "Replay the dead letters of a control plane on AWS",
		Long: `Replays the messages that the functions of a control plane on AWS gave up: a delivery of
logs, a batch of the table's stream, an event for webhooks. Fix the cause first; an alarm's
runbook names it. QUEUE is dispatch, audit, sweep, logindex or webhook; by default all of them.

The command uses your own AWS credentials. They must permit to describe the stack, to
receive from its dead-letter queues, and to invoke its functions. A message that cannot be
replayed stays in its queue for 14 days. Repeat the command at any time: the functions
accept repeated events.`,
		Example: `  fairlead ops replay --stage prod --region eu-central-1
  fairlead ops replay logindex --stage prod --json | jq '.[] | select(.outcome != "replayed")'`,
		Args:      cobra.ArbitraryArgs,
		ValidArgs: DeadLetterQueues,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.env.Replay == nil {
				return c.lacks("cannot reach AWS")
			}
			for _, name := range args {
				if !slices.Contains(DeadLetterQueues, name) {
					return usage("", "there is no queue %q; the queues are %s", name, strings.Join(DeadLetterQueues, ", "))
				}
			}
			if o.Queues = args; len(args) == 0 {
				o.Queues = DeadLetterQueues
			}
			done, err := c.env.Replay(cmd.Context(), o)
			if len(done) > 0 || err == nil {
				err = errors.Join(err, c.print(done))
			}
			if err == nil && done.Left() > 0 {
				err = &failure{code: exitFailed} // the printed result has the messages
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Stage, "stage", "prod", "the control plane's `STAGE`")
	cmd.Flags().StringVar(&o.Region, "region", "", "the control plane's AWS `REGION` (default: that of your AWS configuration)")
	cmd.Flags().BoolVar(&o.Discard, "discard-expired", false, "delete messages whose records the table's stream no longer has; the sweep has sent their wake-ups")
	c.must(cmd.RegisterFlagCompletionFunc("stage", cobra.NoFileCompletions))
	c.must(cmd.RegisterFlagCompletionFunc("region", cobra.NoFileCompletions))
	return cmd
}

// DeadLetterQueues are the names of the functions with a dead-letter queue.
var DeadLetterQueues = []string{"dispatch", "audit", "sweep", "logindex", "webhook"}

// ReplayOptions select the dead letters to replay.
type ReplayOptions struct {
	Stage, Region string
	Queues        []string // of DeadLetterQueues
	Discard       bool     // delete messages that cannot be replayed any more
}

// Replayed is the result of Env.Replay.
type Replayed = view.Replayed

// DeadLetter is one message of Replayed.
type DeadLetter = view.DeadLetter

func (c *cli) opsRestore() *cobra.Command {
	o := RestoreOptions{}
	cmd := &cobra.Command{
		Use: "restore", Short: "Make a restored backup safe to serve",
		Long: `Run this command after you restored a backup, and before a control plane serves it: into
an empty data folder (--data), or on AWS into a table under a new name (--table). The backup
does not know the jobs after it, so the command:

- refuses all sessions and leases from before the restore; agents log in again
- cancels the deployments that were not finished
- marks every existing component as unknown: its next deployment plans first, and waits
  for an approval if the plan finds changes, also with --auto-approve. The same is true
  for the first plan of a component that does not exist in the backup
- on AWS, enables the table's stream, its point-in-time recovery and its protection from
  deletion, and makes the missing queues of runners and log groups of installs
- on AWS, brings back the states and values that the backup names and that were deleted
  after it. After the loss of a Region, --blobs names the bucket with their copies

On AWS the command uses your own AWS credentials. They must permit to read the function
controlapi of the stack, to change, read and write the table, to create queues and log
groups, and to read, write and delete blobs and their versions. Afterwards
"make deploy TABLE=NAME" lets the functions serve the table.`,
		Example: `  fairlead ops restore --data /var/lib/fairlead
  fairlead ops restore --table fairlead-prod-restored --stage prod --region eu-central-1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.env.AfterRestore == nil {
				return c.lacks("has no control plane")
			}
			if o.Table == "" {
				o.Data = cmp.Or(o.Data, c.env.Getenv("FAIRLEAD_DATA"), c.dataDir())
				if o.Data == "" {
					return usage("Set --data, or --table for a control plane on AWS.", "no data folder is set, and the user has no home folder")
				}
			}
			done, err := c.env.AfterRestore(cmd.Context(), o)
			if err != nil {
				return err
			}
			return c.print(done)
		},
	}
	cmd.Flags().StringVar(&o.Data, "data", "", "the restored data folder `DIR` (default: $FAIRLEAD_DATA, else \"fairlead\" in the user's data folder)")
	cmd.Flags().StringVar(&o.Table, "table", "", "the restored `TABLE` of a control plane on AWS")
	cmd.Flags().StringVar(&o.Stage, "stage", "prod", "with --table: the control plane's `STAGE`")
	cmd.Flags().StringVar(&o.Region, "region", "", "with --table: the control plane's AWS `REGION` (default: that of your AWS configuration)")
	cmd.Flags().StringVar(&o.Blobs, "blobs", "", "with --table, after the loss of a Region: the `BUCKET` of the spare stack with copies of the blobs")
	cmd.MarkFlagsMutuallyExclusive("data", "table")
	cmd.MarkFlagsMutuallyExclusive("data", "blobs")
	c.must(cmd.MarkFlagDirname("data"))
	for _, name := range []string{"table", "stage", "region", "blobs"} {
		c.must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return cmd
}

// RestoreOptions name the restored data: a data folder, or a table on AWS.
type RestoreOptions struct {
	Data                 string // "" with Table
	Table, Stage, Region string // Table is "" with Data
	Blobs                string // with Table: bucket with copies of the blobs of a lost Region; "": none
}

// AfterRestore is the result of Env.AfterRestore.
type AfterRestore = view.AfterRestore
