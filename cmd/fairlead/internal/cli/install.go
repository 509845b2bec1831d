package cli

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) install() *cobra.Command {
	return noun("install", "Create, deploy and tear down installs",
		"An install is one app in one customer's account. It has values for the inputs of the\napp, and deployed components. One runner runs the jobs of the install.",
		c.installCreate(), c.installUpdate(), c.installList(), c.installShow(), c.installDeploy(),
		c.installOutputs(), c.installRefreshRunner(), c.installMigrateState(), c.installStack(), c.installStacks(), c.installUnlock(), c.installPushState(), c.installTeardown(), c.installForget())
}

func (c *cli) installCreate() *cobra.Command {
	var in wire.CreateInstallRequest
	var inputs inputFlags
	var stack wire.PutStackRequest
	var wait waitFlags
	var labels labelFlags
	cmd := &cobra.Command{
		Use: "create NAME --app APP", Short: "Create an install of an app",
		Long: `Creates an install but does not deploy it. The first deployment binds the install to
the runner that --runner names. Without --runner, the rules for runners and the
install's group and labels select the runner (see 'fairlead runner explain').

Use --account for an install in a customer's AWS account. The command then creates a
runner for the install, unless --runner names an existing runner. It prints a link,
which the customer opens to install the runner (see 'fairlead install stack'). With
--wait the command waits until the runner is online, and then sets the sensitive
inputs. Without --wait it does not set them, because they are encrypted with a key that
the customer's stack makes: set them with 'fairlead install update'.

Give sensitive inputs with --input-file or --input-env, not with --input, because
other users of a machine can read the arguments of a command.`,
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
				if err := c.readyStack(ctx, cl, stack, &in); err != nil {
					return err
				}
			} else if stack.Region != "" {
				return usage("", "--region needs --account")
			}
			made, secrets, err := c.createInstall(ctx, cl, in)
			if err != nil {
				return err
			}
			if stack.Account != "" {
				return c.createStack(ctx, cl, stack, wait, made, secrets)
			}
			if made, err = c.setSecrets(ctx, cl, made, secrets); err != nil {
				return err
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
	cmd.Flags().StringVar(&in.App, "app", "", "the `APP` of the install (required)")
	cmd.Flags().StringVar(&in.Runner, "runner", "", "the `RUNNER` that runs the install's jobs (default: rules, group and labels select it)")
	cmd.Flags().StringVar(&in.Group, "group", "", "`PATH` of the install's group (default: the root group)")
	labels.register(c, cmd, "set a label for rules to match")
	c.flagNames(cmd, "group", groupPaths)
	inputs.register(cmd)
	stackFlags(c, cmd, &stack)
	wait.register(c, cmd, "wait until the install's runner is online")
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
	var accept bool
	cmd = &cobra.Command{
		Use: "update NAME", Short: "Change inputs, labels or the runner of an install",
		Long: `Changes the named settings and keeps the others. The next deployment uses the new
inputs. Before the first deployment, --label and --runner affect which runner the
install gets. After the first deployment, they change the runner only when you run
'fairlead install refresh-runner'.`,
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
			given := in.Inputs
			changed, err := c.updateInstall(ctx, cl, current, in, accept)
			return view.InstallChange{Install: changed, Verb: "Updated", Before: &current, Given: given,
				Next: fmt.Sprintf("Deploy the change with `fairlead install deploy %s`.", changed.Name)}, err
		}),
	}
	inputs.register(cmd)
	labels.register(c, cmd, "set a label for rules to match")
	labels.registerUnset(c, cmd)
	cmd.Flags().StringVar(&runner, "runner", "", "the `RUNNER` that runs the install's jobs; if this is '', rules, group and labels select the runner")
	c.flagNames(cmd, "runner", runnerNames)
	acceptFlag(cmd, &accept)
	cmd.Flags().StringArrayVar(&inputs.unset, "unset", nil, "reset the input `NAME` to its default; can be repeated")
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
	return list[view.Installs](c, about{
		short:   "List installs",
		long:    "Lists installs with their apps, runners and states.",
		example: "fairlead install list",
		none:    "There are no installs yet. `fairlead install create NAME --app APP` creates one.",
	}, (*client.Client).ListInstalls)
}

func (c *cli) installShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an install, its inputs and its components",
		Long: `Shows an install and the state of its components. Also shows the values that a
deployment would use now: inputs, variables of components and environment variables.
Each value is shown with its source. "Changed, not deployed" lists the changes since
the last successful deployment of a component. Sensitive values are hidden.`,
		Example:           "  fairlead install show acme\n  fairlead install show acme --json | jq .effective.inputs",
		ValidArgsFunction: c.names(installNames),
		RunE:              one(c, (*client.Client).GetEffective, func(in wire.Install) view.Document { return view.Install(in) }),
	}
}

