package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// alarm is a condition that a person must look at.
type alarm struct {
	id, what    string // the meaning, and the first thing to do
	namespace   string
	metric      string
	dimensions  map[string]string
	statistic   string // or a percentile, such as "p99"
	above       float64
	below       bool // alarm if the value is below the limit instead
	periods     float64
	period      float64 // in seconds
	missingData string  // what missing data means; "" is "notBreaching"
}

func (b *builder) alarmList() []alarm {
	list := []alarm{
		{id: "APIErrors", what: "The API answers with server errors: look at the functions' logs.", namespace: "AWS/ApiGateway", metric: "5xx",
			dimensions: map[string]string{"ApiId": *b.api.Ref()}, statistic: "Sum", above: 5, periods: 3, period: 60},
		{id: "DispatchBehind", what: "The table's stream is not dispatched: wake-ups come from the sweep alone.", namespace: "AWS/Lambda", metric: "IteratorAge",
			dimensions: map[string]string{"FunctionName": b.name + "-dispatch"}, statistic: "Maximum", above: 60_000, periods: 3, period: 60},
		{id: "SweepMissing", what: "The sweep runs less often than every 12 s, or not at all: lost jobs and runners are noticed late, or never. Look at its queue and its schedule.", namespace: "AWS/Lambda", metric: "Invocations",
			dimensions: map[string]string{"FunctionName": b.name + "-sweep"}, statistic: "Sum", above: 4, below: true, periods: 3, period: 60, missingData: "breaching"},
		{id: "WebhooksBehind", what: "Webhooks are not delivered: look at the webhook function's log.", namespace: "AWS/SQS", metric: "ApproximateAgeOfOldestMessage",
			dimensions: map[string]string{"QueueName": *b.webhooks.AttrQueueName()}, statistic: "Maximum", above: 3600, periods: 1, period: 300},
	}
	list = append(list, b.throttles()...)
	for _, name := range Functions {
		f := map[string]string{"FunctionName": b.name + "-" + name}
		list = append(list,
			alarm{id: titles[name] + "Errors", what: "The function " + name + " fails: look at its log.", namespace: "AWS/Lambda", metric: "Errors", dimensions: f,
				statistic: "Sum", above: 5, periods: 3, period: 60},
			alarm{id: titles[name] + "Throttles", what: "Lambda refuses to run " + name + ": the account's concurrency is used up.", namespace: "AWS/Lambda", metric: "Throttles", dimensions: f,
				statistic: "Sum", above: 5, periods: 3, period: 60})
	}
	for _, name := range []string{"Dispatch", "Sweep", "LogIndex", "Webhook"} {
		list = append(list, alarm{id: name + "DeadLetter", what: "The function " + strings.ToLower(name) + " gave up a message: read its log, fix the cause, then run fairlead ops replay.",
			namespace: "AWS/SQS", metric: "ApproximateNumberOfMessagesVisible", dimensions: map[string]string{"QueueName": *b.deadLetters[name].AttrQueueName()},
			statistic: "Maximum", above: 0, periods: 1, period: 60})
	}
	return list
}

// throttles returns the alarms for requests that DynamoDB refuses. DynamoDB counts
// them separately for the table and each index, and for reads and writes. The metric
// The metric ThrottledRequests is not usable here, because it always has an
// operation as dimension.
func (b *builder) throttles() (list []alarm) {
	for _, of := range []struct{ id, what, table, index string }{
		{"Table", "of the table", *b.table.Ref(), ""},
		{"ListIndex", "of the table's index " + dynamo.IndexList, *b.table.Ref(), dynamo.IndexList},
		{"DueIndex", "of the table's index " + dynamo.IndexDue, *b.table.Ref(), dynamo.IndexDue},
		{"LogTable", "of the table of logs", *b.logTable.Ref(), ""},
		{"Cancels", "of the table of cancel markers", *b.cancels.Ref(), ""},
	} {
		dimensions := map[string]string{"TableName": of.table}
		if of.index != "" {
			dimensions["GlobalSecondaryIndexName"] = of.index
		}
		for _, kind := range []struct{ id, verb string }{{"Read", "reads"}, {"Write", "writes"}} {
			list = append(list, alarm{id: of.id + kind.id + "Throttles", what: "DynamoDB refuses " + kind.verb + " " + of.what + ": a partition is hot, or the account's limit is reached.",
				namespace: "AWS/DynamoDB", metric: kind.id + "ThrottleEvents", dimensions: dimensions, statistic: "Sum", above: 10, periods: 3, period: 60})
		}
	}
	return list
}

