package client

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// ListOptions select a page of a listing.
type ListOptions struct {
	Cursor string
	Limit  int // 0: the server's default

	// next, if not nil, is called with the cursor of the next page before this page is
	// read. If this page is requested again, next is called again. It must not block.
	next func(cursor string)
}

// most is the maximum number of items of a page in any listing.
const most = 1000

// page returns the page of a listing that o selects. The query of k may hold filters.
func page[T any](ctx context.Context, c *Client, o ListOptions, k call) (wire.Page[T], error) {
	if k.query == nil {
		k.query = url.Values{}
	}
	set(k.query, "cursor", o.Cursor)
	if o.Limit > 0 {
		k.query.Set("limit", strconv.Itoa(o.Limit))
	}
	k.next = o.next
	// The capacity avoids copies of the slice while the items are decoded.
	out := wire.Page[T]{Items: make([]T, 0, max(0, min(o.Limit, most)))}
	err := c.get(ctx, k, &out)
	return out, err
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// Extent limits how much of a listing is read.
type Extent struct {
	Page int // items per request; 0: the server's default
	Most int // items in total; 0: all. Requires Page
}

// limit returns how many items the next request asks for. The parameter read is the
// number of items that were read. The result is less than 1 if Most items were read.
func (e Extent) limit(read int) int {
	if e.Most == 0 {
		return e.Page
	}
	return min(e.Page, e.Most-read)
}

// enough reports whether no further page is needed. The parameter read is the number
// of items that were read.
func (e Extent) enough(read int) bool { return e.Most > 0 && read >= e.Most }

// All calls list page by page and returns every item.
func All[T any](ctx context.Context, list func(context.Context, ListOptions) (wire.Page[T], error)) ([]T, error) {
	var all [][]T
	for p, err := range Pages(ctx, Extent{}, list) {
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items)
	}
	return slices.Concat(all...), nil
}

// Pages calls list page by page, until the last page or until it has e.Most items.
// The final page may bring the total above e.Most. Pages requests the next page as
// soon as it knows the cursor. With a listing of Client, it knows the cursor before it
// decodes the present page. So the server prepares the next page while the caller uses
// the present page. Pages requests only one page ahead.
//
// The sequence ends after an error. Errors come in page order: an error of the next
// page is reported after the present page. If the caller leaves the sequence, Pages
// cancels the request for the next page. No request is open after the sequence has
// ended.
func Pages[T any](ctx context.Context, e Extent, list func(context.Context, ListOptions) (wire.Page[T], error)) iter.Seq2[wire.Page[T], error] {
	return func(yield func(wire.Page[T], error) bool) {
		read := 0
		present, ahead := ask(ctx, ListOptions{Limit: e.limit(0)}, list), (*asked[T])(nil)
		defer func() {
			present.abandon()
			ahead.abandon()
		}()
		for {
			select {
			case cursor := <-present.next:
				if full := read + present.limit; cursor != present.cursor && !e.enough(full) {
					ahead = ask(ctx, ListOptions{Cursor: cursor, Limit: e.limit(full)}, list)
				}
			case <-present.done:
			}
			<-present.done
			p, err := present.page, present.err
			if err == nil && p.Next != "" && p.Next == present.cursor {
				err = fmt.Errorf("the listing does not end: cursor %q leads to itself", p.Next)
			}
			if err != nil {
				yield(wire.Page[T]{}, err)
				return
			}
			read += len(p.Items)
			last := p.Next == "" || e.enough(read)
			if ahead != nil && (last || ahead.cursor != p.Next) {
				ahead.abandon() // its cursor came with an answer that broke off, and the repeated request got another cursor
				ahead = nil
			}
			if ahead == nil && !last {
				ahead = ask(ctx, ListOptions{Cursor: p.Next, Limit: e.limit(read)}, list)
			}
			if !yield(p, nil) || last {
				return
			}
			present, ahead = ahead, nil
		}
	}
}

// asked is a page that was requested.
type asked[T any] struct {
	cursor string
	limit  int
	cancel context.CancelFunc
	next   chan string   // gets the cursor of the next page as soon as the cursor is known
	done   chan struct{} // closed when page and err are set

	page wire.Page[T]
	err  error
}

// ask starts the request for a page.
func ask[T any](ctx context.Context, o ListOptions, list func(context.Context, ListOptions) (wire.Page[T], error)) *asked[T] {
	ctx, cancel := context.WithCancel(ctx)
	a := &asked[T]{cursor: o.Cursor, limit: o.Limit, cancel: cancel, next: make(chan string, 1), done: make(chan struct{})}
	o.next = func(cursor string) {
		select {
		case a.next <- cursor:
		default: // this page was requested again, and the channel already holds a cursor
		}
	}
	go func() {
		defer close(a.done)
		defer cancel()
		a.page, a.err = list(ctx, o)
	}()
	return a
}

// abandon cancels the request and waits until it has ended. a may be nil.
func (a *asked[T]) abandon() {
	if a != nil {
		a.cancel()
		<-a.done
	}
}
