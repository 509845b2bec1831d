package cli

import (
	"context"
	"encoding/json"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) runnerTrust() *cobra.Command {
	return noun("trust", "Say whose OIDC tokens open sessions of a runner",
		`A trust names an issuer, an audience and what tokens must say: those of a
Kubernetes service account, of Azure or Google Cloud, of CI. An agent that has
such a token needs nothing else. docs/vendor/identity.md has an example for each.`,
		c.trustCreate(), c.trustList(), c.trustGet(), c.trustUpdate(), c.trustDelete())
}

// trustFlags say what a trust says.
type trustFlags struct {
	file   string
	keys   string
	claims []string
	rule   wire.TrustRule
}

func (f *trustFlags) register(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "read the trust, YAML or JSON, from this `FILE`; - is the standard input")
	cmd.Flags().StringVar(&f.rule.Issuer, "issuer", "", "the `URL` that tokens have as iss, to the byte")
	cmd.Flags().StringVar(&f.rule.Audience, "audience", "", "the `TEXT` that tokens have as aud, and the only one")
	cmd.Flags().StringArrayVar(&f.claims, "claim", nil, "what tokens say, as `name=value`; a * stands for letters, digits, dots, underscores and hyphens; repeatable")
	cmd.Flags().BoolVar(&f.rule.Bound, "bound", false, "take only tokens whose audience holds the binding of the request")
	cmd.Flags().StringVar(&f.keys, "keys", "", "read the issuer's keys, a JSON Web Key Set, from this `FILE`, where the issuer cannot be reached")
	for _, name := range []string{"issuer", "audience", "claim"} {
		cmd.MarkFlagsMutuallyExclusive("file", name)
		c.must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	cmd.MarkFlagsMutuallyExclusive("file", "bound")
	cmd.MarkFlagsMutuallyExclusive("file", "keys")
}

// maxTrustFile is far more than a trust takes, in bytes: its keys have at most
// 32 KiB.
const maxTrustFile = 64 << 10

// read returns what a trust is to say. What is wrong with it the control plane
// tells; what is no trust at all is told by line.
func (c *cli) readTrust(f trustFlags) (wire.TrustRule, error) {
	rule := f.rule
	if f.file != "" {
		data, err := c.readFile(f.file, "trust", maxTrustFile)
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
			return rule, usage("A trust has issuer, audience and claims, and may have bound and keys.", "the trust in %s cannot be read:\n%s", f.file, yaml.FormatError(err, false, true))
		}
		rule = wire.TrustRule{Issuer: in.Issuer, Audience: in.Audience, Claims: in.Claims, Bound: in.Bound}
		if in.Keys != nil {
			if rule.Keys, err = json.Marshal(in.Keys); err != nil {
				return rule, usage("", "the keys in %s are no JSON Web Key Set", f.file)
			}
		}
	}
	if f.keys != "" {
		data, err := c.readFile(f.keys, "issuer's keys", maxTrustFile)
		if err != nil {
			return rule, err
		}
		if !json.Valid(data) {
			return rule, usage("`kubectl get --raw /openid/v1/jwks` prints a cluster's.", "%s holds no JSON Web Key Set", f.keys)
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
		return rule, usage("Use -f, or --issuer, --audience and --claim.", "a trust needs an issuer, an audience and claims")
	}
	return rule, nil
}

func (c *cli) trustCreate() *cobra.Command {
	var f trustFlags
	cmd := &cobra.Command{
		Use: "create RUNNER NAME", Short: "Let tokens of an OIDC issuer open sessions of a runner",
		Long: `Makes a trust, and prints what the runner's agents are started with. A token
opens a session if the issuer has signed it, for this audience, and it says all
that the claims say. A claim within another is named by a JSON pointer. A runner
has up to ten trusts; a token need meet one.`,
		Example: `  fairlead runner trust create acme-eks cluster --issuer https://oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE --audience https://fairlead.example.com --claim sub=system:serviceaccount:fairlead:runner
  fairlead runner trust create acme-ci github --issuer https://token.actions.githubusercontent.com --audience https://fairlead.example.com --bound --claim 'sub=repo:acme/*:ref:refs/heads/main'
  fairlead runner trust create acme-eks cluster -f trust.yaml`,
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			rule, err := c.readTrust(f)
			if err != nil {
				return nil, err
			}
			t, err := cl.CreateTrust(ctx, args[0], wire.CreateTrustRequest{Name: args[1], TrustRule: rule})
			if err != nil {
				return nil, err
			}
			r, err := cl.GetRunner(ctx, args[0])
			if err != nil {
				return nil, err
			}
			m, err := cl.Meta(ctx)
			return view.NewTrust{Trust: t, RunnerID: r.ID, Keys: m.Keys}, err
		}),
	}
	f.register(c, cmd)
	return cmd
}

func (c *cli) trustList() *cobra.Command {
	return &cobra.Command{
		Use: "list RUNNER", Short: "List a runner's trusts", ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			page, err := cl.ListTrusts(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, page.Items, view.Trusts(page.Items), "It trusts no issuer. `fairlead runner trust create "+args[0]+" NAME` makes it.")
		}),
	}
}

func (c *cli) trustGet() *cobra.Command {
	return &cobra.Command{
		Use: "get RUNNER NAME", Short: "Print what a trust says",
		Long:              "Prints the trust as it can be given to `fairlead runner trust update`.",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			t, err := cl.GetTrust(ctx, args[0], args[1])
			return view.Trust(t), err
		}),
	}
}

func (c *cli) trustUpdate() *cobra.Command {
	var f trustFlags
	cmd := &cobra.Command{
		Use: "update RUNNER NAME", Short: "Replace what a trust says",
		Long: `Replaces all that the trust says. The sessions that it has opened are over, unless
nothing changes: their agents prove again who they are, to what it says now.`,
		Example:           "  fairlead runner trust get acme-eks cluster > trust.yaml\n  fairlead runner trust update acme-eks cluster -f trust.yaml",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			rule, err := c.readTrust(f)
			if err != nil {
				return nil, err
			}
			t, err := cl.UpdateTrust(ctx, args[0], args[1], rule)
			return view.Done(t, "Updated trust %s of runner %s", t.Name, t.Runner), err
		}),
	}
	f.register(c, cmd)
	return cmd
}

func (c *cli) trustDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete RUNNER NAME", Short: "Delete a trust, and end the sessions that it has opened",
		Long:              "Deletes a trust. Agents that it has let in get no more work, from their next\nrequest on. Jobs that run go on to their end: `fairlead job cancel` stops one.",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Deleted("trust", args[1]), cl.DeleteTrust(ctx, args[0], args[1])
		}),
	}
}

func (c *cli) runnerSession() *cobra.Command {
	return noun("session", "See and end sessions of a runner's agents",
		"An agent proves who it is for a session of 15 minutes, and again before it ends.",
		c.sessionList(), c.sessionEnd())
}

func (c *cli) sessionList() *cobra.Command {
	return &cobra.Command{
		Use: "list RUNNER", Short: "List a runner's last sessions, with whose token opened each", ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			r, err := cl.GetRunner(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, r.Sessions, view.Sessions(r.Sessions), "It has no session.")
		}),
	}
}

func (c *cli) sessionEnd() *cobra.Command {
	return &cobra.Command{
		Use: "end RUNNER SESSION", Short: "End a session, such as one whose token got into other hands",
		Long:              "Ends a session. An agent that can still prove who it is opens another: delete its\ntrust, or the runner, to keep it out.",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"ended": args[1]}, "Ended session %s", args[1]), cl.EndSession(ctx, args[0], args[1])
		}),
	}
}
