package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) install() *cobra.Command {
	return noun("install", "Create, deploy and tear down installs",
		"An install is one app in one customer's account: its inputs, what was deployed\nof it, and the runner that does the work there.",
		c.installCreate(), c.installUpdate(), c.installList(), c.installShow(), c.installDeploy(),
		c.installOutputs(), c.installRefreshRunner(), c.installMigrateState(), c.installStack(), c.installUnlock(), c.installPushState(), c.installTeardown(), c.installForget())
}

func (c *cli) installCreate() *cobra.Command {
	var in wire.CreateInstallRequest
	var inputs inputFlags
	var stack wire.PutStackRequest
	var wait waitFlags
	var labels labelFlags
	cmd := &cobra.Command{
		Use: "create NAME --app APP", Short: "Create an install of an app",
		Long: `Creates an install. Nothing is deployed yet. Its first deployment binds it to a
runner: the one that --runner names, or the one that rules, its group and its
labels come to (see "fairlead runner explain").

With --account it is one in a customer's AWS account: it gets a runner of its own,
unless --runner names one, and what is printed is what the customer needs to
install that (see 'fairlead install stack'). --wait follows it until the runner
is there.

Sensitive inputs come from --input-file or --input-env, never from --input:
other users of a machine can read arguments.`,
		Example: `  fairlead install create acme --app shop --input region=eu-west-1 --input replicas=3
  fairlead install create acme --app shop --group customers/acme --label env=prod
  fairlead install create acme --app shop --input-file acme.yaml
  fairlead install create acme --app shop --account 123456789012 --wait
  echo 'db_password: secret' | fairlead install create acme --app shop --input-file -
  fairlead install create acme --app shop --input-env db_password=DB_PASSWORD`,
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			in.Name = args[0]
			var err error
			if in.Labels, err = labels.labels(); err != nil {
				return err
			}
			if in.Inputs, err = c.inputs(ctx, cl, in.App, inputs, true); err != nil {
				return err
			}
			if stack.Account != "" {
				if err := c.readyStack(ctx, cl, stack.Account, &in); err != nil {
					return err
				}
			} else if stack.Region != "" {
				return usage("", "--region needs --account")
			}
			made, err := cl.CreateInstall(ctx, in)
			if err != nil {
				return err
			}
			if stack.Account != "" {
				s, err := cl.PutStack(ctx, made.Name, stack)
				if err != nil {
					c.say("Install %s and its runner %s are made; only its stack is not. Once that is mended, go on with `fairlead install stack %s --account %s`.",
						made.Name, in.Runner, made.Name, stack.Account)
					return err
				}
				if !wait.wait {
					return c.print(view.Stack(s))
				}
				return c.awaitStack(ctx, cl, s, wait)
			}
			if wait.wait {
				if err := c.awaitRunnerOf(ctx, cl, made, wait); err != nil {
					return err
				}
			}
			return c.print(view.InstallChange{Install: made, Verb: "Created",
				Next: fmt.Sprintf("Deploy it with `fairlead install deploy %s`.", made.Name)})
		}),
	}
	cmd.Flags().StringVar(&in.App, "app", "", "the `APP` (required)")
	cmd.Flags().StringVar(&in.Runner, "runner", "", "the `RUNNER` that runs its jobs (default: by rules)")
	cmd.Flags().StringVar(&in.Group, "group", "", "the `PATH` of the group that it is in (default: the root group)")
	labels.register(c, cmd, "give it a label, for rules to match on")
	c.flagNames(cmd, "group", groupPaths)
	inputs.register(cmd)
	stackFlags(c, cmd, &stack)
	wait.register(c, cmd, "wait until the install's runner is there")
	c.flagNames(cmd, "app", appNames)
	c.flagNames(cmd, "runner", runnerNames)
	ofFlag := func(context.Context, *client.Client, []string) (string, error) { return in.App, nil }
	c.completeInputs(cmd, ofFlag)
	return cmd
}

