package dynamo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// maxBatch is the most keys of one BatchGetItem, by DynamoDB's limit.
const maxBatch = 100

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
	for {
		in.Limit = aws.Int32(int32(limit - len(found))) // at most MaxPage
		out, err := e.client.Query(ctx, in)
		if err != nil {
			return engine.Page{}, classify(ctx, op, err)
		}
		found = append(found, out.Items...)
		in.ExclusiveStartKey = out.LastEvaluatedKey
		if len(in.ExclusiveStartKey) == 0 || len(found) >= limit {
			break
		}
	}
	var page engine.Page
	if page.Next, err = nextOf(in.ExclusiveStartKey, s); err != nil {
		return engine.Page{}, fmt.Errorf("%s: %w", op, err)
	}
	if q.Index != engine.Table {
		if found, err = e.fetch(ctx, found); err != nil {
			return engine.Page{}, classify(ctx, op, err)
		}
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
		ExpressionAttributeValues: attributes{":p": binary(q.Partition)},
	}
	if q.Prefix != "" {
		in.KeyConditionExpression = aws.String(s.partition + " = :p AND begins_with(" + s.sort + ", :prefix)")
		in.ExpressionAttributeValues[":prefix"] = binary(q.Prefix)
	}
	if q.After == "" {
		return in, nil
	}
	parts, err := engine.ReadCursor(q.After, len(s.cursor))
	if err != nil {
		return nil, err
	}
	// DynamoDB refuses a start that the query could not have reached.
	in.ExclusiveStartKey = attributes{s.partition: binary(q.Partition)}
	for i, name := range s.cursor {
		if parts[i] == "" || !strings.HasPrefix(parts[0], q.Prefix) {
			return nil, fairlead.Invalid("bad-cursor", "the cursor is one of another list")
		}
		in.ExclusiveStartKey[name] = binary(parts[i])
	}
	return in, nil
}

// nextOf packs DynamoDB's cursor. The partition is left out: it is the query's.
func nextOf(last attributes, s shape) (string, error) {
	if len(last) == 0 {
		return "", nil
	}
	d := decoder{a: last}
	var parts []string
	for _, name := range s.cursor {
		parts = append(parts, string(d.binary(name)))
	}
	return engine.WriteCursor(parts...), d.err
}

// fetch reads the items behind the entries of an index from the table, in the
// order of the entries and each once. Items that are gone are left out.
func (e *Engine) fetch(ctx context.Context, entries []attributes) ([]attributes, error) {
	var keys []attributes
	var order []engine.Key
	seen := make(map[engine.Key]bool)
	for _, entry := range entries {
		d := decoder{a: entry}
		k := engine.Key{Partition: string(d.binary(AttrPartition)), Sort: string(d.binary(AttrSort))}
		if d.err != nil {
			return nil, d.err
		}
		// An item that moved between two answers is in both, and a batch with
		// the same key twice is refused.
		if !seen[k] {
			seen[k] = true
			order = append(order, k)
			keys = append(keys, keyOf(k))
		}
	}
	found := make(map[engine.Key]attributes, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), maxBatch)
		if err := e.fetchBatch(ctx, keys[:n], found); err != nil {
			return nil, err
		}
		keys = keys[n:]
	}
	var items []attributes
	for _, k := range order {
		if a, ok := found[k]; ok {
			items = append(items, a)
		}
	}
	return items, nil
}

// fetchBatch reads the items at keys into found. DynamoDB leaves keys
// unprocessed when an answer would pass 16 MB, which is worth asking again at
// once, and when it throttles, which is not.
func (e *Engine) fetchBatch(ctx context.Context, keys []attributes, found map[engine.Key]attributes) error {
	for idle := 0; len(keys) > 0; {
		out, err := e.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{
				e.table: {Keys: keys, ConsistentRead: aws.Bool(true)},
			},
		})
		if err != nil {
			return err
		}
		for _, a := range out.Responses[e.table] {
			d := decoder{a: a}
			k := engine.Key{Partition: string(d.binary(AttrPartition)), Sort: string(d.binary(AttrSort))}
			if d.err != nil {
				return d.err
			}
			found[k] = a
		}
		left := out.UnprocessedKeys[e.table].Keys
		if len(left) < len(keys) {
			idle = 0
		} else if idle++; idle >= maxAttempts {
			return &fairlead.Error{
				Kind: fairlead.KindUnavailable, Code: "store-unavailable",
				Message: fmt.Sprintf("DynamoDB left %d items unread %d times", len(left), idle),
				Hint:    "Repeat the request in a while.",
			}
		}
		keys = left
		if idle > 0 {
			if err := wait(ctx, delay(idle)); err != nil {
				return err
			}
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
