package dynamo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// RecoveryDays is the period of point-in-time recovery of a table: the maximum of DynamoDB.
const RecoveryDays = 35

// restoreTakes bounds the wait for one state of a table. A restore of a large table takes
// hours, so the caller repeats the call.
const restoreTakes = 10 * time.Minute

// Prepare gives a table that DynamoDB or AWS Backup restored what a restore leaves out:
// the stream, the time to live, point-in-time recovery and deletion protection. It
// waits until the table is usable, and returns the ARN of its stream. It refuses a table
// without the schema of this package. It is safe to repeat.
func Prepare(ctx context.Context, cfg aws.Config, table string) (stream string, err error) {
	p := preparation{client: dynamodb.NewFromConfig(awsapi.Bound(cfg, 30*time.Second)), table: table}
	d, err := p.usable(ctx)
	if err != nil {
		return "", err
	}
	if err := hasSchema(d); err != nil {
		return "", err
	}
	if s := d.StreamSpecification; s == nil || !aws.ToBool(s.StreamEnabled) {
		err = p.update(ctx, "enable the stream", &dynamodb.UpdateTableInput{StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: StreamView}})
	} else if s.StreamViewType != StreamView {
		err = unfit(table, fmt.Sprintf("its stream has the view %s, want %s", s.StreamViewType, StreamView))
	}
	if err == nil && !aws.ToBool(d.DeletionProtectionEnabled) {
		err = p.update(ctx, "protect it from deletion", &dynamodb.UpdateTableInput{DeletionProtectionEnabled: aws.Bool(true)})
	}
	if err != nil {
		return "", err
	}
	if err := p.expire(ctx); err != nil {
		return "", err
	}
	_, err = p.client.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{TableName: &table,
		PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true), RecoveryPeriodInDays: aws.Int32(RecoveryDays)}})
	if err != nil {
		return "", p.failed(ctx, "enable point-in-time recovery", err)
	}
	if d, err = p.usable(ctx); err != nil {
		return "", err
	}
	return aws.ToString(d.LatestStreamArn), nil
}

// preparation is one run of Prepare.
type preparation struct {
	client *dynamodb.Client
	table  string
}

func (p preparation) failed(ctx context.Context, what string, err error) error {
	return awsapi.Classify(ctx, "DynamoDB", what+": table "+p.table, err)
}

// usable waits until the table is active, and describes it. DynamoDB takes one change of a
// table at a time.
func (p preparation) usable(ctx context.Context) (*types.TableDescription, error) {
	in := &dynamodb.DescribeTableInput{TableName: &p.table}
	out, err := p.client.DescribeTable(ctx, in) // a missing table is an error at once; the waiter would wait for it
	if err == nil && out.Table.TableStatus != types.TableStatusActive {
		out, err = dynamodb.NewTableExistsWaiter(p.client).WaitForOutput(ctx, in, restoreTakes)
	}
	if err != nil {
		return nil, p.failed(ctx, "describe", err)
	}
	return out.Table, nil
}

func (p preparation) update(ctx context.Context, what string, in *dynamodb.UpdateTableInput) error {
	in.TableName = &p.table
	if _, err := p.client.UpdateTable(ctx, in); err != nil {
		return p.failed(ctx, what, err)
	}
	_, err := p.usable(ctx)
	return err
}

// expire makes DynamoDB delete expired items. DynamoDB refuses a setting that is set already.
func (p preparation) expire(ctx context.Context) error {
	now, err := p.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &p.table})
	if err != nil {
		return p.failed(ctx, "describe the time to live", err)
	}
	if t := now.TimeToLiveDescription; t != nil && (t.TimeToLiveStatus == types.TimeToLiveStatusEnabled || t.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
		return nil
	}
	_, err = p.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &p.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(AttrExpires), Enabled: aws.Bool(true)}})
	if err != nil {
		return p.failed(ctx, "set the time to live", err)
	}
	return nil
}

// hasSchema returns an error if the table lacks the key or an index. A restore can leave
// indexes out.
func hasSchema(d *types.TableDescription) error {
	table := aws.ToString(d.TableName)
	if !slices.Equal(keyNames(d.KeySchema), []string{AttrPartition, AttrSort}) {
		return unfit(table, fmt.Sprintf("its key is %v, want %s and %s", keyNames(d.KeySchema), AttrPartition, AttrSort))
	}
	for name, key := range map[string][]string{IndexList: {AttrListPartition, AttrListSort}, IndexDue: {AttrDuePartition, AttrDueSort}} {
		if !slices.ContainsFunc(d.GlobalSecondaryIndexes, func(i types.GlobalSecondaryIndexDescription) bool {
			return aws.ToString(i.IndexName) == name && slices.Equal(keyNames(i.KeySchema), key)
		}) {
			return unfit(table, "it has no index "+name)
		}
	}
	return nil
}

func unfit(table, why string) error {
	return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeRecordNotFound, Message: fmt.Sprintf("table %s is not the table of a control plane: %s", table, why),
		Hint: "Restore the backup of the control plane's main table, with all its indexes."}
}

// keyNames returns the attributes of a key: the partition key, then the sort key.
func keyNames(schema []types.KeySchemaElement) (names []string) {
	for _, e := range schema {
		names = append(names, aws.ToString(e.AttributeName))
	}
	return names
}