func (c *cli) installUpdate() *cobra.Command {
	var cmd *cobra.Command
	var inputs inputFlags
	var labels labelFlags
	var runner string
	cmd = &cobra.Command{
		Use: "update NAME", Short: "Change inputs, labels or the runner of an install",
		Long: `Changes what is named and keeps the rest. The next deployment uses new inputs;
labels and runner count when the runner is decided, for an install that was
deployed by "fairlead install refresh-runner".`,
		Example: `  fairlead install update acme --input replicas=5
  fairlead install update acme --unset replicas
  fairlead install update acme --label env=prod --runner ''`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			current, err := cl.GetInstall(ctx, args[0])
			if err != nil {
				return nil, err
			}
			var in wire.UpdateInstallRequest
			if in.Labels, err = labels.change(); err != nil {
				return nil, err
			}
			if cmd.Flags().Changed("runner") {
				in.Runner = &runner
			}
			if inputs.any() || len(in.Labels) == 0 && in.Runner == nil {
				if in.Inputs, err = c.inputs(ctx, cl, current.App, inputs, false); err != nil {
					return nil, err
				}
			}
			changed, err := cl.UpdateInstall(ctx, args[0], in)
			return view.InstallChange{Install: changed, Verb: "Updated", Before: &current, Given: in.Inputs,
				Next: fmt.Sprintf("Deploy the change with `fairlead install deploy %s`.", changed.Name)}, err
		}),
	}
	inputs.register(cmd)
	labels.register(c, cmd, "give it a label, for rules to match on")
	labels.registerUnset(c, cmd)
	cmd.Flags().StringVar(&runner, "runner", "", "name this `RUNNER`; '' lets rules decide")
	c.flagNames(cmd, "runner", runnerNames)
	cmd.Flags().StringArrayVar(&inputs.unset, "unset", nil, "take an input back to its default, by `NAME`; repeatable")
	ofInstall := func(ctx context.Context, cl *client.Client, args []string) (string, error) {
		if len(args) == 0 {
			return "", nil
		}
		in, err := cl.GetInstall(ctx, args[0])
		return in.App, err
	}
	c.completeInputs(cmd, ofInstall)
	return cmd
}

func (c *cli) installList() *cobra.Command {
	return list[view.Installs](c, "List installs", "There are no installs yet. `fairlead install create NAME --app APP` creates one.", (*client.Client).ListInstalls)
}

func (c *cli) installShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an install: its inputs, and what exists of its components",
		Long: `Shows an install, what exists of its components, and what a deployment would use
now: each input, each variable of a component and each environment variable, with
what it comes from. What has changed since a component was last deployed with
success is listed under "Changed, not deployed". Sensitive values are not shown.`,
		ValidArgsFunction: c.names(installNames),
		RunE:              one(c, (*client.Client).GetEffective, func(in wire.Install) view.Document { return view.Install(in) }),
	}
}

func (c *cli) installDeploy() *cobra.Command {
	var progress progressFlags
	in := wire.CreateDeploymentRequest{Kind: "deploy"}
	cmd := &cobra.Command{
		Use: "deploy NAME", Short: "Plan, approve and apply the app's components, with live logs",
		Long: `Deploys the newest version of the app, component by component in the order of
their dependencies, and ends with the outputs.

Every change is planned first. On a terminal you are shown each plan and asked;
otherwise the command ends with exit code 4 and says which command approves.
--ask says which plans are asked about, in all levels of the app: those that
destroy or replace something ("destroys"), those that also change something in
place ("changes"), all ("always"), or none ("never"; --auto-approve is the
same). After an apply that was lost you are always asked.

An install has one deployment at a time; others queue behind it. If that one
waits for approval and this is no terminal, the command ends with exit code 4
and says which commands end the wait; the deployment stays queued. With
--no-queue it is not made at all, and the exit code is 6.

Ctrl-C stops the following, not the deployment.`,
		Example: `  fairlead install deploy acme
  fairlead install deploy acme --auto-approve
  fairlead install deploy acme --ask destroys
  fairlead install deploy acme --plan-only
  fairlead install deploy acme --auto-approve --json | jq .outputs`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			version, err := fullVersion(ctx, cl, args[0], in.Version)
			if err != nil {
				return err
			}
			in.Version = version
			d, err := cl.CreateDeployment(ctx, args[0], in)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	cmd.Flags().BoolVar(&in.AutoApprove, "auto-approve", false, "apply every plan without asking: --ask never")
	c.askFlag(cmd, &in, "ask about these `PLANS`: never, destroys, changes or always (default: always)")
	cmd.Flags().BoolVar(&in.PlanOnly, "plan-only", false, "plan, print the plans, and change nothing")
	cmd.Flags().StringVar(&in.Version, "version", "", "deploy this `VERSION` of the app, as 'app versions' lists it (default: the newest)")
	c.must(cmd.RegisterFlagCompletionFunc("version", c.versionIDs))
	noQueue(cmd, &in)
	cmd.MarkFlagsMutuallyExclusive("auto-approve", "plan-only", "ask")
	progress.register(cmd)
	return cmd
}

// askFlag says which plans of a deployment are asked about.
func (c *cli) askFlag(cmd *cobra.Command, in *wire.CreateDeploymentRequest, usage string) {
	cmd.Flags().StringVar(&in.Ask, "ask", "", usage)
	asks := []string{"never", "destroys", "changes", "always"}
	c.must(cmd.RegisterFlagCompletionFunc("ask", cobra.FixedCompletions(asks, cobra.ShellCompDirectiveNoFileComp)))
}

func noQueue(cmd *cobra.Command, in *wire.CreateDeploymentRequest) {
	cmd.Flags().BoolVar(&in.NoQueue, "no-queue", false, "fail, instead of queueing, while another deployment of the install is not over")
}

func (c *cli) installOutputs() *cobra.Command {
	var sensitive bool
	cmd := &cobra.Command{
		Use: "outputs NAME", Short: "Print what an install's components put out",
		Long: `Prints the outputs of the last deployments.

With --json it prints one object, {"component": {"output": value}}. Sensitive
outputs are left out of it, and named on the standard error, unless
--show-sensitive asks for them.`,
		Example: `  fairlead install outputs acme
  fairlead install outputs acme --json | jq -r .web.url
  fairlead install outputs acme --show-sensitive`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			o, err := cl.GetOutputs(ctx, args[0], sensitive)
			if err != nil {
				return nil, err
			}
			outputs := view.Outputs(o)
			if len(o.Components) == 0 && !c.json {
				c.say("Install %s has no outputs: nothing of it is deployed.", args[0])
			}
			if hidden := outputs.Hidden(); len(hidden) > 0 && c.json {
				c.say("Sensitive outputs are left out: %s. --show-sensitive includes them.", strings.Join(hidden, ", "))
			}
			return outputs, nil
		}),
	}
	cmd.Flags().BoolVar(&sensitive, "show-sensitive", false, "print sensitive values too")
	return cmd
}

