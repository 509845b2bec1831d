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

// GroupOptions are the settings of the installs' log groups.
type GroupOptions struct {
	Prefix     string // start of the groups' names; the id of the install follows
	Days       int    // number of days for which events are stored; CloudWatch accepts only some numbers
	Subscriber string // ARN of the function or stream that gets all events
}

// Groups creates and removes the log groups of installs. Safe for concurrent use.
type Groups struct {
	client  *cloudwatchlogs.Client
	options GroupOptions
}

// NewGroups returns Groups with the options o. It sends no request.
func NewGroups(cfg aws.Config, o GroupOptions) (*Groups, error) {
	if o.Prefix == "" || o.Days < 1 || o.Subscriber == "" {
		return nil, fairlead.Invalid(fairlead.CodeInvalidLogOptions, "the options of log groups need a prefix, a retention in days and a subscriber")
	}
	return &Groups{options: o, client: cloudwatchlogs.NewFromConfig(awsapi.Bound(cfg, attemptTimeout))}, nil
}

// filterName is the name of a group's only subscription.
const filterName = "fairlead"

// Make creates the install's group with its retention and its subscription. If the group
// already exists, Make changes it to these settings.
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

// Remove deletes the install's group with all its events. A missing group is no error.
func (g *Groups) Remove(ctx context.Context, install fairlead.InstallID) error {
	name := g.options.Prefix + string(install)
	_, err := g.client.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &name})
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
		return nil
	}
	return awsapi.Classify(ctx, "CloudWatch Logs", "remove log group "+name, err)
}