// watch makes the alarms, their topic, and the dashboard.
func (b *builder) watch() {
	topic := awssns.NewCfnTopic(b.stack, jsii.String("Alarms"), &awssns.CfnTopicProps{
		DisplayName: jsii.String(b.name + " alarms"),
	})
	b.alarms = topic.Ref()
	awssns.NewCfnTopicPolicy(b.stack, jsii.String("AlarmsPolicy"), &awssns.CfnTopicPolicyProps{
		Topics: &[]*string{topic.Ref()},
		PolicyDocument: policy.Document(
			policy.Statement{Sid: "Alarms", Principal: policy.Service("cloudwatch.amazonaws.com"), Actions: []string{"sns:Publish"}, Resources: []string{*topic.Ref()},
				Conditions: map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}}},
			policy.Statement{Sid: "OnlyTLS", Deny: true, AnyPrincipal: true, Actions: []string{"sns:Publish"}, Resources: []string{*topic.Ref()},
				Conditions: map[string]map[string]any{"Bool": {"aws:SecureTransport": "false"}}}),
	})
	b.only(ParameterAlarmEmail, awssns.NewCfnSubscription(b.stack, jsii.String("AlarmsByMail"), &awssns.CfnSubscriptionProps{
		TopicArn: topic.Ref(), Protocol: jsii.String("email"), Endpoint: jsii.String(b.parameters[ParameterAlarmEmail].value),
	}))
	for _, a := range b.alarmList() {
		props := &awscloudwatch.CfnAlarmProps{
			AlarmName: jsii.String(b.name + "-" + a.id), AlarmDescription: jsii.String(a.what),
			Namespace: jsii.String(a.namespace), MetricName: jsii.String(a.metric), Statistic: jsii.String(a.statistic),
			Threshold: jsii.Number(a.above), ComparisonOperator: jsii.String("GreaterThanThreshold"),
			EvaluationPeriods: jsii.Number(a.periods), Period: jsii.Number(a.period), TreatMissingData: jsii.String("notBreaching"),
			AlarmActions: &[]any{topic.Ref()}, OkActions: &[]any{topic.Ref()},
		}
		if a.below {
			props.ComparisonOperator = jsii.String("LessThanThreshold")
		}
		if a.missingData != "" {
			props.TreatMissingData = jsii.String(a.missingData)
		}
		var dimensions []*awscloudwatch.CfnAlarm_DimensionProperty
		for _, name := range slices.Sorted(maps.Keys(a.dimensions)) { // sorted, for the same template each time
			dimensions = append(dimensions, &awscloudwatch.CfnAlarm_DimensionProperty{Name: jsii.String(name), Value: jsii.String(a.dimensions[name])})
		}
		props.Dimensions = dimensions
		awscloudwatch.NewCfnAlarm(b.stack, jsii.String(a.id+"Alarm"), props)
	}
	awscloudwatch.NewCfnDashboard(b.stack, jsii.String("Dashboard"), &awscloudwatch.CfnDashboardProps{
		DashboardName: jsii.String(b.name), DashboardBody: jsii.String(b.dashboard()),
	})
}

// dashboard returns the body of the dashboard for a person on call: requests,
// functions, the table, and waiting messages.
func (b *builder) dashboard() string {
	type metrics = [][]any
	var widgets []map[string]any
	add := func(title, stat string, m metrics) {
		n := len(widgets)
		widgets = append(widgets, map[string]any{
			"type": "metric", "x": n % 3 * 8, "y": n / 3 * 6, "width": 8, "height": 6,
			"properties": map[string]any{"title": title, "region": b.region, "stat": stat, "period": 60, "metrics": m},
		})
	}
	perFunction := func(metric string) (m metrics) {
		for _, name := range Functions {
			m = append(m, []any{"AWS/Lambda", metric, "FunctionName", b.name + "-" + name, map[string]any{"label": name}})
		}
		return m
	}
	api := func(names ...string) (m metrics) {
		for _, name := range names {
			m = append(m, []any{"AWS/ApiGateway", name, "ApiId", *b.api.Ref()})
		}
		return m
	}
	add("Requests", "Sum", api("Count", "4xx", "5xx"))
	add("Latency of the API, p99, ms", "p99", api("Latency", "IntegrationLatency"))
	add("Table: units used", "Sum", metrics{
		{"AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", *b.table.Ref()},
		{"AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName", *b.table.Ref()},
	})
	add("Invocations", "Sum", perFunction("Invocations"))
	add("Duration, p99, ms", "p99", perFunction("Duration"))
	add("Errors", "Sum", perFunction("Errors"))
	add("Throttles", "Sum", perFunction("Throttles"))
	add("Stream: age of what is dispatched, ms", "Maximum", metrics{{"AWS/Lambda", "IteratorAge", "FunctionName", b.name + "-dispatch"}})
	waiting := metrics{{"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", *b.webhooks.AttrQueueName(), map[string]any{"label": "webhooks"}}}
	for _, name := range []string{"Dispatch", "Sweep", "LogIndex", "Webhook"} {
		waiting = append(waiting, []any{"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", *b.deadLetters[name].AttrQueueName(),
			map[string]any{"label": fmt.Sprintf("given up: %s", name)}})
	}
	add("What waits", "Maximum", waiting)
	body, err := json.Marshal(map[string]any{"widgets": widgets})
	if err != nil {
		panic(fmt.Sprintf("the dashboard cannot be encoded: %v", err)) // it is made of strings and numbers
	}
	return string(body)
}
