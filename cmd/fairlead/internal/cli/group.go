package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) group() *cobra.Command {
	return noun("group", "Create and manage groups of installs and runners",
		"A group contains installs, runners and other groups. For example, the group\n\"customers/acme\" is in the group \"customers\". A runner of a group serves the installs\nof that group and of the groups below it. The variables of a group also apply to the\ngroups below it.",
		c.groupCreate(), c.groupList(), c.groupGet(), c.groupUpdate(), c.groupDelete())
}

func (c *cli) groupCreate() *cobra.Command {
	var in wire.CreateGroupRequest
	cmd := &cobra.Command{
		Use: "create PATH", Short: "Create a group below an existing group",
		Long:    "Creates a group at PATH. The parent group must exist: create the group\n\"customers\" before \"customers/acme\".",
		Example: "  fairlead group create customers\n  fairlead group create customers/acme --description 'Acme GmbH'",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Path = args[0]
			g, err := cl.CreateGroup(ctx, in)
			return view.Done(g, "Created group %s", g.Path), err
		}),
	}
	cmd.Flags().StringVar(&in.Description, "description", "", "a `TEXT` that describes the group")
	return cmd
}

func (c *cli) groupList() *cobra.Command {
	return list[view.Groups](c, about{
		short:   "List groups by path",
		long:    "Lists the groups with their descriptions, sorted by path.",
		example: "fairlead group list",
		none:    "There are no groups except the root group, /. `fairlead group create PATH` creates one.",
	}, (*client.Client).ListGroups)
}

func (c *cli) groupGet() *cobra.Command {
	return &cobra.Command{
		Use: "get PATH", Short: "Show a group", Long: "Shows the description of a group and when it was created.",
		Example:           "  fairlead group get customers/acme",
		ValidArgsFunction: c.names(groupPaths),
		RunE:              one(c, (*client.Client).GetGroup, func(g wire.Group) view.Document { return view.Group(g) }),
	}
}

func (c *cli) groupUpdate() *cobra.Command {
	var in wire.UpdateGroupRequest
	cmd := &cobra.Command{
		Use: "update PATH --description TEXT", Short: "Edit a group's description",
		Long:              "Replaces the description of a group.",
		Example:           "  fairlead group update customers/acme --description 'Acme GmbH, Berlin'",
		ValidArgsFunction: c.names(groupPaths),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			g, err := cl.UpdateGroup(ctx, args[0], in)
			return view.Done(g, "Updated group %s", g.Path), err
		}),
	}
	cmd.Flags().StringVar(&in.Description, "description", "", "the new description, as `TEXT` (required)")
	return cmd
}

func (c *cli) groupDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete PATH", Short: "Delete an empty group",
		Long:              "Deletes a group. The group must have no installs, runners and rules, and no groups\nbelow it.",
		Example:           "  fairlead group delete customers/acme",
		ValidArgsFunction: c.names(groupPaths),
		RunE:              c.deletes("group", (*client.Client).DeleteGroup),
	}
}
