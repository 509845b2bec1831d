package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// pageSize is how many items are asked for at a time: the most that the
// control API gives.
const pageSize = 100

// limitFlag bounds a listing.
func limitFlag(cmd *cobra.Command, limit *int) {
	cmd.Flags().IntVar(limit, "limit", 0, "print at most `N` (default: all)")
	if err := cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions); err != nil {
		panic(err) // the flag was defined a line above
	}
}

// pages returns the items of all pages, or of as many as hold limit items.
func pages[T any](ctx context.Context, limit int, list func(context.Context, client.ListOptions) (wire.Page[T], error)) ([]T, error) {
	if limit < 0 {
		return nil, usage("Leave it out to print all.", "--limit is %d, it cannot be negative", limit)
	}
	all := []T{}
	o := client.ListOptions{}
	for {
		o.Limit = pageSize
		if limit > 0 {
			o.Limit = min(pageSize, limit-len(all))
		}
		page, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if page.Next == "" {
			return all, nil
		}
		o.Cursor = page.Next
	}
}

// listing prints items, or tells a person what to do when there are none.
func listing[T any](c *cli, items []T, doc view.Document, none string) error {
	if len(items) == 0 && !c.json {
		c.say("%s", none)
	}
	return c.print(doc)
}
