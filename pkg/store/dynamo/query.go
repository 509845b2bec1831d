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
	// maxBatch is DynamoDB's limit of keys in one BatchGetItem.
	maxBatch = 100

	// pageBytes is the size in bytes at which a page ends, although the page may have fewer
	// items than its limit. The size is the sum of the bodies. Without pageBytes, a page of
	// engine.MaxPage of the largest items would need 190 MB, more memory than a small
	// function has. The response that exceeds pageBytes is still a part of the page. So a
	// page can be larger than pageBytes by one response: 1 MB for the table, or maxBatch
	// items for an index.
	pageBytes = 4 << 20
)

// shape is the schema of the table or of an index.
type shape struct {
	name            *string // name of the index; nil: the table itself
	partition, sort string
	cursor          []string // names of the attributes in a cursor, in order
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
	// DynamoDB ends a response at 1 MB, also if it has fewer items than the limit.
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
		ConsistentRead:            aws.Bool(s.name == nil), // DynamoDB has no consistent reads of an index
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
	// A client sent the cursor, so it can be forged. DynamoDB refuses a start key that is
	// invalid or outside the query's range. With this check, the client gets a clear error
	// instead.
	at := engine.Key{Partition: q.Partition, Sort: parts[0]}
	item := at
	if q.Index != engine.Table {
		item = engine.Key{Partition: parts[1], Sort: parts[2]}
	}
	if engine.CheckKey(at) != nil || engine.CheckKey(item) != nil || !strings.HasPrefix(at.Sort, q.Prefix) {
		return nil, fairlead.Invalid(fairlead.CodeBadCursor, "the cursor is not from this list")
	}
	in.ExclusiveStartKey = keyOf(item)
	in.ExclusiveStartKey[s.partition], in.ExclusiveStartKey[s.sort] = text(at.Partition), text(at.Sort)
	return in, nil
}

// bodies returns the sum of the sizes of the bodies in bytes. Index entries have no body.
func bodies(items []attributes) int {
	n := 0
	for _, a := range items {
		if b, ok := a[AttrBody].(*types.AttributeValueMemberB); ok {
			n += len(b.Value)
		}
	}
	return n
}

// nextOf returns DynamoDB's cursor as text, without the partition, because the query
// contains the partition.
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

// fetch reads the items of index entries from the table. It returns each item once, in the
// order of the entries, and omits items that no longer exist. The result read is the number
// of entries that fetch processed: all entries, or as many as pageBytes allows.
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
			// If an item moved in the index between two responses, both responses can
			// contain it. DynamoDB refuses a batch that has the same key twice.
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

// fetchBatch reads the items at keys, at most maxBatch. DynamoDB can leave keys unprocessed
// for two reasons: all items would exceed 16 MB, or DynamoDB throttles. If a response
// processed some keys, fetchBatch sends the next request at once. If a response processed no
// key, fetchBatch waits first.
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
				Message: fmt.Sprintf("DynamoDB returned none of %d items in %d attempts", len(left), idle),
				Hint:    "Repeat the request in a while.",
			}
		}
		if err := retry.Sleep(ctx, delay(idle)); err != nil {
			return nil, err
		}
	}
	return found, nil
}
