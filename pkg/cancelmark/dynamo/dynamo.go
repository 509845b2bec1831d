// Package dynamo keeps cancel markers in a DynamoDB table of their own, so that the sessions of
// runners need no access to the control plane's table. A marker is one item with a time to live.
//
// The role that writes markers needs dynamodb:PutItem on the table. A step reads its marker with
// package cancelwatch of the runner, which links no SDK.
package dynamo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/cancelmark"
)

// Table implements cancelmark.Marks. Safe for concurrent use.
type Table struct {
	client *dynamodb.Client
	name   string
	now    func() time.Time
}

var _ cancelmark.Marks = (*Table)(nil)

// attemptTimeout limits one attempt of a request. A person waits for the cancellation.
const attemptTimeout = 2 * time.Second

// New returns the table of markers with this name. It sends no request.
func New(cfg aws.Config, name string, now func() time.Time) *Table {
	return &Table{client: dynamodb.NewFromConfig(awsapi.Bound(cfg, attemptTimeout)), name: name, now: now}
}

// Put implements cancelmark.Marks.
func (t *Table) Put(ctx context.Context, a cancelmark.Attempt) error {
	expires := strconv.FormatInt(t.now().Add(cancelmark.Kept).Unix(), 10)
	_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &t.name, Item: map[string]types.AttributeValue{
		cancelmark.AttrAttempt: &types.AttributeValueMemberS{Value: a.Key()},
		cancelmark.AttrExpires: &types.AttributeValueMemberN{Value: expires},
	}})
	if err != nil {
		return fmt.Errorf("write the cancel marker of job %s: %w", a.Job, awsapi.Classify(ctx, "DynamoDB", "write to table "+t.name, err))
	}
	return nil
}

// Endpoint returns the URL of DynamoDB that the SDK uses with cfg.
func Endpoint(ctx context.Context, cfg aws.Config) (string, error) {
	o := dynamodb.NewFromConfig(cfg).Options()
	e, err := o.EndpointResolverV2.ResolveEndpoint(ctx, dynamodb.EndpointParameters{Region: &cfg.Region, Endpoint: o.BaseEndpoint})
	if err != nil {
		return "", fmt.Errorf("find the endpoint of DynamoDB in region %s: %w", cfg.Region, err)
	}
	return e.URI.String(), nil
}
