package cli

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) serviceAccount() *cobra.Command {
	return noun("service-account", "Let programs act by the tokens of their platform",
		`A service account is an identity of programs. It names an OIDC issuer, an audience and
the claims that a token must have. A CI job with such a token logs in without any other
credential. An agent with such a token opens a session of a runner that has the service
account. The token can come from a CI system, Kubernetes, Azure or Google Cloud.
docs/vendor/identity.md has an example for each.`,
		c.accountCreate(), c.accountList(), c.accountShow(), c.accountGet(), c.accountUpdate(), c.accountDelete())
}

// accountFlags hold the flags that define the rule and the roles of a service account.
type accountFlags struct {
	file   string
	keys   string
	claims []string
	rule   wire.TokenRule
	roles  roleFlags
	none   bool // remove all roles
}

func (f *accountFlags) register(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "read issuer, audience and claims, YAML or JSON, from this `FILE`; - means the standard input")
	cmd.Flags().StringVar(&f.rule.Issuer, "issuer", "", "the `URL` of the issuer, exactly as in the claim iss of the token")
	cmd.Flags().StringVar(&f.rule.Audience, "audience", "", "the audience, as `TEXT`; it must be the only value of the claim aud of the token")
	cmd.Flags().StringArrayVar(&f.claims, "claim", nil, "a required claim, as `name=value`; in the value, * matches letters, digits, dots, underscores and hyphens; can be repeated")
	cmd.Flags().BoolVar(&f.rule.Bound, "bound", false, "accept only tokens whose audience contains a digest of the request, as agents of runners request them")
	cmd.Flags().StringVar(&f.keys, "keys", "", "read the issuer's JSON Web Key Set from this `FILE`; for an issuer that the control plane cannot reach")
	for _, name := range []string{"issuer", "audience", "claim"} {
		cmd.MarkFlagsMutuallyExclusive("file", name)
		c.must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	cmd.MarkFlagsMutuallyExclusive("file", "bound")
	cmd.MarkFlagsMutuallyExclusive("file", "keys")
	cmd.Flags().StringArrayVar(&f.roles.roles, "role", nil, "a `ROLE` of programs that log in: owner, deployer, approver or viewer; can be repeated")
	cmd.Flags().StringArrayVar(&f.roles.groups, "role-group", nil, "the roles hold in the group with this `PATH`, and below; can be repeated")
	cmd.Flags().StringArrayVar(&f.roles.apps, "app", nil, "the roles hold in this `APP` and its installs; can be repeated")
	c.flagNames(cmd, "role-group", groupPaths)
	c.flagNames(cmd, "app", appNames)
	c.must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"owner", "deployer", "approver", "viewer"}, cobra.ShellCompDirectiveNoFileComp)))
}

// bindings returns the roles that the flags name. Without a place, they hold in the account's group.
func (f *accountFlags) bindings(group string) []wire.RoleBinding {
	r := f.roles
	if len(r.groups)+len(r.apps) == 0 && group != "" && group != "/" {
		r.groups = []string{group}
	}
	return r.bindings()
}

// maxRuleFile is the maximum size of a file with a rule, in bytes. The keys in the file are at
// most 32 KiB.
const maxRuleFile = 64 << 10

// ruleGiven reports whether the flags define a rule.
func (f *accountFlags) ruleGiven() bool {
	return f.file != "" || f.rule.Issuer != "" || f.rule.Audience != "" || len(f.claims) > 0 || f.keys != "" || f.rule.Bound
}

// readRule returns the rule that the flags define. If the file is not a rule, the
// error names the line. The control plane validates the values.
func (c *cli) readRule(f accountFlags) (wire.TokenRule, error) {
	rule := f.rule
	if f.file != "" {
		data, err := c.readFile(f.file, "rule", maxRuleFile)
		if err != nil {
			return rule, err
		}
		var in struct {
			Issuer   string            `yaml:"issuer"`
			Audience string            `yaml:"audience"`
			Claims   map[string]string `yaml:"claims"`
			Bound    bool              `yaml:"bound"`
			Keys     any               `yaml:"keys"`
		}
		if err := yaml.UnmarshalWithOptions(data, &in, yaml.Strict()); err != nil {
			return rule, usage("The file has issuer, audience and claims, and optionally bound and keys.", "the rule in %s cannot be parsed:\n%s", f.file, yaml.FormatError(err, false, true))
		}
		rule = wire.TokenRule{Issuer: in.Issuer, Audience: in.Audience, Claims: in.Claims, Bound: in.Bound}
		if in.Keys != nil {
			if rule.Keys, err = json.Marshal(in.Keys); err != nil {
				return rule, usage("", "the keys in %s are not a JSON Web Key Set", f.file)
			}
		}
	}
	if f.keys != "" {
		data, err := c.readFile(f.keys, "issuer's keys", maxRuleFile)
		if err != nil {
			return rule, err
		}
		if !json.Valid(data) {
			return rule, usage("`kubectl get --raw /openid/v1/jwks` prints the key set of a cluster.", "%s is not a JSON Web Key Set", f.keys)
		}
		rule.Keys = data
	}
	if len(f.claims) > 0 {
		var err error
		if rule.Claims, err = pairs("claim", "name=value", f.claims); err != nil {
			return rule, err
		}
	}
	if rule.Issuer == "" || rule.Audience == "" || len(rule.Claims) == 0 {
		return rule, usage("Use -f, or --issuer, --audience and --claim.", "a service account needs an issuer, an audience and claims")
	}
	return rule, nil
}

