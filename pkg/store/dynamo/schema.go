package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The table's schema, for whoever makes the table. All six key attributes are
// of type S (string): the console shows them, and takes them in a query, as
// people write them. Keys are UTF-8 by engine.CheckKey, and DynamoDB orders
// type S by the bytes of its UTF-8, so type B would gain nothing. Both indexes are global, project
// KEYS_ONLY, and hold only the items that have both of their attributes. Names
// are short because DynamoDB counts them into the size of every item.
const (
	AttrPartition = "pk" // string, partition key of the table
	AttrSort      = "sk" // string, sort key of the table

	IndexList         = "list" // global secondary index
	AttrListPartition = "lpk"  // string, its partition key
	AttrListSort      = "lsk"  // string, its sort key

	IndexDue         = "due" // global secondary index
	AttrDuePartition = "dpk" // string, its partition key
	AttrDueSort      = "dsk" // string, its sort key

	AttrVersion = "v" // number
	AttrToken   = "t" // string
	AttrBody    = "b" // binary
	AttrExpires = "x" // number, seconds since 1970: the table's time-to-live attribute
)

// StreamView is what a record of the table's stream holds. Without the old
// image a renewed lease looks like a job that has just started.
const StreamView = types.StreamViewTypeNewAndOldImages

// CreateTable makes an empty table of that schema, billed by request, and
// returns when it can be used. It is for tests and for development; production
// tables are made by infra.
func CreateTable(ctx context.Context, cfg aws.Config, table string) error {
	client := dynamodb.NewFromConfig(cfg)
	var attrs []types.AttributeDefinition
	for _, name := range []string{
		AttrPartition, AttrSort, AttrListPartition, AttrListSort, AttrDuePartition, AttrDueSort,
	} {
		attrs = append(attrs, types.AttributeDefinition{
			AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS,
		})
	}
	keys := func(partition, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: aws.String(partition), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(sort), KeyType: types.KeyTypeRange},
		}
	}
	index := func(name, partition, sort string) types.GlobalSecondaryIndex {
		return types.GlobalSecondaryIndex{
			IndexName:  aws.String(name),
			KeySchema:  keys(partition, sort),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}
	}
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            aws.String(table),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: attrs,
		KeySchema:            keys(AttrPartition, AttrSort),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			index(IndexList, AttrListPartition, AttrListSort),
			index(IndexDue, AttrDuePartition, AttrDueSort),
		},
		StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: StreamView},
	})
	if err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	waiter := dynamodb.NewTableExistsWaiter(client)
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table)}, 5*time.Minute); err != nil {
		return fmt.Errorf("wait for table %s: %w", table, err)
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: aws.String(table),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(AttrExpires), Enabled: aws.Bool(true),
		},
	})
	if err != nil {
		return fmt.Errorf("set time to live of table %s: %w", table, err)
	}
	return nil
}
