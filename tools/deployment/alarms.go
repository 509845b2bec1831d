package deployment

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
)

// These errors stop a first deployment that does not say who gets alarms, or what the account may cost.
var (
	errNoAlarms = errors.New("nothing was done, because no address is set that gets alarms: set ALARM_EMAIL=ops@example.com, or ALARM_EMAIL=none if you watch the stack's alarms in another way")
	errNoBudget = errors.New("nothing was done, because no monthly budget is set: set MONTHLY_BUDGET=500 for an alarm above 500 US dollars a month, or MONTHLY_BUDGET=none if you watch the cost in another way")
)

// undecided returns an error for each choice about alarms that neither this deployment nor an earlier one made. A stack that exists may
// have the defaults, for which the operator was not asked.
func (d *Deployment) undecided(s state) (open []error) {
	if created(s.status) {
		return nil
	}
	if d.AlarmEmail == "" && s.parameters["AlarmEmail"] == "" {
		open = append(open, errNoAlarms)
	}
	if d.Budget == "" && s.parameters["MonthlyBudget"] == "" {
		open = append(open, errNoBudget)
	}
	return open
}

// pending is the ARN that SNS gives a subscription that was not confirmed.
const pending = "PendingConfirmation"

// checkSubscription warns if alarms do not reach the address: SNS sends nothing to an address that has not confirmed, and
// a person can end the subscription with a link in each mail.
func (d *Deployment) checkSubscription(ctx context.Context, topic, address string) {
	if topic == "" || address == "" {
		return
	}
	state, err := d.subscription(ctx, topic, address)
	switch {
	case err != nil:
		d.say("Warning: it is not known whether %s has confirmed that it gets alarms: %v", address, err)
	case state == pending:
		d.say("Warning: alarms reach no one, because %s has not confirmed the subscription. Open the link in the mail from AWS Notifications. AWS removes the subscription if it is not confirmed within two days", address)
	case state == "":
		d.say("Warning: alarms reach no one, because the subscription of %s was removed. Deploy with ALARM_EMAIL=none, then with ALARM_EMAIL=%s: AWS sends another mail", address, address)
	}
}

// subscription returns the ARN of the address's subscription, or pending, or "" if there is none.
func (d *Deployment) subscription(ctx context.Context, topic, address string) (string, error) {
	pages := sns.NewListSubscriptionsByTopicPaginator(sns.NewFromConfig(d.Config), &sns.ListSubscriptionsByTopicInput{TopicArn: &topic})
	for pages.HasMorePages() {
		p, err := pages.NextPage(ctx)
		if err != nil {
			return "", fmt.Errorf("list the subscriptions of %s: %w", topic, err)
		}
		for _, s := range p.Subscriptions {
			if aws.ToString(s.Protocol) == "email" && aws.ToString(s.Endpoint) == address {
				return aws.ToString(s.SubscriptionArn), nil
			}
		}
	}
	return "", nil
}
