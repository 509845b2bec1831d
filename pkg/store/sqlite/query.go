package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Query implements engine.Engine.
func (e *Engine) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	limit, err := engine.CheckQuery(q)
	if err != nil {
		return engine.Page{}, err
	}
	args, err := bounds(q)
	if err != nil {
		return engine.Page{}, err
	}
	if ctx, err = sqlitedb.Short(ctx); err != nil { // it reads at most engine.MaxPage items
		return engine.Page{}, err
	}
	args = append(args, limit+1) // the additional item shows whether there is a next page
	page, err := e.page(ctx, q, limit, args)
	if err != nil {
		op := strings.TrimSpace(fmt.Sprintf("query %q %s", q.Partition, q.Index))
		return engine.Page{}, sqlitedb.Classify(op, err)
	}
	return page, nil
}

func (e *Engine) page(ctx context.Context, q engine.Query, limit int, args []any) (page engine.Page, err error) {
	rows, err := e.read.query[order{q.Index, q.Backward}].QueryContext(ctx, args...)
	err = sqlitedb.Each(rows, err, func(row *sql.Rows) error {
		if len(page.Items) == limit { // this row is the additional item
			last := &page.Items[limit-1]
			page.Next = engine.WriteCursor(last.Place(q.Index).Sort, last.Key.Partition, last.Key.Sort)
			return nil
		}
		it, err := scan(row)
		page.Items = append(page.Items, it)
		return err
	})
	return page, err
}

// bounds returns the arguments of the query's statement except the limit: the partition,
// the end of the prefix's range, and the last seen entry. The first page has no last seen
// entry. Instead bounds returns one end of the prefix's range with an empty item key. No
// item key is empty, so this place sorts before all entries with the same index key.
func bounds(q engine.Query) ([]any, error) {
	low, high := []byte(q.Prefix), prefixEnd(q.Prefix)
	far, seen := high, []string{q.Prefix, "", ""}
	if q.Backward {
		far, seen[0] = low, string(high)
	}
	if q.After != "" {
		var err error
		if seen, err = engine.ReadCursor(q.After, len(seen)); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(seen[0], q.Prefix) {
			return nil, fairlead.Invalid(fairlead.CodeBadCursor, "the cursor is not from this list")
		}
	}
	args := []any{[]byte(q.Partition), far}
	if q.Index == engine.Table {
		// In the table, a sort key is unique in its partition. So a forward query can
		// continue at the smallest byte string that is greater than the cursor.
		from := []byte(seen[0])
		if q.After != "" && !q.Backward {
			from = append(from, 0)
		}
		return append(args, from), nil
	}
	for _, part := range seen {
		args = append(args, []byte(part)) // never nil, which would be NULL
	}
	return args, nil
}

// prefixEnd returns a byte string that is greater than every sort key with the prefix. No
// later sort key is less than this byte string. UTF-8 has no byte 0xff, so the last byte of
// a prefix can always be increased by one.
func prefixEnd(prefix string) []byte {
	if prefix == "" {
		return []byte{0xff}
	}
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

type order struct {
	index    engine.Index
	backward bool
}

// queries returns the statement of each order. Each statement reads one range of one
// b-tree, from the last seen entry to the end of the prefix's range.
func queries() map[order]string {
	all := make(map[order]string)
	for index, columns := range map[engine.Index][]string{
		engine.Table: {"partition", "sort"},
		engine.List:  {"list_partition", "list_sort"},
		engine.Due:   {"due_partition", "due_sort"},
	} {
		partition, sort := columns[0], columns[1]
		entry, seen, from := sort, "?", ">="
		if index != engine.Table {
			entry, seen, from = fmt.Sprintf("(%s, partition, sort)", sort), "(?, ?, ?)", ">"
		}
		for _, o := range []struct {
			backward             bool
			far, from, direction string
		}{
			{false, "<", from, ""},
			{true, ">=", "<", " DESC"},
		} {
			by := sort + o.direction
			if index != engine.Table {
				by = fmt.Sprintf("%s%[2]s, partition%[2]s, sort%[2]s", sort, o.direction)
			}
			all[order{index, o.backward}] = fmt.Sprintf(
				"SELECT %s FROM items WHERE %s = ? AND %s %s ? AND %s %s %s ORDER BY %s LIMIT ?",
				columnList, partition, sort, o.far, entry, o.from, seen, by)
		}
	}
	return all
}
