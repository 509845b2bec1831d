package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) runner() *cobra.Command {
	return noun("runner", "Create, configure, enrol and check runners",
		"A runner runs in the customer's account. It gets the jobs of its installs from the\ncontrol plane. For each job the runner starts a step: a process, a container, a pod or\na task. Rules map installs to runners.",
		c.runnerList(), c.runnerShow(), c.runnerGet(), c.runnerCreate(), c.runnerUpdate(), c.runnerDelete(),
		c.runnerMode("enable", "enabled", "Let a runner start jobs again",
			"Enables a runner that the vendor paused, drained or disabled. The runner starts queued\njobs again, unless the customer has paused, drained or disabled the runner's agent."),
		c.runnerMode("disable", "disabled", "Stop a runner from starting jobs and getting new installs",
			"Disables a runner. The runner starts no new jobs. Queued jobs stay queued, and running\njobs finish. If an install is not bound to a runner yet, and placement selects this\nrunner, the deployments of the install are refused."),
		c.runnerMode("pause", "paused", "Stop a runner from starting jobs for a while",
			"Pauses a runner. The runner starts no new jobs. Queued jobs stay queued, and running\njobs finish. New installs can still be bound to this runner."),
		c.runnerMode("drain", "draining", "Let a runner finish its running jobs before you remove it",
			"Drains a runner before you remove it. Running jobs finish. The runner starts no new\njobs, and queued jobs stay queued. If an install is not bound to a runner yet, and\nplacement selects this runner, the deployments of the install are refused."),
		c.runnerExplain(), c.runnerRule(), c.runnerChannel(), c.runnerMatrix(), c.runnerImport(), c.runnerEnrol(), c.runnerAssign(), c.runnerUnassign(), c.runnerSession(), c.runnerCheck(), c.runnerLogs(), c.runnerAgent())
}

func (c *cli) runnerList() *cobra.Command {
	return list[view.Runners](c, about{
		short:   "List runners",
		long:    "Lists runners with their kinds, states and running jobs.",
		example: "fairlead runner list",
		none:    "There are no runners. `fairlead runner create NAME` creates one.",
	}, (*client.Client).ListRunners)
}

func (c *cli) runnerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a runner and its agents",
		Long:              "Shows a runner: its state and mode, its agents with their last heartbeats, and what to\ndo if it is unhealthy.",
		Example:           "  fairlead runner show acme-eu",
		ValidArgsFunction: c.names(runnerNames),
		RunE:              one(c, (*client.Client).GetRunner, func(r wire.Runner) view.Document { return view.Runner(r) }),
	}
}

func (c *cli) runnerEnrol() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "enrol NAME", Short: "Create a single-use token that enrols one agent",
		Long: `Creates an enrolment token and prints it. An agent uses the token once, to register
its key with the control plane. The token is valid for one hour. You cannot see the
token again later. With --out the token is not printed, but written to a file that
only you can read.`,
		Example:           "  fairlead runner enrol acme-eu --out enrolment-token",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			e, err := cl.CreateEnrolment(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return c.writeSecret(out, e.Token, "for one enrolment, until "+view.Time(e.ExpiresAt), view.Enrolment{Runner: args[0], Enrolment: e})
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write the token to this `FILE`")
	return cmd
}

func (c *cli) runnerCheck() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "check NAME", Short: "Run an empty job on a runner to test it",
		Long:              "Sends an empty job from the control plane to the runner and waits for its result.\nPrints the time that each part of the way took.",
		Example:           "  fairlead runner check acme-eu\n  fairlead runner check acme-eu --timeout 2m",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			j, err := cl.CheckRunner(ctx, args[0])
			if err != nil {
				return err
			}
			j, err = c.awaitCheck(ctx, cl, args[0], j, timeout, func(wire.LogChunk) error { return nil })
			if err != nil {
				return err
			}
			r, err := cl.GetRunner(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(view.Checked{Job: j, Sessions: r.Sessions})
		}),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the runner")
	return cmd
}

