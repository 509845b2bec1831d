package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) org() *cobra.Command {
	return noun("org", "Create, list and delete orgs, for operators",
		"An org is a tenant of the control plane: it has its own apps, installs, runners, users\nand tokens, and no caller of one org sees another. Only operators work with orgs.",
		c.orgCreate(), c.orgList(), c.orgShow(), c.orgDelete())
}

func (c *cli) orgCreate() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an org and print its first token once",
		Long: `Creates an org and prints the token of its first owner. You cannot see it again later.
With --out the token is not printed, but written to a file that only you can read.

The first owner uses the token to invite users, or to create other tokens. It ends after
seven days, and when an owner of the org logs in for the first time.`,
		Example: "  fairlead org create team-two --out team-two-token",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			o, err := cl.CreateOrg(ctx, wire.CreateOrgRequest{Name: args[0]})
			if err != nil {
				return nil, err
			}
			until := "for seven days"
			if o.ExpiresAt != nil {
				until = "until " + view.Time(*o.ExpiresAt)
			}
			doc, err := c.writeSecret(out, o.Token, until, view.NewOrg(o))
			if err != nil {
				return nil, fmt.Errorf("%w (delete the org with `fairlead org delete %s`)", err, o.Name)
			}
			return doc, nil
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write the token to this `FILE`")
	return cmd
}

func (c *cli) orgList() *cobra.Command {
	return list[view.Orgs](c, about{
		short:   "List orgs",
		long:    "Lists the orgs, first that of the first start, then by name.",
		example: "fairlead org list",
		none:    "There are no orgs.",
	}, (*client.Client).ListOrgs)
}

func (c *cli) orgShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an org",
		Long:    "Shows when an org was created, and by whom.",
		Example: "  fairlead org show team-two",
		RunE:    one(c, (*client.Client).GetOrg, func(o wire.Org) view.Document { return view.Org(o) }),
	}
}

func (c *cli) orgDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete an org that is empty",
		Long:    "Deletes an org that has no apps, installs, runners, rules, groups and webhooks. Its users\nand tokens are refused from now on. No later org can have its name.",
		Example: "  fairlead org delete team-two",
		RunE:    c.deletes("org", (*client.Client).DeleteOrg),
	}
}
