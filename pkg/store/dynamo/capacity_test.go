package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// bill requests the consumed capacity of each call from the server, and sums it in units.
type bill struct{ units enginetest.Units }

func (b *bill) ask(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("capacity", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		const indexes = types.ReturnConsumedCapacityIndexes
		switch p := in.Parameters.(type) {
		case *dynamodb.GetItemInput:
			p.ReturnConsumedCapacity = indexes
		case *dynamodb.BatchGetItemInput:
			p.ReturnConsumedCapacity = indexes
		case *dynamodb.QueryInput:
			p.ReturnConsumedCapacity = indexes
		case *dynamodb.PutItemInput:
			p.ReturnConsumedCapacity = indexes
		case *dynamodb.UpdateItemInput:
			p.ReturnConsumedCapacity = indexes
		case *dynamodb.DeleteItemInput:
			p.ReturnConsumedCapacity = indexes
		}
		out, meta, err := next.HandleInitialize(ctx, in)
		switch r := out.Result.(type) {
		case *dynamodb.GetItemOutput:
			b.read(r.ConsumedCapacity)
		case *dynamodb.BatchGetItemOutput:
			for _, c := range r.ConsumedCapacity {
				b.read(&c)
			}
		case *dynamodb.QueryOutput:
			b.read(r.ConsumedCapacity)
		case *dynamodb.PutItemOutput:
			b.write(r.ConsumedCapacity)
		case *dynamodb.UpdateItemOutput:
			b.write(r.ConsumedCapacity)
		case *dynamodb.DeleteItemOutput:
			b.write(r.ConsumedCapacity)
		}
		return out, meta, err
	}), middleware.After)
}

func (b *bill) read(c *types.ConsumedCapacity) {
	if c != nil {
		b.units.Read += *c.CapacityUnits
	}
}

func (b *bill) write(c *types.ConsumedCapacity) {
	if c == nil {
		return
	}
	if c.Table != nil {
		b.units.TableWrite += *c.Table.CapacityUnits
	}
	for _, i := range c.GlobalSecondaryIndexes {
		b.units.IndexWrite += *i.CapacityUnits
	}
}

// The test compares the meter with the capacity that a server reports for the same calls.
// It omits calls for which DynamoDB Local reports another capacity than the service.
// DynamoDB Local doubles the cost of a transaction twice. It charges one unit for a check
// of an item of any size. It charges nothing for an empty query.
func TestMeterAgreesWithTheServer(t *testing.T) {
	cfg, name := table(t)
	var b bill
	cfg.APIOptions = append(cfg.APIOptions, b.ask)
	server, meter := dynamo.New(cfg, name), enginetest.Meter(enginetest.Memory())

	both := func(what string, call func(engine.Engine) error) {
		t.Helper()
		b.units = enginetest.Units{}
		meter.Reset()
		for _, e := range []engine.Engine{server, meter} {
			if err := call(e); err != nil && !errors.Is(err, engine.ErrNotFound) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		got := meter.Total()
		got.Calls = 0
		if got != b.units {
			t.Errorf("%s: the meter counts %+v, the server %+v", what, got, b.units)
		}
	}
	k := engine.Key{Partition: "p", Sort: "s"}
	l1, l2 := &engine.Key{Partition: "l", Sort: "1"}, &engine.Key{Partition: "l", Sort: "2"}
	put := func(size int, list, due *engine.Key, cond engine.Precondition) engine.Write {
		return engine.Write{Item: engine.Item{Key: k, Body: make([]byte, size), List: list, Due: due}, If: cond}
	}
	for i, c := range []struct {
		what  string
		write engine.Write
	}{
		{"a small item", put(10, nil, nil, engine.Absent())},
		{"one byte below 1 KB", put(1007, nil, nil, engine.Version(1))},
		{"exactly 1 KB", put(1008, nil, nil, engine.Version(2))},
		{"one byte above 1 KB", put(1009, nil, nil, engine.Version(3))},
		{"a small item over a large one", put(10, nil, nil, engine.Version(4))},
		{"added to an index", put(10, l1, nil, engine.Any())},
		{"moved in one index, added to the other", put(10, l2, l1, engine.Any())},
		{"unchanged in both indexes", put(11, l2, l1, engine.Any())},
		{"unchanged in both indexes, with a version", put(12, l2, l1, engine.Version(8))},
		{"removed from one index", put(12, nil, l1, engine.Version(9))},
		{"removed from the other index", put(12, nil, nil, engine.Any())},
		{"added to both indexes", put(12, l1, l1, engine.Any())},
		{"a check", engine.Write{Op: engine.Check, Item: engine.Item{Key: k}, If: engine.Version(12)}},
	} {
		both(c.what, func(e engine.Engine) error { return e.Commit(t.Context(), fmt.Sprintf("token%02d", i), c.write) })
	}
	for _, size := range []int{4000, 4060, 4061, 4062, 4063, 4064, 4065, 4066, 4067, 4068, 4096, 9000} {
		both(fmt.Sprintf("write of %d bytes", size), func(e engine.Engine) error {
			return e.Commit(t.Context(), "token", put(size, l1, l1, engine.Any()))
		})
		both(fmt.Sprintf("get of %d bytes", size), func(e engine.Engine) error { _, err := e.Get(t.Context(), k); return err })
		for _, q := range []engine.Query{{Partition: "p"}, {Index: engine.List, Partition: "l"}, {Index: engine.Due, Partition: "l"}} {
			both(fmt.Sprintf("query %+v of %d bytes", q, size), func(e engine.Engine) error { _, err := e.Query(t.Context(), q); return err })
		}
	}
	both("get of a missing item", func(e engine.Engine) error {
		_, err := e.Get(t.Context(), engine.Key{Partition: "p", Sort: "none"})
		return err
	})
	both("delete", func(e engine.Engine) error {
		return e.Commit(t.Context(), "token", engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: engine.Any()})
	})
}
