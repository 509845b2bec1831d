package cli

import (
	"bytes"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// configFlags hold the flags that set a runner's configuration.
type configFlags struct {
	file string
	yaml string
	set  []string
	cmd  *cobra.Command // has these flags
}

func (f *configFlags) register(c *cli, cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "read the configuration, YAML or JSON, from this `FILE`; - means the standard input")
	cmd.Flags().StringVar(&f.yaml, "set-yaml", "", "the configuration as `YAML`; @FILE reads it from a file, and - from the standard input")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set one field, after --file and --set-yaml: `path=value`; the value is YAML; can be repeated")
	cmd.MarkFlagsMutuallyExclusive("file", "set-yaml")
}

func (f *configFlags) any() bool {
	return f.file != "" || f.yaml != "" || len(f.set) > 0 || f.empty() != ""
}

// empty returns the flag whose value is empty, or "". The value of --set-yaml "$(…)"
// is empty if that command fails.
func (f *configFlags) empty() string {
	for name, value := range map[string]string{"file": f.file, "set-yaml": f.yaml} {
		if f.cmd != nil && f.cmd.Flags().Changed(name) && strings.TrimSpace(value) == "" {
			return "--" + name
		}
	}
	return ""
}

// readConfig returns the configuration for the request. It does not parse the text: the
// control plane reports problems in it by line and column.
func (c *cli) readConfig(f configFlags) (wire.RunnerConfigurationInput, error) {
	in := wire.RunnerConfigurationInput{File: "--set-yaml", Text: f.yaml, Set: f.set}
	if name := f.empty(); name != "" {
		return in, usage("If a command creates it, check whether that command failed.", "the configuration %s is empty", name)
	}
	name, isFile := strings.CutPrefix(f.yaml, "@")
	switch {
	case f.file != "":
		name = f.file
	case f.yaml == "-":
		name = "-"
	case f.yaml == "":
		in.File = ""
		return in, nil
	case !isFile:
		return in, nil
	}
	in.File = name
	if name == "-" {
		in.File = "stdin"
	}
	data, err := c.readFile(name, "configuration", runnerspec.MaxFileSize)
	if err != nil {
		return in, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return in, usage("If a command creates it, check whether that command failed.", "the configuration %s is empty", in.File)
	}
	in.Text = string(data)
	return in, nil
}

func (c *cli) runnerGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Print a runner's configuration",
		Long:              "Prints the configuration in the form that `fairlead runner update` accepts. A secret\nis printed as (masked). If an update has the value (masked), the secret does not\nchange.",
		Example:           "  fairlead runner get acme-eu > acme-eu.yaml\n  fairlead runner get acme-eu --json | jq .runner_configuration",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			r, err := cl.GetRunner(ctx, args[0])
			if err != nil {
				return nil, err
			}
			if len(r.Config) == 0 {
				return nil, usage("Ask the operator of the control plane.", "runner %s is shared: only an operator can see its configuration", r.Name)
			}
			return view.Configuration(r.Config), nil
		}),
	}
}