func (c *cli) installTeardown() *cobra.Command {
	var progress progressFlags
	var yes bool
	in := wire.CreateDeploymentRequest{Kind: "teardown"}
	cmd := &cobra.Command{
		Use: "teardown NAME", Short: "Destroy everything that an install deployed",
		Long: `Destroys the resources of every component, in the reverse order of their
dependencies. The install itself stays, and can be deployed again.

You are asked to type the install's name; that approves every destroy plan.
--plan-only shows those first. --yes does not ask, nor does "--ask never". With
another value --ask shows each plan and asks about it, as "fairlead install
deploy" does: those that destroy something ("destroys"), those that also change
something in place ("changes"), or all ("always"). After an apply or destroy that
was lost you are always asked.`,
		Example: `  fairlead install teardown acme --plan-only
  fairlead install teardown acme
  fairlead install teardown acme --ask always
  fairlead install teardown acme --yes`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			install, err := cl.GetInstall(ctx, args[0])
			if err != nil {
				return err
			}
			if !in.PlanOnly && in.Ask == "" {
				if err := c.confirm(ctx, yes, install.Name, "This destroys everything that install %s deployed: %s.", install.Name, existing(install)); err != nil {
					return err
				}
				in.AutoApprove = true
			}
			d, err := cl.CreateDeployment(ctx, args[0], in)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask: --ask never")
	c.askFlag(cmd, &in, "ask about these `PLANS` in place of the install's name: never, destroys, changes or always")
	cmd.Flags().BoolVar(&in.PlanOnly, "plan-only", false, "print what would be destroyed, and destroy nothing")
	noQueue(cmd, &in)
	cmd.MarkFlagsMutuallyExclusive("yes", "plan-only", "ask")
	progress.register(cmd)
	return cmd
}

// existing names the components that may have resources.
func existing(in wire.Install) string {
	var names []string
	for _, c := range in.Components {
		if c.State != "absent" {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "no component is known to exist"
	}
	return strings.Join(names, ", ")
}

func (c *cli) installForget() *cobra.Command {
	var yes, abandon bool
	cmd := &cobra.Command{
		Use: "forget NAME", Short: "Remove an install's records",
		Long: `Removes the records of an install that was torn down. As long as any component
may still exist this is refused, unless --abandon says that its resources are
left behind on purpose: Fairlead then never touches them again.`,
		Example: `  fairlead install forget acme
  fairlead install forget acme --abandon`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if abandon {
				if err := c.confirm(ctx, yes, args[0], "This forgets install %s and leaves what it deployed behind.", args[0]); err != nil {
					return nil, err
				}
			}
			return view.Forgotten{Name: args[0], Abandoned: abandon}, cl.ForgetInstall(ctx, args[0], abandon)
		}),
	}
	cmd.Flags().BoolVar(&abandon, "abandon", false, "forget it even if resources are left behind")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// confirm asks for a word to be typed, unless yes.
func (c *cli) confirm(ctx context.Context, yes bool, word, warning string, args ...any) error {
	if yes {
		return nil
	}
	if !c.env.StdinTTY || !c.env.StderrTTY {
		return usage("Add --yes if that is what you want.", "%s Nobody can be asked here", fmt.Sprintf(warning, args...))
	}
	c.say(warning, args...)
	answer, err := c.askLine(ctx, fmt.Sprintf("Type %s to go on: ", view.Cell(word)))
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != word {
		return usage("", "%q was not typed, so nothing was done", word)
	}
	return nil
}
