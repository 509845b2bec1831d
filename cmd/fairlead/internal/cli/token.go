package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) token() *cobra.Command {
	return noun("token", "Create, list and revoke API tokens",
		"People and programs call the control plane with API tokens. Each deployment,\napproval and cancellation records the name of the token that was used.",
		c.tokenCreate(), c.tokenList(), c.tokenShow(), c.tokenRevoke())
}

func (c *cli) tokenCreate() *cobra.Command {
	var in wire.CreateTokenRequest
	var out, expires string
	var f roleFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an API token and print it once",
		Long: `Creates an API token and prints it. You cannot see it again later. With --out the
token is not printed, but written to a file that only you can read.

The token has each role in each group and app that you name, and in all groups below. Without
--group and --app it has its roles in the whole org. You must be an owner there. The roles
are owner, deployer, approver and viewer. A deployer does not approve: a program that
deploys with --auto-approve is both, deployer and approver.`,
		Example: `  fairlead token create ci --expires 90d --role deployer --app shop --out ci-token
  fairlead token create eva --role approver --role viewer --group customers/acme --out eva-token
  fairlead token create carol --operator --out carol-token`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Name = args[0]
			in.Roles = f.bindings()
			if expires != "" {
				life, err := lifeOf(expires)
				if err != nil {
					return nil, err
				}
				at := c.env.Now().Add(life).UTC().Truncate(time.Second)
				in.ExpiresAt = &at
			}
			t, err := cl.CreateToken(ctx, in)
			if err != nil {
				return nil, err
			}
			until := "until it is revoked"
			if t.ExpiresAt != nil {
				until = "until " + view.Time(*t.ExpiresAt)
			}
			doc, err := c.writeSecret(out, t.Token, until, view.NewToken(t))
			if err != nil {
				return nil, fmt.Errorf("%w (revoke it with `fairlead token revoke %s`)", err, t.Name)
			}
			return doc, nil
		}),
	}
	cmd.Flags().StringVar(&expires, "expires", "", "the token expires after this `DURATION`, such as 90d or 12h (default: it does not expire)")
	cmd.Flags().BoolVar(&in.Operator, "operator", false, "create an operator's token, which can change objects that all orgs share; your own token must be an operator's too")
	cmd.Flags().StringVar(&out, "out", "", "write the token to this `FILE`")
	f.register(c, cmd, "token", []string{"owner"})
	c.must(cmd.RegisterFlagCompletionFunc("expires", cobra.FixedCompletions([]string{"30d", "90d", "365d"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// bindings returns each role at each place. Without a place, the roles hold in the whole org.
func bindings(roles, groups, apps, installs []string) (out []wire.RoleBinding) {
	for _, role := range roles {
		if len(groups)+len(apps)+len(installs) == 0 {
			out = append(out, wire.RoleBinding{Role: role})
		}
		for _, g := range groups {
			out = append(out, wire.RoleBinding{Role: role, Group: g})
		}
		for _, a := range apps {
			out = append(out, wire.RoleBinding{Role: role, App: a})
		}
		for _, i := range installs {
			out = append(out, wire.RoleBinding{Role: role, Install: i})
		}
	}
	return out
}

// lifeOf parses the lifetime of a token: days such as 90d, or a Go duration.
func lifeOf(text string) (time.Duration, error) {
	life, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		life = time.Duration(min(n, 100*365)) * 24 * time.Hour
	}
	if err != nil || life <= 0 {
		return 0, usage("Write days or hours, such as 90d or 12h.", "--expires %q is not a time in the future", text)
	}
	return life, nil
}

func (c *cli) tokenList() *cobra.Command {
	return list[view.Tokens](c, about{
		short:   "List API tokens and when each was last used",
		long:    "Lists the names of API tokens. For each token, shows when it was created, when it was\nlast used, when it expires, and its roles. The tokens themselves are not shown.",
		example: "fairlead token list",
		none:    "There are no tokens.",
	}, (*client.Client).ListTokens)
}

func (c *cli) tokenShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME|ID", Short: "Show an API token and its roles",
		Long:              "Shows what a token may do and where, who created it, when it was last used, and when it\nexpires. The token itself is not shown.",
		Example:           "  fairlead token show ci",
		ValidArgsFunction: c.names(tokenNames),
		RunE:              one(c, (*client.Client).GetToken, func(t wire.Token) view.Document { return view.Token(t) }),
	}
}

func (c *cli) tokenRevoke() *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use: "revoke NAME|ID", Short: "Revoke an API token",
		Long: `Revokes an API token. Later requests with the token are refused. Deployments that were
created with the token continue. You cannot revoke the last token of an owner of the
org, or the last token of an operator.`,
		Example:           "  fairlead token revoke ci",
		ValidArgsFunction: c.names(tokenNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			tokens, err := pages(ctx, c, extent{}, cl.ListTokens)
			if err != nil {
				return nil, err
			}
			for _, t := range tokens {
				if t.Current && (args[0] == t.Name || args[0] == t.ID) && !own {
					return nil, usage("Log in with another token first, or add --own.", "this command uses token %s itself", t.Name)
				}
			}
			return view.Done(map[string]string{"revoked": args[0]}, "Revoked token %s", args[0]), cl.RevokeToken(ctx, args[0])
		}),
	}
	cmd.Flags().BoolVar(&own, "own", false, "revoke the token even if this command logs in with the same token")
	return cmd
}
