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
	return noun("trust", "Configure which OIDC identities may act as a runner",
		`A trust names an OIDC issuer, an audience and the claims that a token must have. An
agent with such a token opens a session without any other credential. The token
can come from a Kubernetes service account, Azure, Google Cloud or a CI system.
docs/vendor/identity.md has an example for each.`,
		c.trustCreate(), c.trustList(), c.trustGet(), c.trustUpdate(), c.trustDelete())
}

// trustFlags hold the flags that define a trust.
type trustFlags struct {
	file   string
	keys   string
	claims []string
	rule   wire.TrustRule
}

func (f *trustFlags) register(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "read the trust, YAML or JSON, from this `FILE`; - means the standard input")
	cmd.Flags().StringVar(&f.rule.Issuer, "issuer", "", "the `URL` of the issuer, exactly as in the claim iss of the token")
	cmd.Flags().StringVar(&f.rule.Audience, "audience", "", "the audience, as `TEXT`; it must be the only value of the claim aud of the token")
	cmd.Flags().StringArrayVar(&f.claims, "claim", nil, "a required claim, as `name=value`; in the value, * matches letters, digits, dots, underscores and hyphens; can be repeated")
	cmd.Flags().BoolVar(&f.rule.Bound, "bound", false, "accept only tokens whose audience contains a digest of the request")
	cmd.Flags().StringVar(&f.keys, "keys", "", "read the issuer's JSON Web Key Set from this `FILE`; for an issuer that the control plane cannot reach")
	for _, name := range []string{"issuer", "audience", "claim"} {
		cmd.MarkFlagsMutuallyExclusive("file", name)
		c.must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	cmd.MarkFlagsMutuallyExclusive("file", "bound")
	cmd.MarkFlagsMutuallyExclusive("file", "keys")
}

// maxTrustFile is the maximum size of a trust file, in bytes. The keys in the file are at
// most 32 KiB.
const maxTrustFile = 64 << 10

// readTrust returns the trust that the flags define. If the file is not a trust, the
// error names the line. The control plane validates the values.
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
			return rule, usage("A trust has issuer, audience and claims, and optionally bound and keys.", "the trust in %s cannot be parsed:\n%s", f.file, yaml.FormatError(err, false, true))
		}
		rule = wire.TrustRule{Issuer: in.Issuer, Audience: in.Audience, Claims: in.Claims, Bound: in.Bound}
		if in.Keys != nil {
			if rule.Keys, err = json.Marshal(in.Keys); err != nil {
				return rule, usage("", "the keys in %s are not a JSON Web Key Set", f.file)
			}
		}
	}
	if f.keys != "" {
		data, err := c.readFile(f.keys, "issuer's keys", maxTrustFile)
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
		return rule, usage("Use -f, or --issuer, --audience and --claim.", "a trust needs an issuer, an audience and claims")
	}
	return rule, nil
}

func (c *cli) trustCreate() *cobra.Command {
	var f trustFlags
	cmd := &cobra.Command{
		Use: "create RUNNER TRUST", Short: "Create a trust: accept OIDC tokens for a runner",
		Long: `Creates a trust and prints the settings for the runner's agents. A token
opens a session if the issuer signed the token, and the token has the audience and all
claims of the trust. To name a nested claim, use a JSON pointer, such as
/kubernetes.io~1serviceaccount/uid.

A runner has at most ten trusts. A token must match one of them.`,
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
		Use: "list RUNNER", Short: "List a runner's trusts",
		Long:              "Lists the trusts of a runner with their issuers, audiences and claims.",
		Example:           "  fairlead runner trust list acme-eks",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			page, err := cl.ListTrusts(ctx, args[0])
			if err != nil {
				return err
			}
			return listing(c, page.Items, view.Trusts(page.Items), "The runner has no trusts. `fairlead runner trust create "+args[0]+" NAME` creates one.")
		}),
	}
}

func (c *cli) trustGet() *cobra.Command {
	return &cobra.Command{
		Use: "get RUNNER TRUST", Short: "Print a trust",
		Long:              "A trust states which OIDC tokens can open sessions of a runner. The command prints\nthe trust in the form that 'fairlead runner trust update' accepts.",
		Example:           "  fairlead runner trust get acme-eks cluster",
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
		Use: "update RUNNER TRUST", Short: "Replace a trust",
		Long: `Replaces all settings of a trust. If a setting changes, the sessions that agents
opened with the trust end. The agents log in again under the new settings.`,
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
		Use: "delete RUNNER TRUST", Short: "Delete a trust and end its sessions",
		Long:              "Deletes a trust and ends the sessions that agents opened with the trust. Later\nrequests in these sessions are refused. Running jobs continue to their end. To stop a\njob, use 'fairlead job cancel'.",
		Example:           "  fairlead runner trust delete acme-eks cluster",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Deleted("trust", args[1]), cl.DeleteTrust(ctx, args[0], args[1])
		}),
	}
}

func (c *cli) runnerSession() *cobra.Command {
	return noun("session", "List and end sessions of a runner's agents",
		"A session is the login of an agent. A session lasts 15 minutes. Before it ends, the\nagent proves its identity again and renews the session.",
		c.sessionList(), c.sessionEnd())
}

func (c *cli) sessionList() *cobra.Command {
	return &cobra.Command{
		Use: "list RUNNER", Short: "List a runner's recent sessions",
		Long:              "Lists the recent sessions of a runner. For each session, shows the trust, and the\nsubject of the token with which the agent opened the session.",
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
		Long:              "Ends a session, for example because its token was stolen. If the agent can still prove\nits identity, it opens another session. To prevent this, delete the trust of the\nagent, or delete the runner.",
		Example:           "  fairlead runner session end acme-eks ses_01kahq",
		ValidArgsFunction: c.names(runnerNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"ended": args[1]}, "Ended session %s", args[1]), cl.EndSession(ctx, args[0], args[1])
		}),
	}
}