func (c *cli) runnerCreate() *cobra.Command {
	var in wire.CreateRunnerRequest
	var config configFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a runner",
		Long: `Creates a runner from a configuration. The configuration sets where the runner's jobs
run, where state is stored, and which group the runner serves. All fields are in
docs/reference/runner-file.md.

Without a configuration, the runner is of kind "local" and serves the whole org. In
this case --storage sets where state is stored. "local" is the runner's disk. "http"
is the control plane, which encrypts the state.

With --aws-role a runner in AWS needs no enrolment token: the agents of the runner
prove that they have this role. Add --aws-role-id, the unique ID of the role, if you
know it. A role that is deleted and created again has the same name but another ID.
Without --aws-role-id, the runner accepts the first role with this ARN that opens a
session within seven days.`,
		Example: `  fairlead runner create acme-gke -f acme-gke.yaml
  fairlead runner create acme-gke -f acme-gke.yaml --set runner_configuration.job.memory_limit=2Gi
  fairlead runner create acme-eu --description 'Acme, Frankfurt' --storage http
  fairlead runner create acme-us --aws-role arn:aws:iam::123456789012:role/acme-runner --aws-role-id AROAEXAMPLEEXAMPLE001`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Name = args[0]
			var err error
			if in.RunnerConfigurationInput, err = c.readConfig(config); err != nil {
				return nil, err
			}
			r, err := cl.CreateRunner(ctx, in)
			if err != nil {
				return nil, err
			}
			c.warn(r.Warnings)
			if r.AWS == nil {
				return view.NewRunner{Runner: r}, nil
			}
			m, err := cl.Meta(ctx)
			return view.NewRunner{Runner: r, Keys: m.Keys}, err
		}),
	}
	config.register(c, cmd)
	cmd.Flags().BoolVar(&in.Shared, "shared", false, "let the runner serve the installs of every org; only operators of the control plane can use this flag")
	cmd.Flags().StringVar(&in.Description, "description", "", "the description of the runner, as `TEXT`; only without a configuration")
	cmd.Flags().StringVar(&in.Storage, "storage", "", "where state is stored, as `STORAGE`: \"local\" or \"http\"; only without a configuration (default \"local\")")
	c.must(cmd.RegisterFlagCompletionFunc("storage", cobra.FixedCompletions([]string{"local", "http"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&in.AWSRole, "aws-role", "", "the `ARN` of the AWS role of the runner's agents")
	cmd.Flags().StringVar(&in.AWSRoleID, "aws-role-id", "", "the unique `ID` of the role in --aws-role, such as AROAEXAMPLEEXAMPLE001")
	return cmd
}

// warn prints the warnings about a configuration.
func (c *cli) warn(warnings []string) {
	for _, w := range warnings {
		c.say("Warning: %s", w)
	}
}

func (c *cli) runnerUpdate() *cobra.Command {
	var config configFlags
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change part of a runner's configuration",
		Long: `Changes the given fields and keeps the others. Maps are merged at every depth, lists
and scalars are replaced, and null removes a field. A secret with the value (masked)
stays unchanged, so you can edit the output of 'fairlead runner get' and send it
back. Give the fields with --file or --set-yaml, with --set, or with both.

The type of a runner cannot change. Installs stay bound to the runner. If you change
the runner's state storage, deployments of its installs are refused until you migrate
the state of each install.`,
		Example: `  fairlead runner update acme-gke -f part.yaml
  fairlead runner update acme-gke --set runner_configuration.job.memory_limit=4Gi
  fairlead runner update acme-gke --set runner_configuration.job.node_selector=null`,
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if !config.any() {
				return nil, usage("Use -f, --set or --set-yaml.", "the command has no change")
			}
			in, err := c.readConfig(config)
			if err != nil {
				return nil, err
			}
			r, err := cl.UpdateRunner(ctx, args[0], wire.UpdateRunnerRequest{RunnerConfigurationInput: in})
			if err != nil {
				return nil, err
			}
			c.warn(r.Warnings)
			return view.Done(r, "Updated runner %s", r.Name), nil
		}),
	}
	config.register(c, cmd)
	return cmd
}

func (c *cli) runnerDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a runner that no install or rule uses",
		Long:              "Deletes a runner. While installs or rules use the runner, the command fails and prints\ntheir names. After the deletion, requests of the runner's agents are refused.",
		Example:           "  fairlead runner delete acme-eu",
		ValidArgsFunction: c.names(runnerNames),
		RunE:              c.deletes("runner", (*client.Client).DeleteRunner),
	}
}

func (c *cli) runnerMode(verb, mode, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Example: "  fairlead runner " + verb + " acme-eu",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			r, err := cl.SetRunnerMode(ctx, args[0], mode)
			return view.RunnerMode(r), err
		}),
	}
}

func (c *cli) runnerExplain() *cobra.Command {
	return &cobra.Command{
		Use: "explain INSTALL", Short: "Show which runner serves an install, and why",
		Long:              "Shows which runner the current rules, groups and runners select for an install. Lists\nevery candidate runner with the reason why it is selected or not. An install that was\ndeployed keeps its runner until you run 'fairlead install refresh-runner'.",
		Example:           "  fairlead runner explain acme",
		ValidArgsFunction: c.names(installNames),
		RunE:              one(c, (*client.Client).ExplainPlacement, func(p wire.Placement) view.Document { return view.Placement(p) }),
	}
}