func (c *cli) installDeploy() *cobra.Command {
	var expiry time.Duration
	var progress progressFlags
	in := wire.CreateDeploymentRequest{Kind: "deploy"}
	cmd := &cobra.Command{
		Use: "deploy NAME", Short: "Plan, approve and apply an install's components",
		Long: `Deploys the newest version of the app. A component is deployed after the components
that it depends on. The command shows live logs, and prints the outputs at the end.

Every change is planned first. On a terminal the command shows each plan and asks
for approval. Without a terminal, if a plan needs approval, the command prints how to
approve the plan and exits with code 4. --ask selects the plans that need approval:

  never     no plan; the same as --auto-approve
  destroys  plans that destroy or replace something
  changes   plans that destroy, replace or change something
  always    all plans

If an apply was interrupted and its result is unknown, the next plan needs approval
in every case.

A component is not planned if its source, its variables and its environment are those
of its last deployment. With --refresh every component is planned. Such a plan also
finds what others have changed in the customer's account.

An install runs one deployment at a time. Other deployments are queued. If the running
deployment waits for approval and there is no terminal, the command exits with code 4
and the new deployment stays queued. With --no-queue, if another deployment has not
ended, the command exits with code 6 and creates no deployment.

Ctrl-C stops following the deployment. The deployment continues.`,
		Example: `  fairlead install deploy acme
  fairlead install deploy acme --auto-approve
  fairlead install deploy acme --ask destroys
  fairlead install deploy acme --plan-only
  fairlead install deploy acme --plan-only --refresh
  fairlead install deploy acme --target web
  fairlead install deploy acme --auto-approve --json | jq .outputs`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			version, err := fullVersion(ctx, cl, args[0], in.Version)
			if err != nil {
				return err
			}
			in.Version, in.PlansExpire = version, seconds(expiry)
			d, err := c.createDeployment(ctx, cl, args[0], in)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	cmd.Flags().BoolVar(&in.AutoApprove, "auto-approve", false, "apply every plan without approval; the same as --ask never")
	c.askFlag(cmd, &in, "select the plans that need approval, as `PLANS`: never, destroys, changes or always (default: always)")
	plansExpire(cmd, &expiry)
	cmd.Flags().BoolVar(&in.PlanOnly, "plan-only", false, "print the plans and change nothing")
	cmd.Flags().BoolVar(&in.Refresh, "refresh", false, "plan each component, also those that have not changed since their last deployment")
	cmd.Flags().StringArrayVar(&in.Targets, "target", nil, "deploy only this `COMPONENT` and those that it needs (repeatable)")
	cmd.Flags().StringVar(&in.Version, "version", "", "deploy this `VERSION`, an ID or a name from 'fairlead app versions' (default: the newest version)")
	c.must(cmd.RegisterFlagCompletionFunc("version", c.versionIDs))
	noQueue(cmd, &in)
	cmd.MarkFlagsMutuallyExclusive("auto-approve", "plan-only", "ask")
	progress.register(cmd)
	return cmd
}

// askFlag adds --ask, which selects the plans that need approval.
func (c *cli) askFlag(cmd *cobra.Command, in *wire.CreateDeploymentRequest, usage string) {
	cmd.Flags().StringVar(&in.Ask, "ask", "", usage)
	asks := []string{"never", "destroys", "changes", "always"}
	c.must(cmd.RegisterFlagCompletionFunc("ask", cobra.FixedCompletions(asks, cobra.ShellCompDirectiveNoFileComp)))
}

// plansExpire adds --plans-expire.
func plansExpire(cmd *cobra.Command, age *time.Duration) {
	cmd.Flags().DurationVar(age, "plans-expire", 0, "the age at which a plan can no longer be approved or applied, such as 24h; from 1m to 672h (default: 168h)")
}

// seconds returns d in seconds, rounded up: 0 would select the default.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

func noQueue(cmd *cobra.Command, in *wire.CreateDeploymentRequest) {
	cmd.Flags().BoolVar(&in.NoQueue, "no-queue", false, "fail if another deployment of the install has not ended")
}

func (c *cli) installOutputs() *cobra.Command {
	var sensitive bool
	var keyFile string
	cmd := &cobra.Command{
		Use: "outputs NAME", Short: "Print an install's outputs",
		Long: `Prints the outputs of the last successful apply of each component. With --json the
command prints one object: {"component": {"output": value}}. This object has no
sensitive outputs. Their names are printed on the standard error. With
--show-sensitive the command also prints the values of sensitive outputs.

If the runner has a seed of install keys, its jobs encrypt sensitive outputs. Only a
person who has the seed can show them: with --key-file, or beside 'fairlead dev'.`,
		Example: `  fairlead install outputs acme
  fairlead install outputs acme --json | jq -r .web.url
  fairlead install outputs acme --show-sensitive
  fairlead install outputs acme --show-sensitive --key-file install-key.seed`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			o, err := cl.GetOutputs(ctx, args[0], sensitive)
			if err != nil {
				return nil, err
			}
			if sensitive {
				if err := c.openOutputs(ctx, cl, args[0], keyFile, o); err != nil {
					return nil, err
				}
			}
			outputs := view.Outputs(o)
			if len(o.Components) == 0 && !c.json {
				c.say("Install %s has no outputs: none of its components is deployed.", args[0])
			}
			if hidden := outputs.Hidden(); len(hidden) > 0 && c.json {
				c.say("Sensitive outputs are omitted: %s. --show-sensitive includes them.", strings.Join(hidden, ", "))
			}
			return outputs, nil
		}),
	}
	cmd.Flags().BoolVar(&sensitive, "show-sensitive", false, "also print the values of sensitive outputs")
	keyFlag(c, cmd, &keyFile)
	return cmd
}

