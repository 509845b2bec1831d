package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// progressFlags select how much of a deployment a command follows and shows.
type progressFlags struct {
	detach   bool
	quiet    bool
	verbose  bool
	attached bool // not a flag: the deployment existed before the command
}

func (f *progressFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait for the end; print the deployment's id")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "show only the result, without progress and logs")
	verboseFlag(cmd, f)
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
}

func verboseFlag(cmd *cobra.Command, f *progressFlags) {
	cmd.Flags().BoolVar(&f.verbose, "verbose", false, "show the complete logs, including the output of the tool's init")
}

// see follows a deployment as the flags select, and prints its outcome.
func (c *cli) see(ctx context.Context, cl *client.Client, d wire.Deployment, f progressFlags) error {
	if f.detach {
		if view.Behind(d) {
			what, next := view.Blocker(d)
			c.say("Note: %s. %s", what, next)
		}
		c.say("`fairlead deployment show %s --follow` shows its progress.", d.ID)
		return c.print(view.Started(d))
	}
	if !f.quiet {
		c.say("%s", headline(d))
	}
	o := watch.Options{
		Client: cl, Out: c.env.Stderr, Style: c.errStyle(),
		Quiet: f.quiet, Verbose: f.verbose, Attached: f.attached, Now: c.env.Now,
	}
	if c.env.StdinTTY && c.env.StderrTTY {
		o.Approve = c.askApproval
	}
	d, err := watch.Deployment(ctx, d, o)
	if err != nil {
		return c.stopped(d, err)
	}
	return c.outcome(ctx, cl, d, f)
}

func headline(d wire.Deployment) string {
	verb := "Deploying"
	switch {
	case d.Kind == "action":
		return fmt.Sprintf("Running %s of %s on install %s (deployment %s, version %s)", d.Action, d.App, d.Install, d.ID, d.Version)
	case d.PlanOnly && d.Kind == "teardown":
		verb = "Planning the teardown of"
	case d.PlanOnly:
		verb = "Planning"
	case d.Kind == "teardown":
		verb = "Tearing down"
	}
	return fmt.Sprintf("%s %s on install %s (deployment %s, version %s)", verb, d.App, d.Install, d.ID, d.Version)
}

