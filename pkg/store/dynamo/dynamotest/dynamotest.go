// Package dynamotest creates the control plane's tables for tests. In an installation the
// infrastructure code creates them.
package dynamotest

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	logtable "github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// CreateTable creates an empty table with the schema of package dynamo, and waits until it
// is usable.
func CreateTable(ctx context.Context, cfg aws.Config, table string) error {
	in := definition(table)
	in.StreamSpecification = &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: dynamo.StreamView}
	if err := create(ctx, cfg, in); err != nil {
		return err
	}
	return expire(ctx, cfg, table, dynamo.AttrExpires)
}

// Restore creates a table with the items that the table from has now, as DynamoDB restores a
// backup: without a stream and without time to live. The new table is where cfg is, which may be
// another Region than that of source.
func Restore(ctx context.Context, source aws.Config, from string, cfg aws.Config, table string) error {
	if err := create(ctx, cfg, definition(table)); err != nil {
		return err
	}
	client := dynamodb.NewFromConfig(cfg)
	pages := dynamodb.NewScanPaginator(dynamodb.NewFromConfig(source), &dynamodb.ScanInput{TableName: &from, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("read table %s: %w", from, err)
		}
		for _, item := range page.Items {
			if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
				return fmt.Errorf("restore table %s: %w", table, err)
			}
		}
	}
	return nil
}

func definition(table string) *dynamodb.CreateTableInput {
	index := func(name, partition, sort string) types.GlobalSecondaryIndex {
		return types.GlobalSecondaryIndex{
			IndexName:  aws.String(name),
			KeySchema:  keys(partition, sort),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}
	}
	return &dynamodb.CreateTableInput{
		TableName: aws.String(table),
		AttributeDefinitions: texts(dynamo.AttrPartition, dynamo.AttrSort,
			dynamo.AttrListPartition, dynamo.AttrListSort, dynamo.AttrDuePartition, dynamo.AttrDueSort),
		KeySchema: keys(dynamo.AttrPartition, dynamo.AttrSort),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			index(dynamo.IndexList, dynamo.AttrListPartition, dynamo.AttrListSort),
			index(dynamo.IndexDue, dynamo.AttrDuePartition, dynamo.AttrDueSort),
		},
	}
}

// expire makes DynamoDB remove the items whose time to live, in the attribute, is over.
func expire(ctx context.Context, cfg aws.Config, table, attribute string) error {
	_, err := dynamodb.NewFromConfig(cfg).UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               aws.String(table),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attribute), Enabled: aws.Bool(true)},
	})
	if err != nil {
		return fmt.Errorf("set time to live of table %s: %w", table, err)
	}
	return nil
}

// CreateLogTable creates an empty table with the schema of pkg/joblog/dynamo, and waits
// until it is usable.
func CreateLogTable(ctx context.Context, cfg aws.Config, table string) error {
	err := create(ctx, cfg, &dynamodb.CreateTableInput{
		TableName: aws.String(table), AttributeDefinitions: texts("pk", "sk"), KeySchema: keys("pk", "sk"),
	})
	if err != nil {
		return err
	}
	return expire(ctx, cfg, table, logtable.AttrExpires)
}

// ExpireLog removes the pieces of a job's logs from the table, as DynamoDB does after their time to live, and returns their
// number. DynamoDB Local removes expired items only after minutes.
func ExpireLog(ctx context.Context, cfg aws.Config, table, job string) (int, error) {
	client := dynamodb.NewFromConfig(cfg)
	out, err := client.Query(ctx, &dynamodb.QueryInput{TableName: &table, KeyConditionExpression: aws.String("pk = :j AND begins_with(sk, :c)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":j": &types.AttributeValueMemberS{Value: job}, ":c": &types.AttributeValueMemberS{Value: "c#"}}})
	if err != nil {
		return 0, fmt.Errorf("list the log of %s: %w", job, err)
	}
	for _, it := range out.Items {
		if _, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table, Key: map[string]types.AttributeValue{"pk": it["pk"], "sk": it["sk"]}}); err != nil {
			return 0, fmt.Errorf("remove a piece of the log of %s: %w", job, err)
		}
	}
	return len(out.Items), nil
}

// CreateCancelTable creates an empty table of cancel markers, and waits until it is usable.
func CreateCancelTable(ctx context.Context, cfg aws.Config, table string) error {
	return create(ctx, cfg, &dynamodb.CreateTableInput{
		TableName: aws.String(table), AttributeDefinitions: texts(cancelmark.AttrAttempt), KeySchema: keys(cancelmark.AttrAttempt, "")[:1],
	})
}

func create(ctx context.Context, cfg aws.Config, in *dynamodb.CreateTableInput) error {
	client := dynamodb.NewFromConfig(cfg)
	in.BillingMode = types.BillingModePayPerRequest
	if _, err := client.CreateTable(ctx, in); err != nil {
		return fmt.Errorf("create table %s: %w", *in.TableName, err)
	}
	waiter := dynamodb.NewTableExistsWaiter(client)
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: in.TableName}, 5*time.Minute); err != nil {
		return fmt.Errorf("wait for table %s: %w", *in.TableName, err)
	}
	return nil
}

func keys(partition, sort string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: aws.String(partition), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String(sort), KeyType: types.KeyTypeRange},
	}
}

// texts returns definitions of attributes of type S.
func texts(names ...string) []types.AttributeDefinition {
	var all []types.AttributeDefinition
	for _, name := range names {
		all = append(all, types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS})
	}
	return all
}
