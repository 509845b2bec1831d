// Package dynamo stores the table of the typed store in one DynamoDB table.
//
// Reads of the table are strongly consistent. A DynamoDB index lags, so a query of an index
// takes only keys from the index and reads the items from the table. A commit of one put is
// a single conditional request, which costs half as much as a transaction. A commit of
// several writes is a transaction.
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

// attemptTimeout limits one attempt of one request. DynamoDB answers within milliseconds.
// The largest request has 5 MB. A connection of 5 Mbit/s sends it within attemptTimeout.
const attemptTimeout = 10 * time.Second

// New returns an engine for the named table, which must have the schema of this package. New
// sends no request. The engine uses its own retries instead of those of cfg. It also limits
// the time of each attempt, with two exceptions: the HTTP client of cfg has a timeout, or
// its type is not the SDK's.
func New(cfg aws.Config, table string) *Engine {
	if table == "" {
		panic("dynamo: the table name is empty")
	}
	retryer := newRetryer()
	return &Engine{
		client: dynamodb.NewFromConfig(awsapi.Bound(cfg, attemptTimeout), func(o *dynamodb.Options) {
			o.Retryer = retryer
			o.RetryMaxAttempts = 0 // otherwise the SDK wraps our retries with the attempts set in the environment
		}),
		table: table,
	}
}

// Get implements engine.Engine.
func (e *Engine) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	if engine.CheckKey(k) != nil {
		return engine.Item{}, engine.ErrNotFound // DynamoDB would refuse such a key as invalid
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
	var needed []engine.Write // the writes without checks of Any, because Any always holds
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

// leavesNoTrace reports whether the write needs a transaction, because otherwise a lost
// response looks like a conflict. This is true for a conditional delete: its retry finds no
// item, as if another commit had deleted the item. In a transaction, DynamoDB recognises
// the token of the retry. Other writes need no transaction: a put finds its token on the
// item, and a delete with Any also succeeds without an item.
func leavesNoTrace(w engine.Write) bool { return w.Op == engine.Delete && !w.If.IsAny() }

// failure is a write whose condition did not hold. current is the item that was stored when
// DynamoDB checked the condition; it is empty if there was no item.
type failure struct {
	write   engine.Write
	current attributes
}

// conflict returns the conflict of the first write that failed. If this commit repeats a
// commit that already happened, conflict returns nil.
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
		// The item of this put does not have the commit's token, so the commit is not a
		// repeat. Most conflicts need no other read to find this.
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

// conditionFailed reports whether err means that the condition of a single request did not
// hold. It returns the stored item from err, or nil if there was no item.
func conditionFailed(err error) (attributes, bool) {
	c, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, false
	}
	return c.Item, true
}