// askApproval asks the person at the terminal to approve plans.
func (c *cli) askApproval(ctx context.Context, d wire.Deployment) (bool, error) {
	answer, err := c.askLine(ctx, "Approve? [y/N] ")
	if err != nil {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// askLine writes a question and reads a line. If ctx ends first, askLine returns while
// the read still blocks: it cannot be interrupted, and the program ends soon.
func (c *cli) askLine(ctx context.Context, question string) (string, error) {
	fmt.Fprint(c.env.Stderr, c.errStyle().Bold(question))
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := bufio.NewReader(c.env.Stdin).ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		if l.err != nil && l.text == "" {
			fmt.Fprintln(c.env.Stderr)
			return "", nil // the end of the input means no
		}
		return l.text, nil
	case <-ctx.Done():
		fmt.Fprintln(c.env.Stderr)
		return "", ctx.Err()
	}
}

// howToApprove returns the begin of a sentence that names the commands with which a waiting deployment is approved.
func howToApprove(d wire.Deployment) string {
	var commands []string
	others := false
	for _, n := range d.Components {
		switch {
		case n.State != "awaiting-approval":
		case n.NeedsSignature != "":
			commands = append(commands, fmt.Sprintf("`fairlead approve %s %s --key FILE`", d.ID, n.Name))
		default:
			others = true
		}
	}
	if others || len(commands) == 0 {
		commands = append([]string{fmt.Sprintf("`fairlead deployment approve %s`", d.ID)}, commands...)
	}
	return "Approve it with " + strings.Join(commands, " and ")
}

// stopped returns the failure of a command that stops following a deployment before the
// deployment ends.
func (c *cli) stopped(d wire.Deployment, cause error) error {
	next := fmt.Sprintf("Follow it with `fairlead deployment show %s --follow`; cancel it with `fairlead deployment cancel %s`.", d.ID, d.ID)
	switch {
	case errors.Is(cause, watch.ErrBehind):
		if c.json {
			if err := c.print(view.Outcome{Deployment: d}); err != nil {
				return err
			}
		}
		what, how := view.Blocker(d)
		return &failure{code: exitWaiting, problem: local("queued", "Waiting", what, how+" "+next)}
	case errors.Is(cause, watch.ErrWaiting):
		if c.json {
			if err := c.print(view.Outcome{Deployment: d}); err != nil {
				return err
			}
		}
		p := local("awaiting-approval", "Waiting", fmt.Sprintf("deployment %s waits for approval", d.ID),
			fmt.Sprintf("%s, or cancel it with `fairlead deployment cancel %s`.", howToApprove(d), d.ID))
		return &failure{code: exitWaiting, problem: p}
	case errors.Is(cause, context.Canceled):
		p := local("interrupted", "Interrupted", fmt.Sprintf("stopped watching; deployment %s continues", d.ID), next)
		return &failure{code: exitInterrupted, problem: p}
	}
	f, code := classify(cause)
	if code == exitUnreachable {
		f.Detail += fmt.Sprintf("; deployment %s may still be running", d.ID)
		f.Hint = next
	}
	return &failure{code: code, problem: f.Problem}
}

// outcome prints the result of a finished deployment: its outputs or plans, or a failure.
func (c *cli) outcome(ctx context.Context, cl *client.Client, d wire.Deployment, f progressFlags) error {
	out := view.Outcome{Deployment: d}
	if d.State != "succeeded" {
		if c.json {
			if err := c.print(out); err != nil {
				return err
			}
		}
		return failed(d)
	}
	if !f.quiet {
		fmt.Fprintf(c.env.Stderr, "%s %s\n", c.errStyle().Good("✓"), view.Clean(success(d)))
	}
	switch {
	case d.PlanOnly:
		for _, component := range d.Components {
			if component.PlanJob == "" {
				continue
			}
			j, err := cl.GetJob(ctx, component.PlanJob)
			if err != nil {
				return fmt.Errorf("read the plan of %s: %w", component.Name, err)
			}
			if j.Plan != nil {
				out.Plans = append(out.Plans, view.Plan{Component: component.Name, Plan: *j.Plan})
			}
		}
	case d.Kind == "deploy":
		outputs, err := cl.GetOutputs(ctx, d.Install, false)
		if err != nil {
			return fmt.Errorf("read the outputs of install %s: %w", d.Install, err)
		}
		out.Outputs = &outputs
	}
	return c.print(out)
}

// success returns one line that summarizes a successful deployment.
func success(d wire.Deployment) string {
	verb := "Deployed " + d.App + " to " + d.Install
	switch {
	case d.PlanOnly:
		verb = "Planned " + d.App + " on " + d.Install
	case d.Kind == "teardown":
		verb = "Tore down " + d.Install
	case d.Kind == "action":
		verb = "Ran " + d.Action + " on " + d.Install
	}
	var parts []string
	for _, state := range []string{"applied", "planned", "unchanged", "skipped"} {
		n := 0
		for _, c := range d.Components {
			if c.State == state {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	took := ""
	if d.FinishedAt != nil {
		took = " in " + view.Seconds(d.FinishedAt.Sub(d.CreatedAt))
	}
	line := verb + took
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	return line
}

// failed returns the failure of a command whose deployment failed or was canceled.
func failed(d wire.Deployment) error {
	detail := fmt.Sprintf("deployment %s of install %s %s", d.ID, d.Install, map[bool]string{true: "was canceled", false: "failed"}[d.State == "canceled"])
	if d.Message != "" {
		detail += ": " + d.Message
	}
	p := local("deployment-"+d.State, "Deployment "+d.State, detail, view.Advice(d.Next))
	var logs string
	for _, component := range d.Components {
		if component.State != "failed" && component.State != "lost" {
			continue
		}
		message := strings.TrimSpace(component.Message)
		if message == "" {
			message = component.State
		}
		if hint := view.Advice(component.Next); hint != "" {
			message += "\n    " + hint
		}
		p.Errors = append(p.Errors, wire.FieldError{Location: component.Name, Message: message})
		if job := lastJob(component); job != "" && logs == "" {
			logs = fmt.Sprintf("`fairlead job logs %s` shows the tool's output. ", job)
		}
	}
	if p.Hint == "" {
		p.Hint = logs + fmt.Sprintf("`fairlead deployment retry %s` resumes the deployment.", d.ID)
	}
	return &failure{code: exitFailed, problem: p}
}

func lastJob(c wire.DeploymentComponent) string {
	if c.Job != "" {
		return c.Job
	}
	return c.PlanJob
}