func (c *cli) runnerMatrix() *cobra.Command {
	var sandboxes bool
	cmd := &cobra.Command{
		Use: "matrix", Short: "Print which kinds of runners can use which state storages",
		Long:    "Prints a table of runner kinds and state storages. If a combination is not possible,\nalso prints the reason. With --sandbox, prints a table of runner kinds and sandboxes.",
		Example: "  fairlead runner matrix\n  fairlead runner matrix --sandbox",
		RunE: func(*cobra.Command, []string) error {
			if sandboxes {
				return c.print(matrixOf(runnerspec.SandboxMatrix(), runnerspec.SandboxKinds(), func(k runnerspec.Kind, s runnerspec.SandboxKind) (bool, string) {
					f := runnerspec.FitOf(k, s)
					return f.OK, f.Why
				}))
			}
			return c.print(matrixOf(runnerspec.Matrix(), runnerspec.StorageKinds(), runnerspec.Compatible))
		},
	}
	cmd.Flags().BoolVar(&sandboxes, "sandbox", false, "print which kinds of runners can run on which sandboxes")
	return cmd
}

// matrixOf returns the document of a table with a row for each kind of runner.
func matrixOf[C ~string](text string, columns []C, possible func(runnerspec.Kind, C) (ok bool, why string)) view.Matrix {
	m := view.Matrix{Text: text, Runners: map[string]map[string]view.Possible{}}
	for _, k := range runnerspec.Kinds() {
		m.Runners[string(k)] = map[string]view.Possible{}
		for _, c := range columns {
			ok, why := possible(k, c)
			m.Runners[string(k)][string(c)] = view.Possible{OK: ok, Why: why}
		}
	}
	return m
}

func (c *cli) runnerRule() *cobra.Command {
	return noun("rule", "Map installs to runners",
		"A rule has conditions for installs, and names a runner. If several rules match an\ninstall, the most specific rule applies. Two rules cannot have the same conditions.\ndocs/vendor/placement.md defines which rule is more specific.",
		c.ruleCreate(), c.ruleList(), c.ruleDelete())
}

func (c *cli) ruleCreate() *cobra.Command {
	var in wire.CreateRunnerRuleRequest
	var labels labelFlags
	cmd := &cobra.Command{
		Use: "create --runner NAME", Short: "Create a rule that maps installs to a runner",
		Long: `Creates a rule. An install that matches all given conditions is bound to the runner at
its first deployment. An install that is already bound keeps its runner until you run
'fairlead install refresh-runner'. In the value of a label, * matches any text.`,
		Example: `  fairlead runner rule create --group 'customers/acme/**' --runner acme-eu
  fairlead runner rule create --group customers/acme --app shop --label env=prod --runner acme-prod`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			var err error
			if in.Labels, err = labels.labels(); err != nil {
				return nil, err
			}
			r, err := cl.CreateRunnerRule(ctx, in)
			return view.Done(r, "Created rule %s: %s -> %s", r.ID, r.Match, r.Runner), err
		}),
	}
	cmd.Flags().StringVar(&in.Runner, "runner", "", "the `RUNNER` of the installs that match (required)")
	cmd.Flags().StringVar(&in.Group, "group", "", "match installs of the group at this `PATH`; PATH/** includes the groups below it")
	cmd.Flags().StringVar(&in.App, "app", "", "match installs of this `APP`")
	labels.register(c, cmd, "match installs with this label")
	c.flagNames(cmd, "runner", runnerNames)
	c.flagNames(cmd, "group", groupPaths)
	c.flagNames(cmd, "app", appNames)
	return cmd
}

func (c *cli) ruleList() *cobra.Command {
	return list[view.Rules](c, about{
		short:   "List rules",
		long:    "Lists the rules with their conditions and runners.",
		example: "fairlead runner rule list",
		none:    "There are no rules. `fairlead runner rule create` creates one.",
	}, (*client.Client).ListRunnerRules)
}

