package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) user() *cobra.Command {
	return noun("user", "Invite people, and set what they may do",
		"A user is a person who may log in with 'fairlead login'. The issuer of the control plane\nknows the person by the email. The roles of the user are the same as those of a token.",
		c.userInvite(), c.userList(), c.userShow(), c.userUpdate(), c.userLink(), c.userLogout(), c.userDelete())
}

// roleFlags are the flags that name roles and places.
type roleFlags struct{ roles, groups, apps, installs []string }

// registerInstalls adds the flag of roles at installs, which only users have.
func (f *roleFlags) registerInstalls(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.installs, "install", nil, "the user is a person of the customer and has its roles in this `INSTALL`: approver, viewer or security; can be repeated")
	c.flagNames(cmd, "install", installNames)
	cmd.Flags().Lookup("role").Usage = "a `ROLE` of the user: owner, deployer, approver or viewer; at an install approver, viewer or security; can be repeated"
}

func (f *roleFlags) register(c *cli, cmd *cobra.Command, of string, defaults []string) {
	cmd.Flags().StringArrayVar(&f.roles, "role", defaults, "a `ROLE` of the "+of+": owner, deployer, approver or viewer; can be repeated")
	cmd.Flags().StringArrayVar(&f.groups, "group", nil, "the "+of+" has its roles in the group with this `PATH`, and below; can be repeated")
	cmd.Flags().StringArrayVar(&f.apps, "app", nil, "the "+of+" has its roles in this `APP` and its installs; can be repeated")
	c.flagNames(cmd, "group", groupPaths)
	c.flagNames(cmd, "app", appNames)
	c.must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"owner", "deployer", "approver", "viewer"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (f *roleFlags) bindings() []wire.RoleBinding {
	return bindings(f.roles, f.groups, f.apps, f.installs)
}

func (c *cli) userInvite() *cobra.Command {
	var in wire.InviteUserRequest
	var f roleFlags
	cmd := &cobra.Command{
		Use: "invite EMAIL", Short: "Invite a person",
		Long: `Makes a person a user of your org. Nothing is sent: the person runs 'fairlead
login' with the URL of the control plane, which you give to the person.

The user has each role in each group and app that you name, and in all groups below. Without
--group and --app it has its roles in the whole org. You must be an owner there.

With --install the user is a person of the customer, who sees only this install. An owner
of the org invites viewers and the first person with the role security. This person invites
the approvers. Once an install has an approver, only its approvers approve.`,
		Example: `  fairlead user invite eva@example.com --role approver --role viewer --group customers
  fairlead user invite sam@customer.example --role security --install acme
  fairlead user invite carol@example.com --role owner --operator`,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Email, in.Roles = args[0], f.bindings()
			if len(in.Roles) == 0 {
				return nil, usage("Add --role owner, deployer, approver or viewer.", "a user needs a role")
			}
			u, err := cl.InviteUser(ctx, in)
			return view.Done(u, "Invited %s. To log in: fairlead login %s", u.Email, cl.URL()), err
		}),
	}
	f.register(c, cmd, "user", nil)
	f.registerInstalls(c, cmd)
	cmd.Flags().BoolVar(&in.Operator, "operator", false, "invite an operator, who can change objects that all orgs share; you must be an operator too")
	return cmd
}

func (c *cli) userList() *cobra.Command {
	return list[view.Users](c, about{
		short:   "List users and when each logged in",
		long:    "Lists the users with their names, their roles, and the time of their last login.",
		example: "fairlead user list",
		none:    "There are no users. `fairlead user invite EMAIL --role ROLE` invites one.",
	}, (*client.Client).ListUsers)
}

func (c *cli) userShow() *cobra.Command {
	return &cobra.Command{
		Use: "show EMAIL|ID", Short: "Show a user, its roles and its logins",
		Long:              "Shows what a user may do and where, who invited the user, the issuer at which the user\nlogs in, and the logins that are not over.",
		Example:           "  fairlead user show eva@example.com",
		ValidArgsFunction: c.names(userEmails),
		RunE:              one(c, (*client.Client).GetUser, func(u wire.User) view.Document { return view.User(u) }),
	}
}

func (c *cli) userUpdate() *cobra.Command {
	var f roleFlags
	var operator bool
	cmd := &cobra.Command{
		Use: "update EMAIL|ID", Short: "Replace the roles of a user",
		Long: `Replaces the roles of a user, from the user's next request on. You must be an owner at
each place of the old and of the new roles. The last owner of the org stays one.`,
		Example:           "  fairlead user update eva@example.com --role deployer --app shop",
		ValidArgsFunction: c.names(userEmails),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := wire.UpdateUserRequest{Roles: f.bindings()}
			if cmd.Flags().Changed("operator") {
				in.Operator = &operator
			}
			if len(in.Roles) == 0 && in.Operator == nil {
				return usage("Add --role, or --operator.", "nothing is to be changed")
			}
			return c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
				u, err := cl.UpdateUser(ctx, args[0], in)
				return view.Done(u, "User %s is %s", u.Email, view.Roles(u.Roles)), err
			})(cmd, args)
		},
	}
	f.register(c, cmd, "user", nil)
	f.registerInstalls(c, cmd)
	cmd.Flags().BoolVar(&operator, "operator", false, "make the user an operator; with =false, make it none")
	return cmd
}

