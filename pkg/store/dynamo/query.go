package dynamo

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

const (
	// maxBatch is the most keys of one BatchGetItem, by DynamoDB's limit.
	maxBatch = 100

	// pageBytes is the size of bodies at which a page ends, whatever its limit:
	// engine.MaxPage of the largest items would be 190 MB, more than a small
	// function has. The answer that passes it is kept, so that a page is at most
	// 1 MB longer, the size of an answer, or of an index maxBatch items.
	pageBytes = 4 << 20
)

// shape is how an index looks in the table.
type shape struct {
	name            *string // nil: the table itself
	partition, sort string
	cursor          []string // the attributes of a cursor, in order
}

func shapeOf(index engine.Index) shape {
	switch index {
	case engine.List:
		return shape{aws.String(IndexList), AttrListPartition, AttrListSort, []string{AttrListSort, AttrPartition, AttrSort}}
	case engine.Due:
		return shape{aws.String(IndexDue), AttrDuePartition, AttrDueSort, []string{AttrDueSort, AttrPartition, AttrSort}}
	default:
		return shape{nil, AttrPartition, AttrSort, []string{AttrSort}}
	}
}

// Query implements engine.Engine.
func (e *Engine) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	limit, err := engine.CheckQuery(q)
	if err != nil {
		return engine.Page{}, err
	}
	s := shapeOf(q.Index)
	in, err := e.queryInput(q, s)
	if err != nil {
		return engine.Page{}, err
	}
	op := strings.TrimSpace(fmt.Sprintf("query %q %s", q.Partition, q.Index))
	// DynamoDB ends an answer at 1 MB, whatever the limit.
	var found []attributes
	for size := 0; ; {
		in.Limit = aws.Int32(int32(limit - len(found))) // at most MaxPage
		out, err := e.client.Query(ctx, in)
		if err != nil {
			return engine.Page{}, classify(ctx, op, err)
		}
		found = append(found, out.Items...)
		size += bodies(out.Items)
		in.ExclusiveStartKey = out.LastEvaluatedKey
		if len(in.ExclusiveStartKey) == 0 || len(found) >= limit || size >= pageBytes {
			break
		}
	}
	last := in.ExclusiveStartKey
	if q.Index != engine.Table {
		entries := found
		var read int
		if found, read, err = e.fetch(ctx, entries); err != nil {
			return engine.Page{}, classify(ctx, op, err)
		}
		if read < len(entries) {
			last = entries[read-1]
		}
	}
	var page engine.Page
	if page.Next, err = nextOf(last, s); err != nil {
		return engine.Page{}, fmt.Errorf("%s: %w", op, err)
	}
	for _, a := range found {
		it, err := decode(a)
		if err != nil {
			return engine.Page{}, fmt.Errorf("%s: %w", op, err)
		}
		page.Items = append(page.Items, it)
	}
	return page, nil
}

func (e *Engine) queryInput(q engine.Query, s shape) (*dynamodb.QueryInput, error) {
	in := &dynamodb.QueryInput{
		TableName:                 &e.table,
		IndexName:                 s.name,
		ConsistentRead:            aws.Bool(s.name == nil), // an index has no consistent reads
		ScanIndexForward:          aws.Bool(!q.Backward),
		KeyConditionExpression:    aws.String(s.partition + " = :p"),
		ExpressionAttributeValues: attributes{":p": text(q.Partition)},
	}
	if q.Prefix != "" {
		in.KeyConditionExpression = aws.String(s.partition + " = :p AND begins_with(" + s.sort + ", :prefix)")
		in.ExpressionAttributeValues[":prefix"] = text(q.Prefix)
	}
	if q.After == "" {
		return in, nil
	}
	parts, err := engine.ReadCursor(q.After, len(s.cursor))
	if err != nil {
		return nil, err
	}
	// DynamoDB refuses a start that the query could not have reached, or that no
	// key can be; it must not come to that, because a client sent the cursor.
	at := engine.Key{Partition: q.Partition, Sort: parts[0]}
	item := at
	if q.Index != engine.Table {
		item = engine.Key{Partition: parts[1], Sort: parts[2]}
	}
	if engine.CheckKey(at) != nil || engine.CheckKey(item) != nil || !strings.HasPrefix(at.Sort, q.Prefix) {
		return nil, fairlead.Invalid(fairlead.CodeBadCursor, "the cursor is one of another list")
	}
	in.ExclusiveStartKey = keyOf(item)
	in.ExclusiveStartKey[s.partition], in.ExclusiveStartKey[s.sort] = text(at.Partition), text(at.Sort)
	return in, nil
}

