package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The numbers of items of one request: the maxima of the control API.
const (
	pageSize     = 200
	jobsPageSize = 1000
)

// newest is the default number of items that a list of a growing history prints,
// newest first.
const newest = 100

// extent bounds how much of a list a command prints.
type extent struct {
	limit int  // 0: all
	all   bool // ignore the limit
	grows bool // the list is a growing history: the default limit is newest
	page  int  // items of one request; 0: pageSize
}

// limitFlag adds --limit to a command whose default is all items.
func limitFlag(cmd *cobra.Command, e *extent) {
	cmd.Flags().IntVar(&e.limit, "limit", 0, "print at most `N` items (default: all)")
}

// newestFlags adds --limit and --all to a command that lists a growing history.
func newestFlags(cmd *cobra.Command, e *extent) {
	cmd.Flags().IntVar(&e.limit, "limit", newest, "print at most `N` items")
	cmd.Flags().BoolVar(&e.all, "all", false, "print all items")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
	e.grows = true
}

// pages reads the items that e permits, page by page. If the default limit leaves items
// out, it reports on the standard error that there are more items.
func pages[T any](ctx context.Context, c *cli, e extent, list func(context.Context, client.ListOptions) (wire.Page[T], error)) ([]T, error) {
	limit := e.limit
	if limit < 0 {
		return nil, usage("Omit it to print all items.", "--limit is %d; it cannot be negative", limit)
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
			c.say("These are the newest %d. --all prints all of them.", limit)
		}
		all = all[:limit]
	}
	return all, nil
}

// listing prints items. If there are none, it writes the sentence none for a person.
func listing[T any](c *cli, items []T, doc view.Document, none string) error {
	if len(items) == 0 && !c.json {
		c.say("%s", none)
	}
	return c.print(doc)
}

// about holds the texts of a list command.
type about struct {
	short, long string
	example     string // one command, without the indent
	none        string // what to do if there are no items
}

// list returns a command that lists all objects of one kind.
func list[D interface {
	~[]T
	view.Document
}, T any](c *cli, texts about, read func(*client.Client, context.Context, client.ListOptions) (wire.Page[T], error)) *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "list", Short: texts.short, Long: texts.long, Example: "  " + texts.example,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			items, err := pages(ctx, c, shown, func(ctx context.Context, o client.ListOptions) (wire.Page[T], error) { return read(cl, ctx, o) })
			if err != nil {
				return err
			}
			return listing(c, items, D(items), texts.none)
		}),
	}
	limitFlag(cmd, &shown)
	return cmd
}
