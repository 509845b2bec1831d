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
	return noun("token", "Make, list and revoke API tokens",
		"An API token is what people and tools call the control plane with. Deployments,\napprovals and cancellations record the token that asked for them.",
		c.tokenCreate(), c.tokenList(), c.tokenRevoke())
}

func (c *cli) tokenCreate() *cobra.Command {
	var in wire.CreateTokenRequest
	var out, expires string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make an API token, and print it once",
		Long: `Makes an API token, prints it, and never shows it again. --out writes it to a
file that only you can read.`,
		Example: `  fairlead token create ci --expires 90d --out ci-token
  fairlead token create carol --operator --out carol-token`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Name = args[0]
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
	cmd.Flags().StringVar(&expires, "expires", "", "how `LONG` it is good, such as 90d or 12h (default: until it is revoked)")
	cmd.Flags().BoolVar(&in.Operator, "operator", false, "let it change what is shared with every org; takes an operator's token")
	cmd.Flags().StringVar(&out, "out", "", "write the token to this `FILE` instead")
	c.must(cmd.RegisterFlagCompletionFunc("expires", cobra.FixedCompletions([]string{"30d", "90d", "365d"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// lifeOf reads how long a token is good: days, or what time.ParseDuration takes.
func lifeOf(text string) (time.Duration, error) {
	life, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		life = time.Duration(min(n, 100*365)) * 24 * time.Hour
	}
	if err != nil || life <= 0 {
		return 0, usage("Write days or hours, such as 90d or 12h.", "--expires is %q, which is no time to come", text)
	}
	return life, nil
}

func (c *cli) tokenList() *cobra.Command {
	return list[view.Tokens](c, "List API tokens, and when each was used last", "There are no tokens.", (*client.Client).ListTokens)
}

func (c *cli) tokenRevoke() *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use: "revoke NAME|ID", Short: "Refuse an API token from now on",
		Long: `Refuses an API token from its next request on. What it has asked for goes on. The
last token cannot be revoked, nor the last of an operator.`,
		Example:           "  fairlead token revoke ci",
		ValidArgsFunction: c.names(tokenNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			tokens, err := pages(ctx, c, extent{}, cl.ListTokens)
			if err != nil {
				return nil, err
			}
			for _, t := range tokens {
				if t.Current && (args[0] == t.Name || args[0] == t.ID) && !own {
					return nil, usage("Log in with another one first, or add --own.", "token %s is the one that this command uses", t.Name)
				}
			}
			return view.Done(map[string]string{"revoked": args[0]}, "Revoked token %s", args[0]), cl.RevokeToken(ctx, args[0])
		}),
	}
	cmd.Flags().BoolVar(&own, "own", false, "also if it is the token that this command uses")
	return cmd
}