// bodies returns the bytes of the bodies among items; entries of an index have
// none.
func bodies(items []attributes) int {
	n := 0
	for _, a := range items {
		if b, ok := a[AttrBody].(*types.AttributeValueMemberB); ok {
			n += len(b.Value)
		}
	}
	return n
}

// nextOf packs DynamoDB's cursor. The partition is left out: it is the query's.
func nextOf(last attributes, s shape) (string, error) {
	if len(last) == 0 {
		return "", nil
	}
	d := decoder{a: last}
	var parts []string
	for _, name := range s.cursor {
		parts = append(parts, d.text(name))
	}
	return engine.WriteCursor(parts...), d.err
}

// fetch reads the items behind the entries of an index from the table, in the
// order of the entries and each once. Items that are gone are left out. It
// returns how many entries it read: all, or as many as pageBytes allows.
func (e *Engine) fetch(ctx context.Context, entries []attributes) (items []attributes, read int, err error) {
	seen := make(map[engine.Key]bool, len(entries))
	for size := 0; read < len(entries) && size < pageBytes; {
		batch := entries[read:min(read+maxBatch, len(entries))]
		read += len(batch)
		var order []engine.Key
		for _, entry := range batch {
			d := decoder{a: entry}
			k := d.key()
			if d.err != nil {
				return nil, 0, d.err
			}
			// An item that moved between two answers is in both, and a batch
			// with the same key twice is refused.
			if !seen[k] {
				seen[k] = true
				order = append(order, k)
			}
		}
		found, err := e.fetchBatch(ctx, order)
		if err != nil {
			return nil, 0, err
		}
		for _, k := range order {
			if a, ok := found[k]; ok {
				items = append(items, a)
				size += bodies([]attributes{a})
			}
		}
	}
	return items, read, nil
}

// fetchBatch reads the items at keys, which are at most maxBatch. DynamoDB
// leaves keys unprocessed when an answer would pass 16 MB, which is worth
// asking again at once, and when it throttles, which is not.
func (e *Engine) fetchBatch(ctx context.Context, keys []engine.Key) (map[engine.Key]attributes, error) {
	found := make(map[engine.Key]attributes, len(keys))
	left := make([]attributes, len(keys))
	for i, k := range keys {
		left[i] = keyOf(k)
	}
	for idle := 0; len(left) > 0; {
		out, err := e.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{
				e.table: {Keys: left, ConsistentRead: aws.Bool(true)},
			},
		})
		if err != nil {
			return nil, err
		}
		for _, a := range out.Responses[e.table] {
			d := decoder{a: a}
			k := d.key()
			if d.err != nil {
				return nil, d.err
			}
			found[k] = a
		}
		before := len(left)
		left = out.UnprocessedKeys[e.table].Keys
		if len(left) < before {
			idle = 0
			continue
		}
		if idle++; idle >= maxAttempts {
			return nil, &fairlead.Error{
				Kind: fairlead.KindUnavailable, Code: fairlead.CodeStoreUnavailable,
				Message: fmt.Sprintf("DynamoDB left %d items unread %d times", len(left), idle),
				Hint:    "Repeat the request in a while.",
			}
		}
		if err := retry.Sleep(ctx, delay(idle)); err != nil {
			return nil, err
		}
	}
	return found, nil
}