// IsAgentCommand reports whether the arguments of `runner agent` name a subcommand of
// the CLI, which calls the control plane. The program's main passes all other
// arguments to the agent, before the CLI parses flags: the agent has subcommands of
// its own, such as pause.
func IsAgentCommand(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"list", "revoke"}, args[0])
}

// runnerAgent returns the command for its subcommands and its help. The program's main
// runs the agent itself.
func (c *cli) runnerAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent", Short: "Run an agent here, or list and revoke agents' keys",
		Long: `Without a subcommand, the command runs an agent of a runner on this machine. The agent
gets jobs from the control plane and runs them. Customers can run the smaller program
'fairlead-runner agent', which does the same. 'fairlead runner agent --help' lists the
flags of the agent.

The subcommands "list" and "revoke" do not run an agent. They call the control plane.`,
		Example: `  fairlead runner agent --url https://fairlead.example.com --data agent --enrolment-token-file enrolment-token
  fairlead runner agent list acme-eu`,
		Args: cobra.ArbitraryArgs, DisableFlagParsing: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			return usage("Write the flags after `fairlead runner agent`.", "flags before `runner agent` are not accepted")
		},
	}
	cmd.AddCommand(c.agentList(), c.agentRevoke())
	return cmd
}

func (c *cli) agentList() *cobra.Command {
	return &cobra.Command{
		Use: "list RUNNER", Short: "List the agents that enrolled with a key",
		Long:              "Lists the agents that enrolled for a runner. Shows the key, the state and the last\nheartbeat of each agent.",
		Example:           "  fairlead runner agent list acme-eu",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			agents, err := cl.ListAgents(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, agents.Items, view.Agents(agents.Items), "No agent has enrolled with a key. `fairlead runner enrol` creates a token for one.")
		}),
	}
}

func (c *cli) agentRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke RUNNER KEY", Short: "Revoke an agent's key",
		Long: `Revokes the key of an agent permanently, for example because the key was stolen. Ends
the sessions that were opened with the key, and refuses later requests with the key.
Running jobs continue to their end. To stop a job, use 'fairlead job cancel'.

To use the agent again, delete identity.key and identity.json in the data folder of
the agent. Then enrol the agent with a new token of 'fairlead runner enrol'.`,
		Example:           "  fairlead runner agent revoke acme-eu key_01kahq",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"revoked": args[1]}, "Revoked key %s", args[1]), cl.RevokeAgent(ctx, args[0], args[1])
		}),
	}
}

// awaitCheck follows the job's log, calls chunk with each piece, and returns the job
// if it succeeded. After timeout it cancels the job and returns a failure.
func (c *cli) awaitCheck(ctx context.Context, cl *client.Client, runner string, j wire.Job, timeout time.Duration, chunk func(wire.LogChunk) error) (wire.Job, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := watch.Log(limited, j.ID, watch.LogOptions{Client: cl, Follow: true, Now: c.env.Now, Tell: func(text string) { c.say("%s", text) }}, chunk)
	if errors.Is(err, context.DeadlineExceeded) {
		detail := fmt.Sprintf("runner %s has not run the check within %s", runner, timeout)
		hint := fmt.Sprintf("`fairlead runner show %s` shows when it was last seen.", runner)
		if _, err := cl.CancelJob(ctx, j.ID); err != nil {
			hint += fmt.Sprintf(" The check, job %s, is still queued.", j.ID)
		}
		return j, &failure{code: exitFailed, problem: local("check-timeout", "Runner does not respond", detail, hint)}
	}
	if err != nil {
		return j, err
	}
	if j, err = cl.GetJob(ctx, j.ID); err != nil {
		return j, err
	}
	if j.State != "succeeded" {
		detail := fmt.Sprintf("the check of runner %s %s", runner, j.State)
		if j.Message != "" {
			detail += ": " + j.Message
		}
		return j, &failure{code: exitFailed, problem: local("check-"+j.State, "Check "+j.State, detail, view.Advice(j.Next))}
	}
	return j, nil
}

// exists reports whether the file exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
