package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

func (c *cli) installStack() *cobra.Command {
	var in wire.PutStackRequest
	var yes, orphans bool
	var wait waitFlags
	cmd := &cobra.Command{
		Use: "stack NAME", Short: "Show the runner's install link and the status of its stack",
		Long: `Prints what a customer needs to install the CloudFormation stack of the runner. The
first way is a link that opens the AWS console with the parameters filled in. For
other ways, the command prints the template and the parameters. If the app declares what it
uses in AWS, the link grants exactly that, and the command prints it in sentences for
the customer. It also prints which secrets the app needs from the customer, and shows
what the stack has reported. The output contains no secret.

With --account the command first prepares the install. It creates the external ID of
the stack, and lets the runner's role in that account run the install's jobs. The role
must connect within seven days. To start a new period of seven days, run the command
again.

If the stack has an older template or image, the command prints a link that opens the
update of the stack, and what the update changes. With --replace the new stack
continues with the states that the replaced stack left, if both are in the same
account and region. --orphans lists what stays in the account without a stack.`,
		Example: `  fairlead install stack acme --account 123456789012 --region eu-central-1
  fairlead install stack acme
  fairlead install stack acme --wait
  fairlead install stack acme --orphans
  fairlead install stack acme --json | jq -r .quick_create_url`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			if orphans && (in.Account != "" || wait.wait) {
				return usage("", "--orphans only lists; it takes neither --account nor --wait")
			}
			if in.Account == "" && (in.Region != "" || in.Replace) {
				return usage("", "--region and --replace need --account")
			}
			if in.Replace {
				if err := c.confirm(ctx, yes, args[0], "The control plane will refuse the runner of the current stack of install %s.", args[0]); err != nil {
					return err
				}
			}
			var s wire.Stack
			var err error
			if in.Account != "" {
				s, err = cl.PutStack(ctx, args[0], in)
			} else {
				s, err = cl.GetStack(ctx, args[0])
			}
			if err != nil {
				return err
			}
			if orphans {
				return c.print(view.Orphans(s))
			}
			if !wait.wait {
				return c.print(view.Stack(s))
			}
			return c.awaitStack(ctx, cl, s, wait)
		}),
	}
	stackFlags(c, cmd, &in)
	cmd.Flags().BoolVar(&in.Replace, "replace", false, "prepare a new stack; from now on the control plane refuses the runner of the current stack")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation of --replace")
	cmd.Flags().BoolVar(&orphans, "orphans", false, "list what deleted and replaced stacks leave in the account, and how to remove it")
	wait.register(c, cmd, "wait until the stack's runner is online")
	return cmd
}

func (c *cli) installStacks() *cobra.Command {
	var behind bool
	cmd := list[view.Stacks](c, about{
		short: "List the runner stacks of customers",
		long: `Lists the stacks of customers' runners: their template, image and state. With --behind
the command lists only the stacks that have an older template or image, each with the
link that the customer opens to update it. 'fairlead install stack NAME' shows what an
update changes.`,
		example: "fairlead install stacks --behind",
		none:    "No stack matches.",
	}, func(cl *client.Client, ctx context.Context, o client.ListOptions) (wire.Page[wire.Stack], error) {
		return cl.ListStacks(ctx, behind, o)
	})
	cmd.Use = "stacks"
	cmd.Flags().BoolVar(&behind, "behind", false, "only stacks with an older template or image")
	return cmd
}

func stackFlags(c *cli, cmd *cobra.Command, in *wire.PutStackRequest) {
	cmd.Flags().StringVar(&in.Account, "account", "", "`NUMBER` of the customer's AWS account")
	cmd.Flags().StringVar(&in.Region, "region", "", "AWS `REGION` in which the link opens the console (default: the customer selects the region)")
}

// waitFlags are the flags of commands that can wait for a runner.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *waitFlags) register(c *cli, cmd *cobra.Command, doc string) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, doc)
	cmd.Flags().DurationVar(&f.timeout, "wait-for", 0, "longest time that --wait waits; 0s means no limit")
}

// lookEvery is the interval at which a command that waits for a runner asks for the
// runner's state. A customer needs minutes, and the creation of a stack takes three minutes.
const lookEvery = time.Second

// awaitStack prints the link for the customer, waits until the stack's runner is online,
// and prints the stack.
func (c *cli) awaitStack(ctx context.Context, cl *client.Client, s wire.Stack, f waitFlags) error {
	if s.State != "online" {
		c.say("Open this in account %s, or send it to a person who may create stacks there:\n  %s", s.Account, s.QuickCreateURL)
	}
	shown := ""
	err := c.look(ctx, f, s.Install, func(ctx context.Context) (done bool, err error) {
		if s, err = cl.GetStack(ctx, s.Install); err != nil {
			return false, err
		}
		if s.State != shown {
			shown = s.State
			c.say("The stack of install %s: %s", s.Install, view.StackState(s))
		}
		if s.State == stackExpired {
			return false, &failure{code: exitFailed, problem: local("stack-expired", "No runner connected", fmt.Sprintf("the stack of install %s was not installed in time", s.Install),
				fmt.Sprintf("`fairlead install stack %s --account %s` starts a new period.", s.Install, s.Account))}
		}
		return s.State == "online", nil
	})
	if err != nil {
		return err
	}
	return c.print(view.Stack(s))
}

// The states of a stack whose runner has not reported.
const (
	stackWaiting = "waiting"
	stackExpired = "expired"
)

