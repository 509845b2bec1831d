package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func (c *cli) group() *cobra.Command {
	return noun("group", "Make groups of installs and runners",
		"Groups nest: customers/acme is in customers. A runner of a group serves its\ninstalls and those of the groups below; variables are inherited.",
		c.groupCreate(), c.groupList(), c.groupGet(), c.groupUpdate(), c.groupDelete())
}

func (c *cli) groupCreate() *cobra.Command {
	var in wire.CreateGroupRequest
	cmd := &cobra.Command{
		Use: "create PATH", Short: "Make a group; the one that holds it has to be there",
		Example: "  fairlead group create customers\n  fairlead group create customers/acme --description 'Acme GmbH'",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			in.Path = args[0]
			g, err := cl.CreateGroup(ctx, in)
			return view.Done(g, "Created group %s", g.Path), err
		}),
	}
	cmd.Flags().StringVar(&in.Description, "description", "", "`TEXT` that a person should know")
	return cmd
}

func (c *cli) groupList() *cobra.Command {
	return list[view.Groups](c, "List groups by path", "There are no groups but the root group, /. `fairlead group create PATH` makes one.", (*client.Client).ListGroups)
}

func (c *cli) groupGet() *cobra.Command {
	return &cobra.Command{
		Use: "get PATH", Short: "Show a group", ValidArgsFunction: c.names(groupPaths),
		RunE: one(c, (*client.Client).GetGroup, func(g wire.Group) view.Document { return view.Group(g) }),
	}
}

func (c *cli) groupUpdate() *cobra.Command {
	var in wire.UpdateGroupRequest
	cmd := &cobra.Command{
		Use: "update PATH --description TEXT", Short: "Change what is said of a group", ValidArgsFunction: c.names(groupPaths),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			g, err := cl.UpdateGroup(ctx, args[0], in)
			return view.Done(g, "Updated group %s", g.Path), err
		}),
	}
	cmd.Flags().StringVar(&in.Description, "description", "", "`TEXT` that a person should know (required)")
	return cmd
}

func (c *cli) groupDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete PATH", Short: "Delete an empty group", ValidArgsFunction: c.names(groupPaths),
		RunE: c.deletes("group", (*client.Client).DeleteGroup),
	}
}
