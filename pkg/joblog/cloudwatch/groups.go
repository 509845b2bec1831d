package cloudwatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// GroupOptions says what the log groups of installs are like.
type GroupOptions struct {
	Prefix     string // of their names; an install's identifier follows
	Days       int    // that events are kept; one of the numbers that CloudWatch takes
	Subscriber string // ARN of what all events are delivered to
}

// Groups makes and removes the log groups of installs. Safe for concurrent
// use.
type Groups struct {
	client  *cloudwatchlogs.Client
	options GroupOptions
}

// NewGroups returns the groups that o describes. It sends nothing.
func NewGroups(cfg aws.Config, o GroupOptions) (*Groups, error) {
	if o.Prefix == "" || o.Days < 1 || o.Subscriber == "" {
		return nil, fairlead.Invalid(fairlead.CodeInvalidLogOptions, "log groups need a prefix, the days to keep events, and a subscriber")
	}
	return &Groups{options: o, client: cloudwatchlogs.NewFromConfig(awsapi.Bound(cfg, attemptTimeout))}, nil
}

// filterName is what the one subscription of a group is called.
const filterName = "fairlead"

// Make makes the install's group with its retention and its subscription. One
// that is there is brought to the same.
func (g *Groups) Make(ctx context.Context, install fairlead.InstallID) error {
	name := g.options.Prefix + string(install)
	op := "make log group " + name
	_, err := g.client.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name, Tags: map[string]string{"fairlead-install": string(install)}})
	if _, ok := errors.AsType[*types.ResourceAlreadyExistsException](err); err != nil && !ok {
		return awsapi.Classify(ctx, "CloudWatch Logs", op, err)
	}
	if _, err := g.client.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: &name, RetentionInDays: aws.Int32(int32(g.options.Days))}); err != nil {
		return awsapi.Classify(ctx, "CloudWatch Logs", op, err)
	}
	_, err = g.client.PutSubscriptionFilter(ctx, &cloudwatchlogs.PutSubscriptionFilterInput{LogGroupName: &name, FilterName: aws.String(filterName),
		FilterPattern: aws.String(""), DestinationArn: &g.options.Subscriber})
	if err != nil {
		return awsapi.Classify(ctx, "CloudWatch Logs", fmt.Sprintf("%s: subscribe %s", op, g.options.Subscriber), err)
	}
	return nil
}

// Remove removes the install's group with all that is in it. One that is gone
// is no error.
func (g *Groups) Remove(ctx context.Context, install fairlead.InstallID) error {
	name := g.options.Prefix + string(install)
	_, err := g.client.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &name})
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
		return nil
	}
	return awsapi.Classify(ctx, "CloudWatch Logs", "remove log group "+name, err)
}
