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

// configFlags say what of a runner's configuration is given.
type configFlags struct {
	file string
	yaml string
	set  []string
	cmd  *cobra.Command // whose flags they are
}

func (f *configFlags) register(c *cli, cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "read the configuration, YAML or JSON, from this `FILE`; - is the standard input")
	cmd.Flags().StringVar(&f.yaml, "set-yaml", "", "the configuration itself, as `YAML`, or @FILE, or -")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set one field on top, as `path=value`, the value being YAML; repeatable")
	cmd.MarkFlagsMutuallyExclusive("file", "set-yaml")
}

func (f *configFlags) any() bool {
	return f.file != "" || f.yaml != "" || len(f.set) > 0 || f.empty() != ""
}

// empty returns the flag that is given with nothing, as --set-yaml "$(…)" is where
// the command fails, or "".
func (f *configFlags) empty() string {
	for name, value := range map[string]string{"file": f.file, "set-yaml": f.yaml} {
		if f.cmd != nil && f.cmd.Flags().Changed(name) && strings.TrimSpace(value) == "" {
			return "--" + name
		}
	}
	return ""
}

// read returns what is sent: the text as it is, so that whatever is wrong with
// it is told by line and column.
func (c *cli) readConfig(f configFlags) (wire.RunnerConfigurationInput, error) {
	in := wire.RunnerConfigurationInput{File: "--set-yaml", Text: f.yaml, Set: f.set}
	if name := f.empty(); name != "" {
		return in, usage("If a command writes it, see whether that failed.", "the configuration %s is empty", name)
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
		return in, usage("If a command writes it, see whether that failed.", "the configuration %s is empty", in.File)
	}
	in.Text = string(data)
	return in, nil
}

func (c *cli) runnerGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Print a runner's configuration",
		Long:              "Prints the configuration as it can be given to `fairlead runner update`. Secrets\nread as (masked), which an update leaves as they are.",
		Example:           "  fairlead runner get acme-eu > acme-eu.yaml\n  fairlead runner get acme-eu --json | jq .runner_configuration",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			r, err := cl.GetRunner(ctx, args[0])
			if err != nil {
				return nil, err
			}
			if len(r.Config) == 0 {
				return nil, usage("Ask whoever runs the control plane.", "runner %s is shared, and its configuration not yours to see", r.Name)
			}
			return view.Configuration(r.Config), nil
		}),
	}
}

func (c *cli) runnerCreate() *cobra.Command {
	var in wire.CreateRunnerRequest
	var config configFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a runner",
		Long: `Makes a runner of a configuration: where its jobs run, where the state of what
they deploy is kept, and which group it serves. docs/reference/runner-file.md lists the fields.
Without one it is of kind "local", for the whole org, and --storage says where
the state of its installs is kept: "local", on the runner's own disk, or "http",
in the control plane, encrypted.

A runner in AWS needs no enrolment token: with --aws-role, its agents prove that
they have that role. --aws-role-id is the role's unique id, which tells it from
one that is made anew under the same name. Without it, the first role of that
name and account that proves itself within seven days is the one.`,
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
	cmd.Flags().BoolVar(&in.Shared, "shared", false, "serve the installs of every org; for whoever runs the control plane")
	cmd.Flags().StringVar(&in.Description, "description", "", "`TEXT` that a person should know, without a configuration")
	cmd.Flags().StringVar(&in.Storage, "storage", "", "`WHERE` state is kept, without a configuration: \"local\" or \"http\" (default \"local\")")
	c.must(cmd.RegisterFlagCompletionFunc("storage", cobra.FixedCompletions([]string{"local", "http"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&in.AWSRole, "aws-role", "", "the `ARN` of the AWS role that its agents have")
	cmd.Flags().StringVar(&in.AWSRoleID, "aws-role-id", "", "the unique `ID` of that role, which begins with AROA")
	return cmd
}

// warn tells what a configuration had better not say.
func (c *cli) warn(warnings []string) {
	for _, w := range warnings {
		c.say("Warning: %s", w)
	}
}

func (c *cli) runnerUpdate() *cobra.Command {
	var config configFlags
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change a part of a runner's configuration",
		Long: `Changes what is given and keeps the rest: maps are merged at every depth, lists
and scalars replaced, and null removes a field. A secret that reads (masked)
stays as it is, so that what "get" printed can be edited and sent. The type of a
runner cannot be changed.

Installs stay bound to the runner. Where it is to keep states elsewhere, their
deployments are refused until they are refreshed.`,
		Example: `  fairlead runner update acme-gke -f part.yaml
  fairlead runner update acme-gke --set runner_configuration.job.memory_limit=4Gi
  fairlead runner update acme-gke --set runner_configuration.job.node_selector=null`,
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if !config.any() {
				return nil, usage("Use -f, --set or --set-yaml.", "no change is given")
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
		Use: "delete NAME", Short: "Delete a runner that nothing uses",
		Long:              "Deletes a runner. As long as installs or rules use it this is refused, with their\nnames. Its agents are turned away from then on.",
		ValidArgsFunction: c.names(runnerNames),
		RunE:              c.deletes("runner", (*client.Client).DeleteRunner),
	}
}

func (c *cli) runnerMode(verb, mode, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short,
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			r, err := cl.SetRunnerMode(ctx, args[0], mode)
			return view.RunnerMode(r), err
		}),
	}
}