func (c *cli) accountCreate() *cobra.Command {
	var f accountFlags
	var group string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a service account for CI or runners",
		Long: `Creates a service account. It accepts a token if the issuer signed the token, and the
token has the audience and all claims that you name. To name a nested claim, use a JSON
pointer, such as /kubernetes.io~1serviceaccount/uid.

With --role, programs such as CI jobs log in as the service account: 'fairlead login URL
--service-account NAME --token-file FILE'. The roles hold in each group and app that you
name, or else in the account's group. You must be an owner there. Without --role it is for
runners only: assign it with 'fairlead runner assign'. Runners of its group and of the
groups below can have it.`,
		Example: `  fairlead service-account create ci --issuer https://token.actions.githubusercontent.com --audience https://fairlead.example.com --claim repository=acme/shop --claim ref=refs/heads/main --role deployer --app shop
  fairlead service-account create acme-eks --group customers --issuer https://oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE --audience https://fairlead.example.com --claim sub=system:serviceaccount:fairlead:runner
  fairlead service-account create acme-eks -f rule.yaml`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			rule, err := c.readRule(f)
			if err != nil {
				return nil, err
			}
			a, err := cl.CreateServiceAccount(ctx, wire.CreateServiceAccountRequest{Name: args[0], Group: group,
				ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: rule, Roles: f.bindings(group)}})
			return view.NewServiceAccount{Account: a, URL: cl.URL()}, err
		}),
	}
	cmd.Flags().StringVar(&group, "group", "", "the service account is of the group with this `PATH` (default: the org)")
	c.flagNames(cmd, "group", groupPaths)
	f.register(c, cmd)
	return cmd
}

func (c *cli) accountList() *cobra.Command {
	return list[view.ServiceAccounts](c, about{
		short:   "List service accounts",
		long:    "Lists the service accounts of the groups that you may see, with their groups, issuers,\nclaims and roles.",
		example: "fairlead service-account list",
		none:    "There are no service accounts. `fairlead service-account create NAME` creates one.",
	}, (*client.Client).ListServiceAccounts)
}

func (c *cli) accountShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a service account and its runners",
		Long:              "Shows which tokens a service account accepts, what a program that logs in as it may do,\nand the runners that have it.",
		Example:           "  fairlead service-account show acme-eks",
		ValidArgsFunction: c.names(accountNames),
		RunE:              one(c, (*client.Client).GetServiceAccount, func(a wire.ServiceAccount) view.Document { return view.ServiceAccount(a) }),
	}
}

func (c *cli) accountGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Print the rule of a service account",
		Long:              "Prints which tokens a service account accepts, in the form that 'fairlead service-account\nupdate -f' accepts.",
		Example:           "  fairlead service-account get acme-eks > rule.yaml",
		ValidArgsFunction: c.names(accountNames),
		RunE:              one(c, (*client.Client).GetServiceAccount, func(a wire.ServiceAccount) view.Document { return view.AccountRule(a) }),
	}
}

func (c *cli) accountUpdate() *cobra.Command {
	var f accountFlags
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change a service account",
		Long: `Replaces the rule of a service account, its roles, or both: what you do not name stays.
A new rule ends the sessions of agents and the logins that the old one admitted. The
agents open new sessions under the new rule. You must be an owner at each place of the
old and of the new roles.`,
		Example: `  fairlead service-account update ci --role deployer --app shop --app mail
  fairlead service-account update acme-eks -f rule.yaml
  fairlead service-account update acme-eks --no-roles`,
		ValidArgsFunction: c.names(accountNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			given := len(f.roles.roles) > 0 || f.none
			if !given && len(f.roles.groups)+len(f.roles.apps) > 0 {
				return nil, usage("Add --role.", "--role-group and --app are places of roles")
			}
			if !given && !f.ruleGiven() {
				return nil, usage("Name a rule with -f, or with --issuer, --audience and --claim; or roles with --role.", "nothing is to change")
			}
			a, err := cl.GetServiceAccount(ctx, args[0])
			if err != nil {
				return nil, err
			}
			in := a.ServiceAccountSettings
			if f.ruleGiven() {
				if in.TokenRule, err = c.readRule(f); err != nil {
					return nil, err
				}
			}
			if given {
				in.Roles = f.bindings(a.Group)
			}
			a, err = cl.UpdateServiceAccount(ctx, args[0], in)
			return view.Done(a, "Updated service account %s", a.Name), err
		}),
	}
	f.register(c, cmd)
	cmd.Flags().BoolVar(&f.none, "no-roles", false, "remove all roles: the service account is for runners only")
	cmd.MarkFlagsMutuallyExclusive("no-roles", "role")
	return cmd
}

