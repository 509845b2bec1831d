package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// How many items are asked for at a time: the most that the control API gives.
const (
	pageSize     = 200
	jobsPageSize = 1000
)

// newest is how many items of a listing are printed that grows for ever, the
// newest first.
const newest = 100

// extent is how much of a listing is printed.
type extent struct {
	limit int  // 0: all
	all   bool // whatever the limit
	grows bool // the listing grows for ever, and limit is newest by default
	page  int  // 0: pageSize
}

// limitFlag bounds a listing.
func limitFlag(cmd *cobra.Command, e *extent) {
	cmd.Flags().IntVar(&e.limit, "limit", 0, "print at most `N` (default: all)")
}

// newestFlags bound a listing that grows for ever.
func newestFlags(cmd *cobra.Command, e *extent) {
	cmd.Flags().IntVar(&e.limit, "limit", newest, "print at most `N`")
	cmd.Flags().BoolVar(&e.all, "all", false, "print all of them")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
	e.grows = true
}

// pages reads as many items as e allows. It prints a line on the standard error if
// the default limit left some out.
func pages[T any](ctx context.Context, c *cli, e extent, list func(context.Context, client.ListOptions) (wire.Page[T], error)) ([]T, error) {
	limit := e.limit
	if limit < 0 {
		return nil, usage("Leave it out to print all.", "--limit is %d, it cannot be negative", limit)
	}
	if e.all {
		limit = 0
	}
	var read [][]T
	n, more := 0, false
	for page, err := range client.Pages(ctx, client.Extent{Page: cmp.Or(e.page, pageSize), Most: limit}, list) {
		if err != nil {
			return nil, err
		}
		read, n, more = append(read, page.Items), n+len(page.Items), page.Next != ""
	}
	all := make([]T, 0, n)
	for _, items := range read {
		all = append(all, items...)
	}
	if limit > 0 && n >= limit {
		if e.grows && limit == newest && (more || n > limit) {
			c.say("These are the newest %d; there are more: --all prints all of them.", limit)
		}
		all = all[:limit]
	}
	return all, nil
}

// listing prints items, or tells a person what to do when there are none.
func listing[T any](c *cli, items []T, doc view.Document, none string) error {
	if len(items) == 0 && !c.json {
		c.say("%s", none)
	}
	return c.print(doc)
}

// list is a command that lists all of a kind; none tells a person what to do when
// there are none.
func list[D interface {
	~[]T
	view.Document
}, T any](c *cli, short, none string, read func(*client.Client, context.Context, client.ListOptions) (wire.Page[T], error)) *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "list", Short: short,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			items, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[T], error) { return read(cl, ctx, o) })
			if err != nil {
				return err
			}
			return listing(c, items, D(items), none)
		}),
	}
	limitFlag(cmd, &shown)
	return cmd
}