func (c *cli) runnerExplain() *cobra.Command {
	return &cobra.Command{
		Use: "explain INSTALL", Short: "Show which runner serves an install, and why each other does not",
		Long:              "Shows what rules, groups and runners decide now. An install that was deployed\nstays with the runner that it is bound to until `fairlead install refresh-runner`.",
		ValidArgsFunction: c.names(installNames),
		RunE:              one(c, (*client.Client).ExplainPlacement, func(p wire.Placement) view.Document { return view.Placement(p) }),
	}
}

func (c *cli) runnerMatrix() *cobra.Command {
	return &cobra.Command{
		Use: "matrix", Short: "Print which runners may use which state storage",
		RunE: func(*cobra.Command, []string) error {
			m := view.Matrix{Text: runnerspec.Matrix(), Runners: map[string]map[string]view.Possible{}}
			for _, k := range runnerspec.Kinds() {
				m.Runners[string(k)] = map[string]view.Possible{}
				for _, s := range runnerspec.StorageKinds() {
					ok, why := runnerspec.Compatible(k, s)
					m.Runners[string(k)][string(s)] = view.Possible{OK: ok, Why: why}
				}
			}
			return c.print(m)
		},
	}
}

func (c *cli) runnerRule() *cobra.Command {
	return noun("rule", "Say which installs run on which runner",
		"Of the rules that match an install the most specific one decides. There is one\nrule for each match. docs/vendor/placement.md has the order.",
		c.ruleCreate(), c.ruleList(), c.ruleDelete())
}

func (c *cli) ruleCreate() *cobra.Command {
	var in wire.CreateRunnerRuleRequest
	var labels labelFlags
	cmd := &cobra.Command{
		Use: "create --runner NAME", Short: "Send the installs that match to a runner",
		Long: `Makes a rule. Installs that match on all that is given run on the runner, from
their first deployment on; those that are bound already stay where they are
until they are refreshed. In the value of a label, * stands for any text.`,
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
	cmd.Flags().StringVar(&in.Runner, "runner", "", "the `RUNNER` (required)")
	cmd.Flags().StringVar(&in.Group, "group", "", "installs of this group, by `PATH`; with /** behind it, of those below as well")
	cmd.Flags().StringVar(&in.App, "app", "", "installs of this `APP`")
	labels.register(c, cmd, "installs that have this label")
	c.flagNames(cmd, "runner", runnerNames)
	c.flagNames(cmd, "group", groupPaths)
	c.flagNames(cmd, "app", appNames)
	return cmd
}

func (c *cli) ruleList() *cobra.Command {
	return list[view.Rules](c, "List rules", "There are no rules. `fairlead runner rule create` makes one.", (*client.Client).ListRunnerRules)
}

func (c *cli) ruleDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete RULE", Short: "Delete a rule",
		Long:              "Deletes a rule. Installs that it has bound to a runner stay with it.",
		ValidArgsFunction: c.names(ruleIDs),
		RunE:              c.deletes("rule", (*client.Client).DeleteRunnerRule),
	}
}

func (c *cli) installRefreshRunner() *cobra.Command {
	var in wire.RefreshRunnerRequest
	var yes bool
	cmd := &cobra.Command{
		Use: "refresh-runner NAME", Short: "Decide anew which runner runs an install's jobs",
		Long: `An install is bound to a runner by its first deployment, and stays with it when
rules and runners change. This decides anew, and says which runner it is and
whether it is another one.

It is refused while a deployment is not over, and where the other runner keeps
states elsewhere. --migrate-state moves the state there first (see "fairlead
install migrate-state"). --accept-state-loss leaves it where it is: what was
deployed is then neither changed nor removed any more, and the next deployment
makes everything anew. --dry-run answers or refuses alike, and changes nothing.`,
		Example: `  fairlead install refresh-runner acme --dry-run
  fairlead install refresh-runner acme --json | jq .changed`,
		ValidArgsFunction: c.names(installNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if in.AcceptStateLoss && !in.DryRun {
				if err := c.confirm(ctx, yes, args[0], "If its state would be in another place, this leaves behind what install %s deployed: nothing will change or remove it any more.", args[0]); err != nil {
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
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "say what would happen, and change nothing")
	cmd.Flags().BoolVar(&in.MigrateState, "migrate-state", false, "move the state first where it would be in another place")
	cmd.Flags().BoolVar(&in.AcceptStateLoss, "accept-state-loss", false, "begin with no state where it would be in another place")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before a state is left behind")
	return cmd
}

// labelFlags are labels, as key=value.
type labelFlags struct {
	pairs []string
	unset []string // keys; only of an update
}

func (f *labelFlags) register(c *cli, cmd *cobra.Command, what string) {
	cmd.Flags().StringArrayVar(&f.pairs, "label", nil, what+", as `key=value`; repeatable")
}

func (f *labelFlags) registerUnset(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.unset, "unset-label", nil, "take a label away, by `KEY`; repeatable")
}

func (f *labelFlags) labels() (map[string]string, error) {
	return pairs("label", "key=value", f.pairs)
}

// change returns labels to set, nil for those to take away.
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
			return nil, usage("Leave out one of them.", "label %q is both given and unset", key)
		}
		out[key] = nil
	}
	return out, nil
}