// createStack prepares and prints the stack of a new install, and waits for its runner if f says so. It sets the secret inputs when the
// install can have a key.
func (c *cli) createStack(ctx context.Context, cl *client.Client, in wire.PutStackRequest, f waitFlags, made wire.Install, secrets map[string]json.RawMessage) error {
	s, err := cl.PutStack(ctx, made.Name, in)
	if err != nil {
		c.say("Install %s and its runner %s were created, but the stack was not. After the error is fixed, run `fairlead install stack %s --account %s`.",
			made.Name, made.Runner, made.Name, in.Account)
		return err
	}
	if f.wait {
		if err := c.awaitStack(ctx, cl, s, f); err != nil {
			c.sayNotSet(made, secrets)
			return err
		}
	} else if err := c.print(view.Stack(s)); err != nil {
		return err
	}
	if len(secrets) == 0 {
		return nil
	}
	if made, err = cl.GetInstall(ctx, made.Name); err != nil {
		return err
	}
	if awaitsStack(made) {
		c.sayNotSet(made, secrets)
		return nil
	}
	_, err = c.setSecrets(ctx, cl, made, secrets)
	return err
}

// sayNotSet names the secret inputs that wait for the customer's stack, and the command that sets them then.
func (c *cli) sayNotSet(made wire.Install, secrets map[string]json.RawMessage) {
	if len(secrets) == 0 {
		return
	}
	c.say("Not set, because the customer's stack makes the key that encrypts them: %s.\nWhen the stack is online, set them with `fairlead install update %s`.",
		strings.Join(slices.Sorted(maps.Keys(secrets)), ", "), made.Name)
}

// awaitRunnerOf waits until the runner of an install is online. If the install names no
// runner, it waits for the runner that placement selects now.
func (c *cli) awaitRunnerOf(ctx context.Context, cl *client.Client, in wire.Install, f waitFlags) error {
	if in.Runner != "" {
		return c.awaitRunner(ctx, cl, in.Runner, f)
	}
	p, err := cl.ExplainPlacement(ctx, in.Name)
	if err != nil {
		return err
	}
	if p.Refused != nil {
		return &failure{code: exitConflict, problem: local(p.Refused.Code, "No runner", p.Refused.Message, view.Hint(p.Refused.Hint, p.Refused.Actions))}
	}
	return c.awaitRunner(ctx, cl, p.Runner, f)
}

// awaitRunner waits until a runner that is not in a stack is online.
func (c *cli) awaitRunner(ctx context.Context, cl *client.Client, name string, f waitFlags) error {
	announced := false
	return c.look(ctx, f, name, func(ctx context.Context) (bool, error) {
		r, err := cl.GetRunner(ctx, name)
		if err == nil && r.State != "online" && !announced {
			announced = true
			c.say("Waiting for runner %s, which is %s. `fairlead runner enrol %s` creates a token for it.", name, r.State, name)
		}
		return r.State == "online", err
	})
}

// look calls ask every lookEvery until it is done or fails, or the time is over.
func (c *cli) look(ctx context.Context, f waitFlags, what string, ask func(context.Context) (bool, error)) error {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if f.timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, f.timeout)
	}
	defer cancel()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		done, err := ask(limited)
		if limited.Err() == nil && (done || err != nil) {
			return err
		}
		if limited.Err() == nil {
			select {
			case <-again.C:
			case <-limited.Done():
			}
		}
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case limited.Err() != nil:
			return &failure{code: exitFailed, problem: local("wait-timeout", "No runner connected", fmt.Sprintf("%s was not online within %s", what, f.timeout),
				"Only the wait ended: the runner can still connect.")}
		}
	}
}

// readyStack creates the runner of an install in a customer's account, before the
// install, unless the request names a runner. It checks account and region first, because
// three requests follow, and a failed request does not undo the earlier requests.
func (c *cli) readyStack(ctx context.Context, cl *client.Client, stack wire.PutStackRequest, in *wire.CreateInstallRequest) error {
	if len(stack.Account) != 12 || strings.Trim(stack.Account, "0123456789") != "" {
		return usage("", "%q is not the number of an AWS account, which has 12 digits", stack.Account)
	}
	app, err := cl.GetApp(ctx, in.App)
	if err != nil {
		return err
	}
	if kinds := app.Version.RunnerKinds; len(kinds) > 0 && !slices.Contains(kinds, string(runnerspec.AWSECS)) {
		return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerKindRefused,
			Message: fmt.Sprintf("app %s needs a runner of kind %s, and --account makes one of kind %s", in.App, strings.Join(kinds, " or "), runnerspec.AWSECS),
			Hint:    "Create a runner of such a kind with `fairlead runner create`, and name it with --runner."}
	}
	if err := cl.CheckStack(ctx, wire.CheckStackRequest{Account: stack.Account, Region: stack.Region}); err != nil {
		return err
	}
	if in.Runner != "" {
		return nil
	}
	in.Runner = in.Name
	set := []string{"runner_configuration.type=local", "description=In the stack of install " + in.Name + ".",
		"state_storage_configuration.type=http"} // the disk of an ECS task is deleted with the task
	if stack.Region != "" { // the roles of the stack keep images below this prefix
		set = append(set, "registry.type=ecr", `registry.account="`+stack.Account+`"`, "registry.region="+stack.Region, "registry.prefix=fairlead")
	}
	_, err = cl.CreateRunner(ctx, wire.CreateRunnerRequest{Name: in.Runner, RunnerConfigurationInput: wire.RunnerConfigurationInput{Set: set}})
	if client.HasCode(err, fairlead.CodeRunnerExists) {
		return nil
	}
	return err
}
