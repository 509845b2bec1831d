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
	"github.com/fairlead/fairlead/pkg/safefile"
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
		Args: exactly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			in.Name = args[0]
			if expires != "" {
				life, err := lifeOf(expires)
				if err != nil {
					return err
				}
				at := c.env.Now().Add(life).UTC().Truncate(time.Second)
				in.ExpiresAt = &at
			}
			t, err := cl.CreateToken(ctx, in)
			if err != nil {
				return err
			}
			until := "until it is revoked"
			if t.ExpiresAt != nil {
				until = "until " + view.Time(*t.ExpiresAt)
			}
			if out == "" {
				c.say("Good %s.", until)
				return c.print(view.NewToken(t))
			}
			if err := safefile.Write(out, []byte(t.Token+"\n"), 0o600); err != nil {
				return fmt.Errorf("write the token (revoke it with `fairlead token revoke %s`): %w", t.Name, err)
			}
			c.say("The token is in %s; it is good %s.", out, until)
			return nil
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
	var shown extent
	cmd := &cobra.Command{
		Use: "list", Short: "List API tokens, and when each was used last",
		Args: exactly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			tokens, err := pages(ctx, c, shown, cl.ListTokens)
			if err != nil {
				return err
			}
			return listing(c, tokens, view.Tokens(tokens), "There are no tokens.")
		}),
	}
	limitFlag(cmd, &shown)
	return cmd
}

func (c *cli) tokenRevoke() *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use: "revoke NAME|ID", Short: "Refuse an API token from now on",
		Long: `Refuses an API token from its next request on. What it has asked for goes on. The
last token cannot be revoked, nor the last of an operator.`,
		Example: "  fairlead token revoke ci",
		Args:    exactly, ValidArgsFunction: c.names(tokenNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			tokens, err := pages(ctx, c, extent{}, cl.ListTokens)
			if err != nil {
				return err
			}
			for _, t := range tokens {
				if t.Current && (args[0] == t.Name || args[0] == t.ID) && !own {
					return usage("Log in with another one first, or add --own.", "token %s is the one that this command uses", t.Name)
				}
			}
			if err := cl.RevokeToken(ctx, args[0]); err != nil {
				return err
			}
			return c.print(view.Revoked{Name: args[0]})
		}),
	}
	cmd.Flags().BoolVar(&own, "own", false, "also if it is the token that this command uses")
	return cmd
}
