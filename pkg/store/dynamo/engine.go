// Package dynamo keeps the store's table in one DynamoDB table.
//
// Reads of the table are strongly consistent. An index of DynamoDB's lags, so a
// query of one takes only keys from it and reads the items from the table. A
// commit of one put is a single conditional request, which costs half of a
// transaction; a commit of several writes is a transaction.
package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Engine implements engine.Engine. Safe for concurrent use.
type Engine struct {
	client *dynamodb.Client
	table  string
}

var _ engine.Engine = (*Engine)(nil)

// attemptTimeout bounds one attempt of one request. DynamoDB answers within
// milliseconds; the largest requests, of 5 MB, go out in it at 5 Mbit/s.
const attemptTimeout = 10 * time.Second

// New returns an engine on the named table, which must have the schema of this
// package. It sends nothing. It replaces cfg's retries by its own, and bounds
// each attempt unless cfg has an HTTP client of another kind than the SDK's or
// one with a timeout.
func New(cfg aws.Config, table string) *Engine {
	if table == "" {
		panic("dynamo: no table is named")
	}
	retryer := newRetryer()
	return &Engine{
		client: dynamodb.NewFromConfig(awsapi.Bound(cfg, attemptTimeout), func(o *dynamodb.Options) {
			o.Retryer = retryer
			o.RetryMaxAttempts = 0 // or the environment's would wrap ours
		}),
		table: table,
	}
}

// Get implements engine.Engine.
func (e *Engine) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	if engine.CheckKey(k) != nil {
		return engine.Item{}, engine.ErrNotFound // DynamoDB would call the request invalid
	}
	out, err := e.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &e.table, Key: keyOf(k), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return engine.Item{}, classify(ctx, "get "+k.String(), err)
	}
	if len(out.Item) == 0 {
		return engine.Item{}, engine.ErrNotFound
	}
	return decode(out.Item)
}

// Commit implements engine.Engine.
func (e *Engine) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	if err := engine.CheckCommit(token, writes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	op := "commit at " + writes[0].Item.Key.String()
	var needed []engine.Write // a check of Any asks nothing
	for _, w := range writes {
		if w.Op != engine.Check || !w.If.IsAny() {
			needed = append(needed, w)
		}
	}
	var failed []failure
	var err error
	switch {
	case len(needed) == 0:
		return nil
	case len(needed) == 1 && !leavesNoTrace(needed[0]):
		failed, err = e.commitOne(ctx, token, needed[0])
	default:
		failed, err = e.transact(ctx, token, needed)
	}
	if err != nil {
		return classify(ctx, op, err)
	}
	if len(failed) == 0 {
		return nil
	}
	return e.conflict(ctx, token, writes, failed)
}

// leavesNoTrace reports whether the write, done by a request whose answer got
// lost, would look to the retry like one that somebody else did: a conditional
// delete finds the item gone. A put finds its token on the item, a delete with
// Any minds nothing. In a transaction DynamoDB knows the token.
func leavesNoTrace(w engine.Write) bool { return w.Op == engine.Delete && !w.If.IsAny() }

// failure is a write whose condition did not hold, and the item that was
// stored then, or nil.
type failure struct {
	write   engine.Write
	current attributes
}

// conflict returns nil if the commit has happened before, and else the
// conflict at the first of its writes that failed.
func (e *Engine) conflict(ctx context.Context, token string, writes []engine.Write, failed []failure) error {
	current := make(map[engine.Key]*engine.Item)
	for _, f := range failed {
		current[f.write.Item.Key] = nil
		if len(f.current) > 0 {
			it, err := decode(f.current)
			if err != nil {
				return err
			}
			current[it.Key] = &it
		}
		// Most conflicts are seen to be no repeat here, without another read.
		if it := current[f.write.Item.Key]; f.write.Op == engine.Put && (it == nil || it.Token != token) {
			return conflictAt(failed[0].write, current)
		}
	}
	again, err := engine.Repeated(token, writes, func(k engine.Key) (string, error) {
		it, known := current[k]
		if !known {
			got, err := e.Get(ctx, k)
			if err != nil && !errors.Is(err, engine.ErrNotFound) {
				return "", err
			}
			it = &got
		}
		if it == nil {
			return "", nil
		}
		return it.Token, nil
	})
	if again || err != nil {
		return err
	}
	return conflictAt(failed[0].write, current)
}

func conflictAt(w engine.Write, current map[engine.Key]*engine.Item) error {
	return &engine.ConflictError{Key: w.Item.Key, If: w.If, Current: current[w.Item.Key]}
}

// conditionFailed returns the item behind a failed condition of a single
// request. The item is empty when there is none.
func conditionFailed(err error) (attributes, bool) {
	c, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, false
	}
	return c.Item, true
}