func (c *cli) ruleDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete RULE", Short: "Delete a rule",
		Long:              "Deletes a rule. Installs that the rule bound to a runner stay bound to that runner.",
		Example:           "  fairlead runner rule delete rule_01kahq",
		ValidArgsFunction: c.names(ruleIDs),
		RunE:              c.deletes("rule", (*client.Client).DeleteRunnerRule),
	}
}

func (c *cli) installRefreshRunner() *cobra.Command {
	var in wire.RefreshRunnerRequest
	var yes bool
	cmd := &cobra.Command{
		Use: "refresh-runner NAME", Short: "Select the runner of an install again",
		Long: `Repeats the selection of an install's runner and binds the install to the result,
which can be a different runner. Without this command, an install keeps the runner of
its first deployment, even if rules or runners change.

The command is refused while a deployment of the install has not ended. It is also
refused if the new runner uses a different state storage, unless you give one of these:

  --migrate-state      moves the state to the new storage first (see 'fairlead
                       install migrate-state')
  --accept-state-loss  starts without state; Fairlead then cannot change or destroy
                       the deployed resources, and the next deployment creates all
                       resources again

If the runners encrypt values, the command is also refused if the new runner lacks a
seed of the old one. Then the customer adds the seeds of the old runner to those of the
new runner. If they are lost, --accept-key-loss gives up what only the old runner can
decrypt: set each secret again, and push the states.

With --dry-run the command prints the new runner, or why the command would be refused.
It changes nothing.`,
		Example: `  fairlead install refresh-runner acme --dry-run
  fairlead install refresh-runner acme --json | jq .changed`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if in.AcceptStateLoss && !in.DryRun {
				if err := c.confirm(ctx, yes, args[0], "If the state storage changes, Fairlead can no longer change or destroy the resources that install %s deployed.", args[0]); err != nil {
					return nil, err
				}
			}
			if in.AcceptKeyLoss && !in.DryRun {
				if err := c.confirm(ctx, yes, args[0], "If the new runner lacks a seed, the encrypted values of install %s are lost.", args[0]); err != nil {
					return nil, err
				}
			}
			r, err := cl.RefreshRunner(ctx, args[0], in)
			if err != nil {
				return nil, err
			}
			if r.Job != "" {
				if _, err := c.migrated(ctx, cl, args[0], r.Job); err != nil {
					return nil, err
				}
			}
			return view.Refreshed{Install: args[0], DryRun: in.DryRun, Answer: r}, nil
		}),
	}
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "print the result and change nothing")
	cmd.Flags().BoolVar(&in.MigrateState, "migrate-state", false, "if the state storage changes, move the state first")
	cmd.Flags().BoolVar(&in.AcceptStateLoss, "accept-state-loss", false, "if the state storage changes, start without state")
	cmd.Flags().BoolVar(&in.AcceptKeyLoss, "accept-key-loss", false, "if the new runner lacks a seed of the old one, give up the values that it cannot decrypt")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation of --accept-state-loss and --accept-key-loss")
	return cmd
}

// labelFlags hold the flags that set labels.
type labelFlags struct {
	pairs []string
	unset []string // keys; only of an update
}

func (f *labelFlags) register(c *cli, cmd *cobra.Command, what string) {
	cmd.Flags().StringArrayVar(&f.pairs, "label", nil, what+", as `key=value`; can be repeated")
}

func (f *labelFlags) registerUnset(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.unset, "unset-label", nil, "remove the label `KEY`; can be repeated")
}

func (f *labelFlags) labels() (map[string]string, error) {
	return pairs("label", "key=value", f.pairs)
}

// change returns the labels to set. A nil value removes the label.
func (f *labelFlags) change() (map[string]*string, error) {
	labels, err := f.labels()
	if err != nil {
		return nil, err
	}
	out := map[string]*string{}
	for key, value := range labels {
		out[key] = &value
	}
	for _, key := range f.unset {
		if _, both := labels[key]; both {
			return nil, usage("Remove one of the two flags.", "label %q is both set and unset", key)
		}
		out[key] = nil
	}
	return out, nil
}