func (c *cli) installTeardown() *cobra.Command {
	var expiry time.Duration
	var progress progressFlags
	var yes bool
	in := wire.CreateDeploymentRequest{Kind: "teardown"}
	cmd := &cobra.Command{
		Use: "teardown NAME", Short: "Destroy everything that an install deployed",
		Long: `Destroys the resources of every component. A component is destroyed before the
components that it depends on. The install itself remains, and you can deploy it
again.

The command asks you to type the install's name. By typing the name you approve all
destroy plans. To see the plans before, run the command with --plan-only. With --yes
or "--ask never" the command does not ask for confirmation. With another value of
--ask it shows each plan and asks for approval, as 'fairlead install deploy' does.

If an apply or destroy was interrupted and its result is unknown, the next plan needs
approval in every case.`,
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
			in.PlansExpire = seconds(expiry)
			d, err := cl.CreateDeployment(ctx, args[0], in)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation; the same as --ask never")
	c.askFlag(cmd, &in, "do not ask for the install's name; instead select the plans that need approval, as `PLANS`: never, destroys, changes or always")
	plansExpire(cmd, &expiry)
	cmd.Flags().BoolVar(&in.PlanOnly, "plan-only", false, "print the destroy plans and destroy nothing")
	noQueue(cmd, &in)
	cmd.MarkFlagsMutuallyExclusive("yes", "plan-only", "ask")
	progress.register(cmd)
	return cmd
}

// existing lists the components that may have resources.
func existing(in wire.Install) string {
	var names []string
	for _, c := range in.Components {
		if c.State != "absent" {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "no component, as far as the control plane knows"
	}
	return strings.Join(names, ", ")
}

func (c *cli) installForget() *cobra.Command {
	var yes, abandon bool
	cmd := &cobra.Command{
		Use: "forget NAME", Short: "Delete an install's records",
		Long: `Deletes the records of an install that was torn down. The command is refused while a
component may still have resources. With --abandon the command deletes the records
anyway, and the resources remain in the account. Fairlead cannot change or destroy
these resources afterwards.`,
		Example: `  fairlead install forget acme
  fairlead install forget acme --abandon`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if abandon {
				if err := c.confirm(ctx, yes, args[0], "This deletes the records of install %s and leaves its resources in the account.", args[0]); err != nil {
					return nil, err
				}
			}
			return view.Forgotten{Name: args[0], Abandoned: abandon}, cl.ForgetInstall(ctx, args[0], abandon)
		}),
	}
	cmd.Flags().BoolVar(&abandon, "abandon", false, "delete the records even if resources remain")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// confirm prints the warning and asks the person to type name, unless yes is set.
func (c *cli) confirm(ctx context.Context, yes bool, name, warning string, args ...any) error {
	if yes {
		return nil
	}
	if !c.env.StdinTTY || !c.env.StderrTTY {
		return usage("Add --yes to confirm.", "%s Without a terminal the command cannot ask for confirmation", fmt.Sprintf(warning, args...))
	}
	c.say(warning, args...)
	answer, err := c.askLine(ctx, fmt.Sprintf("Type %s to continue: ", view.Cell(name)))
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != name {
		return usage("", "the answer was not %q; nothing was changed", name)
	}
	return nil
}