func (c *cli) accountDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a service account that no runner has",
		Long:              "Deletes a service account, and ends its logins. A service account that runners have is\nnot deleted: take it from them first with 'fairlead runner unassign'.",
		Example:           "  fairlead service-account delete ci",
		ValidArgsFunction: c.names(accountNames),
		RunE:              c.deletes("service account", (*client.Client).DeleteServiceAccount),
	}
}

func (c *cli) runnerAssign() *cobra.Command {
	return &cobra.Command{
		Use: "assign RUNNER SERVICE-ACCOUNT", Short: "Let agents of a runner act as a service account",
		Long: `Assigns a service account to a runner, and prints the settings for the runner's agents.
An agent with a token that the service account accepts opens sessions of the runner. The
service account must be of the runner's group, or of a group above it. A shared runner
takes none. A runner has at most ten service accounts.`,
		Example:           "  fairlead runner assign acme-eks acme-eks",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			r, err := cl.AssignServiceAccount(ctx, args[0], args[1])
			if err != nil {
				return nil, err
			}
			a, err := cl.GetServiceAccount(ctx, args[1])
			if err != nil {
				return nil, err
			}
			m, err := cl.Meta(ctx)
			return view.Assigned{Runner: r.Name, RunnerID: r.ID, Account: a.Name, Audience: a.Audience, Keys: m.Keys}, err
		}),
	}
}

func (c *cli) runnerUnassign() *cobra.Command {
	return &cobra.Command{
		Use: "unassign RUNNER SERVICE-ACCOUNT", Short: "Take a service account from a runner",
		Long: `Takes a service account from a runner, and ends the sessions that agents opened as it.
Later requests in these sessions are refused. Running jobs continue to their end. To stop
a job, use 'fairlead job cancel'.`,
		Example:           "  fairlead runner unassign acme-eks acme-eks",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"runner": args[0], "unassigned": args[1]}, "Took service account %s from runner %s", args[1], args[0]), cl.UnassignServiceAccount(ctx, args[0], args[1])
		}),
	}
}

// logInAccount logs a program in as a service account, with the token of its platform.
func (c *cli) logInAccount(ctx context.Context, cl *client.Client, f loginFlags) (wire.ServiceAccountLogin, error) {
	c.flags.TokenFile = cmp.Or(c.flags.TokenFile, c.env.Getenv(profile.EnvOIDCTokenFile))
	if c.flags.TokenFile == "" {
		return wire.ServiceAccountLogin{}, usage("Add --token-file FILE, or set $"+profile.EnvOIDCTokenFile+".", "a login as a service account needs a file with a token of the platform")
	}
	token, err := c.loginToken()
	if err != nil {
		return wire.ServiceAccountLogin{}, err
	}
	return cl.LogInServiceAccount(ctx, f.account, wire.LogInServiceAccountRequest{Org: f.org, Token: token})
}

func (c *cli) runnerSession() *cobra.Command {
	return noun("session", "List and end sessions of a runner's agents",
		"A session is the login of an agent. A session lasts 15 minutes. Before it ends, the\nagent proves its identity again and renews the session.",
		c.sessionList(), c.sessionEnd())
}

func (c *cli) sessionList() *cobra.Command {
	return &cobra.Command{
		Use: "list RUNNER", Short: "List a runner's recent sessions",
		Long:              "Lists the recent sessions of a runner. For each session, shows the service account\nas which the agent opened it, and the subject of the token.",
		Example:           "  fairlead runner session list acme-eks",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			r, err := cl.GetRunner(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, r.Sessions, view.Sessions(r.Sessions), "The runner has no sessions.")
		}),
	}
}

func (c *cli) sessionEnd() *cobra.Command {
	return &cobra.Command{
		Use: "end RUNNER SESSION", Short: "End a session",
		Long:              "Ends a session, for example because its token was stolen. If the agent can still prove\nits identity, it opens another session. To prevent this, take the service\naccount from the runner, or delete the runner.",
		Example:           "  fairlead runner session end acme-eks ses_01kahq",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"ended": args[1]}, "Ended session %s", args[1]), cl.EndSession(ctx, args[0], args[1])
		}),
	}
}
