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

	// next is called with the cursor of the next page before this one is read, and
	// again if this one is asked for again; nil: nothing is. It must not block.
	next func(cursor string)
}

// most is how many items a page has at most, of any listing.
const most = 1000

// page gets the page of a listing that o selects; the query of the call has what
// else there is to say.
func page[T any](ctx context.Context, c *Client, o ListOptions, k call) (wire.Page[T], error) {
	if k.query == nil {
		k.query = url.Values{}
	}
	set(k.query, "cursor", o.Cursor)
	if o.Limit > 0 {
		k.query.Set("limit", strconv.Itoa(o.Limit))
	}
	k.next = o.next
	// Items that have room are not moved again and again as they are decoded.
	out := wire.Page[T]{Items: make([]T, 0, max(0, min(o.Limit, most)))}
	err := c.get(ctx, k, &out)
	return out, err
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// Extent is how much of a listing is read.
type Extent struct {
	Page int // items asked for at a time; 0: the server's default
	Most int // items in all, and then Page is not 0; 0: all there are
}

// limit returns how many items to ask for after read of them; less than 1, if Most
// is not 0, when there are enough.
func (e Extent) limit(read int) int {
	if e.Most == 0 {
		return e.Page
	}
	return min(e.Page, e.Most-read)
}

// enough reports whether no page is wanted after read items.
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

// Pages calls list page by page, to the last page or until it has as many items as
// are wanted; the last page may bring more. It asks for the next page as soon as it
// knows the cursor, which, of a listing of Client, is before it decodes the present
// one: the server makes a page while the caller uses the one before. It asks for one
// page ahead, no more.
//
// The sequence ends after an error, which is that of the page whose turn it is. A
// caller that leaves the sequence cancels the request for the next page. No request
// is under way once the sequence has ended.
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
				ahead.abandon() // the header was not of this page: its first answer broke off
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

// asked is a page that was asked for.
type asked[T any] struct {
	cursor string
	limit  int
	cancel context.CancelFunc
	next   chan string   // holds the cursor of the page after it, once that is known
	done   chan struct{} // closed once page and err are there

	page wire.Page[T]
	err  error
}

// ask asks for a page.
func ask[T any](ctx context.Context, o ListOptions, list func(context.Context, ListOptions) (wire.Page[T], error)) *asked[T] {
	ctx, cancel := context.WithCancel(ctx)
	a := &asked[T]{cursor: o.Cursor, limit: o.Limit, cancel: cancel, next: make(chan string, 1), done: make(chan struct{})}
	o.next = func(cursor string) {
		select {
		case a.next <- cursor:
		default: // the page was asked for again
		}
	}
	go func() {
		defer close(a.done)
		defer cancel()
		a.page, a.err = list(ctx, o)
	}()
	return a
}

// abandon cancels the request, and waits until it has ended; a may be nil.
func (a *asked[T]) abandon() {
	if a != nil {
		a.cancel()
		<-a.done
	}
}
