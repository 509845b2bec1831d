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
	return noun("runner", "Make, configure, enrol and check runners",
		"A runner sits beside the customer's resources, polls for the jobs of its\ninstalls, and runs each in a process of its own. Rules say which installs it has.",
		c.runnerList(), c.runnerShow(), c.runnerGet(), c.runnerCreate(), c.runnerUpdate(), c.runnerDelete(),
		c.runnerMode("enable", "enabled", "Let a runner take work"),
		c.runnerMode("disable", "disabled", "Let a runner begin nothing; what waits for it waits on"),
		c.runnerMode("pause", "paused", "Let a runner begin nothing for a while; what is given to it waits"),
		c.runnerMode("drain", "draining", "Let a runner end what it has begun, and begin nothing"),
		c.runnerExplain(), c.runnerRule(), c.runnerChannel(), c.runnerMatrix(), c.runnerImport(), c.runnerEnrol(), c.runnerTrust(), c.runnerSession(), c.runnerCheck(), c.runnerLogs(), c.runnerAgent())
}

func (c *cli) runnerList() *cobra.Command {
	return list[view.Runners](c, "List runners", "There are no runners. `fairlead runner create NAME` makes one.", (*client.Client).ListRunners)
}

func (c *cli) runnerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a runner and its agents", ValidArgsFunction: c.names(runnerNames),
		RunE: one(c, (*client.Client).GetRunner, func(r wire.Runner) view.Document { return view.Runner(r) }),
	}
}

func (c *cli) runnerEnrol() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "enrol NAME", Short: "Make a single-use token that lets one agent enrol",
		Long: `Makes an enrolment token, prints it, and never shows it again. It is good once,
and for a short time. --out writes it to a file that only you can read.`,
		Example:           "  fairlead runner enrol acme-eu --out enrolment-token",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			e, err := cl.CreateEnrolment(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return c.writeSecret(out, e.Token, "once, until "+view.Time(e.ExpiresAt), view.Enrolment{Runner: args[0], Enrolment: e})
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write the token to this `FILE` instead")
	return cmd
}

func (c *cli) runnerCheck() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "check NAME", Short: "Send a job that does nothing through a runner",
		Long:              "Proves the whole way, from the control plane through the runner and back, and\nsays how long each part of it took.",
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

// IsAgentCommand reports whether the arguments of `runner agent` are one of its
// subcommands, which ask the control plane. All others are those of the agent,
// which the program's main runs before the flags of the CLI are read: it has
// words of its own, such as pause, and these are none of them.
func IsAgentCommand(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"list", "revoke"}, args[0])
}

// runnerAgent is in the list of commands for its subcommands, and for its help.
func (c *cli) runnerAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent", Short: "See and revoke the keys of agents, or run an agent here",
		Long: `By itself it runs the agent of a runner, and its jobs, on this machine. That is
what the program 'fairlead-runner agent' does, which holds nothing else and is what
customers run. 'fairlead runner agent --help' lists its flags.

With list or revoke it asks the control plane for the agents that have enrolled.`,
		Args: cobra.ArbitraryArgs, DisableFlagParsing: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			return usage("Write the flags of the agent behind `fairlead runner agent`.", "`fairlead runner agent` takes no flag before it")
		},
	}
	cmd.AddCommand(c.agentList(), c.agentRevoke())
	return cmd
}

func (c *cli) agentList() *cobra.Command {
	return &cobra.Command{
		Use: "list RUNNER", Short: "List the agents that have enrolled with keys for a runner", ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			agents, err := cl.ListAgents(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, agents.Items, view.Agents(agents.Items), "No agent has enrolled with a key. `fairlead runner enrol` makes a token for one.")
		}),
	}
}

func (c *cli) agentRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke RUNNER KEY", Short: "Revoke an agent's key, such as one that got into other hands",
		Long: `Revokes the key of an agent, for good, and ends the sessions that it has opened:
whoever has it gets no more work, from the next request on. Jobs that run go on to
their end; 'fairlead job cancel' stops one. An agent that is to go on makes another
key when identity.key and identity.json are removed from its data folder, and enrols
with a new token of 'fairlead runner enrol'.`,
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"revoked": args[1]}, "Revoked key %s", args[1]), cl.RevokeAgent(ctx, args[0], args[1])
		}),
	}
}

// awaitCheck reads the job's log as it grows, and returns the job when it has
// succeeded.
func (c *cli) awaitCheck(ctx context.Context, cl *client.Client, runner string, j wire.Job, timeout time.Duration, chunk func(wire.LogChunk) error) (wire.Job, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := watch.Log(limited, j.ID, watch.LogOptions{Client: cl, Follow: true, Now: c.env.Now, Tell: func(text string) { c.say("%s", text) }}, chunk)
	if errors.Is(err, context.DeadlineExceeded) {
		detail := fmt.Sprintf("runner %s has not run the check within %s", runner, timeout)
		hint := fmt.Sprintf("`fairlead runner show %s` says when it was last seen.", runner)
		if _, err := cl.CancelJob(ctx, j.ID); err != nil {
			hint += fmt.Sprintf(" The check, job %s, is still queued.", j.ID)
		}
		return j, &failure{code: exitFailed, problem: local("check-timeout", "Runner does not answer", detail, hint)}
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

// exists reports whether the file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