func (c *cli) userLink() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "link EMAIL|ID", Short: "Make a login link for a person of a customer",
		Long: `Makes a login link and prints it once. The person uses it with 'fairlead login --link-file',
once and within seven days, and needs no account at an issuer. A new link replaces an
earlier one. Send it by a channel that others do not read. Only people whose roles are all
at installs log in with a link.`,
		Example:           "  fairlead user link sam@customer.example --out link",
		ValidArgsFunction: c.names(userEmails),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			l, err := cl.CreateLoginLink(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return c.writeSecret(out, l.Token, "for one login, until "+view.Time(l.ExpiresAt), view.LoginLink(l))
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write the link to this `FILE`")
	return cmd
}

func (c *cli) userLogout() *cobra.Command {
	return &cobra.Command{
		Use: "logout EMAIL|ID", Short: "End all logins of a user",
		Long:              "Ends all logins of a user, for example after a laptop was lost. The user can log in again.",
		Example:           "  fairlead user logout eva@example.com",
		ValidArgsFunction: c.names(userEmails),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			return view.Done(map[string]string{"logged_out": args[0]}, "Ended the logins of %s", args[0]), cl.EndLogins(ctx, args[0])
		}),
	}
}

func (c *cli) userDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete EMAIL|ID", Short: "Delete a user and end its logins",
		Long:              "Deletes a user. Its logins end at once. API tokens that the user created stay.",
		Example:           "  fairlead user delete eva@example.com",
		ValidArgsFunction: c.names(userEmails),
		RunE:              c.deletes("user", (*client.Client).DeleteUser),
	}
}

func (c *cli) issuer() *cobra.Command {
	return noun("issuer", "Set where people log in",
		"An issuer is an OpenID Connect server at which people log in: it decides who a person\nis. All orgs of the control plane share the issuers, and only operators set them.",
		c.issuerSet(), c.issuerList(), c.issuerDelete())
}

func (c *cli) issuerSet() *cobra.Command {
	var in wire.LoginIssuerRule
	var keys string
	cmd := &cobra.Command{
		Use: "set NAME --issuer URL --client-id ID", Short: "Set an issuer at which people log in",
		Long: `Creates an issuer, or replaces its settings. Register 'fairlead login' at the issuer as
a public (native) client with the authorization code flow, PKCE and the redirect URL
http://localhost at any port, and the device flow if people need it.`,
		Example: "  fairlead issuer set work --issuer https://login.example.com --client-id fairlead",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if keys != "" {
				data, err := c.readFile(keys, "issuer's keys", maxRuleFile)
				if err != nil {
					return nil, err
				}
				if !json.Valid(data) {
					return nil, usage("", "%s is not a JSON Web Key Set", keys)
				}
				in.Keys = data
			}
			i, err := cl.SetLoginIssuer(ctx, args[0], in)
			return view.Done(i, "People log in at %s", i.Issuer), err
		}),
	}
	cmd.Flags().StringVar(&in.Issuer, "issuer", "", "the `URL` of the issuer, exactly as in the claim iss of its tokens (required)")
	cmd.Flags().StringVar(&in.ClientID, "client-id", "", "the `ID` of the client at the issuer (required)")
	cmd.Flags().StringVar(&in.ClientSecret, "client-secret", "", "the `TEXT` that the issuer calls the client's secret, if it asks for one; every caller can read it")
	cmd.Flags().BoolVar(&in.TrustEmail, "trust-email", false, "accept emails without the claim email_verified; only for an issuer at which people cannot choose their emails")
	cmd.Flags().StringVar(&keys, "keys", "", "read the issuer's JSON Web Key Set from this `FILE`; for an issuer that the control plane cannot reach")
	return cmd
}

func (c *cli) issuerList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the issuers at which people log in",
		Long:    "Lists the issuers with their URLs and client identifiers.",
		Example: "  fairlead issuer list",
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			page, err := cl.ListLoginIssuers(ctx)
			if err != nil {
				return err
			}
			return listing(c, page.Items, view.Issuers(page.Items), "There are no issuers. `fairlead issuer set NAME --issuer URL --client-id ID` sets one.")
		}),
	}
}

func (c *cli) issuerDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete an issuer at which people log in",
		Long:    "Deletes an issuer. People can no longer log in there. Their logins continue until they\nexpire: 'fairlead user logout' ends them.",
		Example: "  fairlead issuer delete work",
		RunE:    c.deletes("issuer", (*client.Client).DeleteLoginIssuer),
	}
}
