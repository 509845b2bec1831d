package dynamotest

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

// Units are request units of DynamoDB, as the server counted them.
type Units struct {
	Read, Write float64
	Calls       int
}

// Consumed adds up the units that the server reports for the calls of a client. Safe for concurrent use.
type Consumed struct {
	mu  sync.Mutex
	sum Units
}

// Units returns the sum since the last Reset.
func (c *Consumed) Units() Units {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// Reset sets the sum to zero.
func (c *Consumed) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum = Units{}
}

// Attach makes each call of a client ask for its units. Use it as one of aws.Config's APIOptions.
func (c *Consumed) Attach(s *middleware.Stack) error {
	return s.Initialize.Add(middleware.InitializeMiddlewareFunc("consumed", c.count), middleware.Before)
}

func (c *Consumed) count(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	const total = types.ReturnConsumedCapacityTotal
	writes := true
	switch p := in.Parameters.(type) {
	case *dynamodb.GetItemInput:
		p.ReturnConsumedCapacity, writes = total, false
	case *dynamodb.QueryInput:
		p.ReturnConsumedCapacity, writes = total, false
	case *dynamodb.PutItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.UpdateItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.DeleteItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.BatchWriteItemInput:
		p.ReturnConsumedCapacity = total
	case *dynamodb.TransactWriteItemsInput:
		p.ReturnConsumedCapacity = total
	}
	out, meta, err := next.HandleInitialize(ctx, in)
	var all []types.ConsumedCapacity
	add := func(one *types.ConsumedCapacity) {
		if one != nil {
			all = append(all, *one)
		}
	}
	switch r := out.Result.(type) {
	case *dynamodb.GetItemOutput:
		add(r.ConsumedCapacity)
	case *dynamodb.QueryOutput:
		add(r.ConsumedCapacity)
	case *dynamodb.PutItemOutput:
		add(r.ConsumedCapacity)
	case *dynamodb.UpdateItemOutput:
		add(r.ConsumedCapacity)
	case *dynamodb.DeleteItemOutput:
		add(r.ConsumedCapacity)
	case *dynamodb.BatchWriteItemOutput:
		all = r.ConsumedCapacity
	case *dynamodb.TransactWriteItemsOutput:
		all = r.ConsumedCapacity
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Calls++
	for _, one := range all {
		if units := aws.ToFloat64(one.CapacityUnits); writes {
			c.sum.Write += units
		} else {
			c.sum.Read += units
		}
	}
	return out, meta, err
}
