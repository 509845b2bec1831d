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
		Args:    exactly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			in.Path = args[0]
			g, err := cl.CreateGroup(ctx, in)
			if err != nil {
				return err
			}
			return c.print(view.GroupChange{Group: g, Verb: "Created"})
		}),
	}
	cmd.Flags().StringVar(&in.Description, "description", "", "`TEXT` that a person should know")
	c.must(cmd.RegisterFlagCompletionFunc("description", cobra.NoFileCompletions))
	return cmd
}

func (c *cli) groupList() *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "list", Short: "List groups by path",
		Args: exactly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			groups, err := pages(ctx, c, shown, cl.ListGroups)
			if err != nil {
				return err
			}
			return listing(c, groups, view.Groups(groups), "There are no groups but the root group, /. `fairlead group create PATH` makes one.")
		}),
	}
	limitFlag(cmd, &shown)
	return cmd
}

func (c *cli) groupGet() *cobra.Command {
	return &cobra.Command{
		Use: "get PATH", Short: "Show a group",
		Args: exactly, ValidArgsFunction: c.names(groupPaths),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			g, err := cl.GetGroup(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(view.Group(g))
		}),
	}
}

func (c *cli) groupUpdate() *cobra.Command {
	var in wire.UpdateGroupRequest
	cmd := &cobra.Command{
		Use: "update PATH --description TEXT", Short: "Change what is said of a group",
		Args: exactly, ValidArgsFunction: c.names(groupPaths),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			g, err := cl.UpdateGroup(ctx, args[0], in)
			if err != nil {
				return err
			}
			return c.print(view.GroupChange{Group: g, Verb: "Updated"})
		}),
	}
	cmd.Flags().StringVar(&in.Description, "description", "", "`TEXT` that a person should know (required)")
	c.must(cmd.MarkFlagRequired("description"))
	c.must(cmd.RegisterFlagCompletionFunc("description", cobra.NoFileCompletions))
	return cmd
}

func (c *cli) groupDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete PATH", Short: "Delete an empty group",
		Args: exactly, ValidArgsFunction: c.names(groupPaths),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			if err := cl.DeleteGroup(ctx, args[0]); err != nil {
				return err
			}
			return c.print(view.Deleted{Noun: "group", Name: args[0]})
		}),
	}
}
