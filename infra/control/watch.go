package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsbudgets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
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
	rollsBack   bool    // the action is the rollback of a release; a person gets no message
	only        string  // the parameter without which the alarm does not exist; "": it always exists
}

func (b *builder) alarmList() []alarm {
	list := []alarm{
		{id: "APIErrors", what: "The API answers with server errors: look at the functions' logs.", namespace: "AWS/ApiGateway", metric: "5xx",
			dimensions: map[string]string{"ApiId": *b.api.Ref()}, statistic: "Sum", above: 5, periods: 3, period: 60},
		{id: "DispatchBehind", what: "The table's stream is not dispatched: wake-ups come from the sweep alone.", namespace: "AWS/Lambda", metric: "IteratorAge",
			dimensions: map[string]string{"FunctionName": b.name + "-dispatch"}, statistic: "Maximum", above: 60_000, periods: 3, period: 60},
		{id: "AuditBehind", what: "The audit has no entries of the last quarter of an hour: look at the log of the function audit. The stream loses a record after a day.", namespace: "AWS/Lambda", metric: "IteratorAge",
			dimensions: map[string]string{"FunctionName": b.name + "-audit"}, statistic: "Maximum", above: 900_000, periods: 3, period: 60},
		{id: "SweepMissing", what: "The sweep runs less often than every 12 s, or not at all: lost jobs and runners are noticed late, or never. Look at its queue and its schedule.", namespace: "AWS/Lambda", metric: "Invocations",
			dimensions: map[string]string{"FunctionName": b.name + "-sweep"}, statistic: "Sum", above: 4, below: true, periods: 3, period: 60, missingData: "breaching"},
		{id: "WebhooksBehind", what: "Webhooks are not delivered: look at the webhook function's log.", namespace: "AWS/SQS", metric: "ApproximateAgeOfOldestMessage",
			dimensions: map[string]string{"QueueName": *b.webhooks.AttrQueueName()}, statistic: "Maximum", above: 3600, periods: 1, period: 300},
	}
	for _, m := range b.metrics() {
		m.alarm.namespace, m.alarm.metric = b.metricNamespace(), m.alarm.id
		list = append(list, m.alarm)
	}
	list = append(list, b.throttles()...)
	list = append(list, b.copyAlarms()...)
	for _, name := range Functions {
		f := map[string]string{"FunctionName": b.name + "-" + name}
		list = append(list,
			alarm{id: titles[name] + "Errors", what: "The function " + name + " fails: look at its log.", namespace: "AWS/Lambda", metric: "Errors", dimensions: f,
				statistic: "Sum", above: 5, periods: 3, period: 60},
			alarm{id: titles[name] + "Throttles", what: "Lambda refuses to run " + name + ": the account's concurrency is used up.", namespace: "AWS/Lambda", metric: "Throttles", dimensions: f,
				statistic: "Sum", above: 5, periods: 3, period: 60})
		if !b.props.AllAtOnce {
			list = append(list, b.canaryAlarm(name))
		}
	}
	for _, name := range []string{"Dispatch", "Audit", "Sweep", "LogIndex", "Webhook"} {
		list = append(list, alarm{id: name + "DeadLetter", what: "The function " + strings.ToLower(name) + " gave up a message: read its log, fix the cause, then run fairlead ops replay.",
			namespace: "AWS/SQS", metric: "ApproximateNumberOfMessagesVisible", dimensions: map[string]string{"QueueName": *b.deadLetters[name].AttrQueueName()},
			statistic: "Maximum", above: 0, periods: 1, period: 60})
	}
	return list
}

// logMetric is a metric that CloudWatch takes from lines of a log: each line that matches the
// pattern has a value. Its alarm has the same name. CloudWatch bills it like a metric that a
// program sends, but the lines exist already and no request sends it.
type logMetric struct {
	alarm   alarm
	log     string // of a function, or "api" for the access log
	pattern string // CloudWatch's filter pattern of JSON lines
	value   string // the field with the value
}

// slow is the p99 of latency, in milliseconds, above which an API is slow. A function that starts
// needs less than a second.
const slow = 3000

// metrics returns the metrics that the stack takes from logs. The log of the sweep has one line
// for each sweep with the fields of control.Swept. The access log has one line for each request.
// The log of logindex has one line for each late delivery and for each archived job.
//
// Requests that wait on purpose are left out of the latency: a GET of the Control API can follow
// a log, and a claim or a warm step waits for a job. On AWS a renewal of a job does not wait.
func (b *builder) metrics() []logMetric {
	count := func(id, what, field string, atLeast int) logMetric {
		return logMetric{alarm: alarm{id: id, what: what, statistic: "Sum", above: float64(atLeast - 1), periods: 1, period: 300},
			log: "sweep", pattern: "{ $." + field + " > 0 }", value: "$." + field}
	}
	latency := func(id, of, pattern string) logMetric {
		return logMetric{alarm: alarm{id: id, what: "One of 100 " + of + " takes more than three seconds: look at the durations of the functions and at throttled tables.",
			statistic: "p99", above: slow, periods: 3, period: 300}, log: "api", pattern: pattern, value: "$.ms"}
	}
	return []logMetric{
		count("StuckJobs", "Jobs wait for an agent for more than ten minutes: fairlead job list shows them, with the reason.", "stuck", b.props.StuckJobs),
		count("LostRunners", "Runners turned lost: none of their agents sends heartbeats. fairlead runner list shows them.", "lost", b.props.LostRunners),
		count("RunnerDeadLetters", "Wake-ups in runners' queues were received too often and removed: look at the agents' logs.", "dead_letters", 1),
		{alarm: alarm{id: "LogsBehind", what: "Lines of jobs arrive more than a minute after they were written, so people follow logs late.", statistic: "Maximum", above: 60_000, periods: 3, period: 60},
			log: "logindex", pattern: "{ $.lag_ms > 0 }", value: "$.lag_ms"},
		{alarm: alarm{id: "LogsUndelivered", what: "CloudWatch Logs does not deliver the lines of a job: look at the subscription of the install's log group.", statistic: "Sum", above: 0, periods: 1, period: 300},
			log: "logindex", pattern: "{ $.undelivered > 0 }", value: "$.undelivered"},
		latency("ControlLatency", "writes to the Control API", `{ $.route = "ANY /v1/{proxy+}" && $.method != "GET" }`),
		latency("JobsLatency", "requests of running jobs", `{ $.route = "ANY /runner/v1/jobs/{proxy+}" }`),
		latency("SessionsLatency", "sessions of agents", `{ $.route = "ANY /runner/v1/sessions" }`),
	}
}

// metricNamespace is the namespace of the metrics that the stack takes from logs.
func (b *builder) metricNamespace() string { return "Fairlead/" + b.props.Stage }

// throttles returns the alarms for requests that DynamoDB refuses. DynamoDB counts
// them separately for the table and each index, and for reads and writes. The metric
// ThrottledRequests is not usable here, because it always has an
// operation as dimension.
func (b *builder) throttles() (list []alarm) {
	for _, of := range []struct{ id, what, table, index string }{
		{"Table", "of the table", b.served.name, ""},
		{"ListIndex", "of the table's index " + dynamo.IndexList, b.served.name, dynamo.IndexList},
		{"DueIndex", "of the table's index " + dynamo.IndexDue, b.served.name, dynamo.IndexDue},
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

// watch makes the alarms, their topic, and the dashboard. It returns the alarms by id.
func (b *builder) watch() map[string]awscloudwatch.CfnAlarm {
	alarms := map[string]awscloudwatch.CfnAlarm{}
	topic := awssns.NewCfnTopic(b.stack, jsii.String("Alarms"), &awssns.CfnTopicProps{
		DisplayName: jsii.String(b.name + " alarms"),
	})
	b.alarms = topic.Ref()
	awssns.NewCfnTopicPolicy(b.stack, jsii.String("AlarmsPolicy"), &awssns.CfnTopicPolicyProps{
		Topics: &[]*string{topic.Ref()},
		PolicyDocument: policy.Document(
			policy.Statement{Sid: "Alarms", Principal: policy.Service("cloudwatch.amazonaws.com"), Actions: []string{"sns:Publish"}, Resources: []string{*topic.Ref()},
				Conditions: map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}}},
			policy.Statement{Sid: "Spend", Principal: policy.Service("budgets.amazonaws.com"), Actions: []string{"sns:Publish"}, Resources: []string{*topic.Ref()},
				Conditions: map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}}},
			policy.Statement{Sid: "FailedCopies", When: *b.parameters[ParameterSpare].isSet.LogicalId(), Principal: policy.Service("events.amazonaws.com"), Actions: []string{"sns:Publish"}, Resources: []string{*topic.Ref()},
				Conditions: map[string]map[string]any{"ArnEquals": {"aws:SourceArn": []any{b.arn("events", "rule/"+b.failedCopies()), b.arn("events", "rule/"+b.lateCopies())}}}},
			policy.Statement{Sid: "OnlyTLS", Deny: true, AnyPrincipal: true, Actions: []string{"sns:Publish"}, Resources: []string{*topic.Ref()},
				Conditions: map[string]map[string]any{"Bool": {"aws:SecureTransport": "false"}}}),
	})
	b.only(ParameterAlarmEmail, awssns.NewCfnSubscription(b.stack, jsii.String("AlarmsByMail"), &awssns.CfnSubscriptionProps{
		TopicArn: topic.Ref(), Protocol: jsii.String("email"), Endpoint: jsii.String(b.parameters[ParameterAlarmEmail].value),
	}))
	for _, m := range b.metrics() {
		awslogs.NewCfnMetricFilter(b.stack, jsii.String(m.alarm.id+"Metric"), &awslogs.CfnMetricFilterProps{
			LogGroupName: b.logs[m.log], FilterPattern: jsii.String(m.pattern),
			MetricTransformations: []*awslogs.CfnMetricFilter_MetricTransformationProperty{
				{MetricNamespace: jsii.String(b.metricNamespace()), MetricName: jsii.String(m.alarm.id), MetricValue: jsii.String(m.value)}},
		})
	}
	b.budget(topic)
	for _, a := range b.alarmList() {
		actions := &[]any{topic.Ref()}
		if a.rollsBack {
			actions = nil
		}
		alarms[a.id] = b.alarm(a, actions)
		if a.only != "" {
			b.only(a.only, alarms[a.id])
		}
	}
	awscloudwatch.NewCfnDashboard(b.stack, jsii.String("Dashboard"), &awscloudwatch.CfnDashboardProps{
		DashboardName: jsii.String(b.name), DashboardBody: jsii.String(b.dashboard()),
	})
	return alarms
}

// alarm makes an alarm. actions are the topics of its messages; nil: it sends none.
func (b *builder) alarm(a alarm, actions *[]any) awscloudwatch.CfnAlarm {
	props := &awscloudwatch.CfnAlarmProps{
		AlarmName: jsii.String(b.name + "-" + a.id), AlarmDescription: jsii.String(a.what),
		Namespace: jsii.String(a.namespace), MetricName: jsii.String(a.metric), Statistic: jsii.String(a.statistic),
		Threshold: jsii.Number(a.above), ComparisonOperator: jsii.String("GreaterThanThreshold"),
		EvaluationPeriods: jsii.Number(a.periods), Period: jsii.Number(a.period), TreatMissingData: jsii.String("notBreaching"),
	}
	if actions != nil {
		props.AlarmActions, props.OkActions = actions, actions
	}
	if strings.HasPrefix(a.statistic, "p") { // CloudFormation has a property of its own for percentiles
		props.Statistic, props.ExtendedStatistic = nil, props.Statistic
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
	return awscloudwatch.NewCfnAlarm(b.stack, jsii.String(a.id+"Alarm"), props)
}

// budget makes the alarm for what the account costs. It is for the whole account and not for the
// stack's tag, because AWS Budgets sees a tag only if a person has activated it in the console of
// the paying account, and otherwise reports zero dollars.
func (b *builder) budget(topic awssns.CfnTopic) {
	var notifications []*awsbudgets.CfnBudget_NotificationWithSubscribersProperty
	for _, kind := range []string{"ACTUAL", "FORECASTED"} {
		notifications = append(notifications, &awsbudgets.CfnBudget_NotificationWithSubscribersProperty{
			Notification: &awsbudgets.CfnBudget_NotificationProperty{NotificationType: jsii.String(kind), ComparisonOperator: jsii.String("GREATER_THAN"),
				Threshold: jsii.Number(100), ThresholdType: jsii.String("PERCENTAGE")},
			Subscribers: []*awsbudgets.CfnBudget_SubscriberProperty{{SubscriptionType: jsii.String("SNS"), Address: topic.Ref()}},
		})
	}
	spend := awsbudgets.NewCfnBudget(b.stack, jsii.String("Spend"), &awsbudgets.CfnBudgetProps{
		Budget: &awsbudgets.CfnBudget_BudgetDataProperty{BudgetName: jsii.String(b.name + "-" + b.region + "-Spend"), BudgetType: jsii.String("COST"), TimeUnit: jsii.String("MONTHLY"),
			BudgetLimit: &awsbudgets.CfnBudget_SpendProperty{Amount: jsii.Number(1), Unit: jsii.String("USD")}},
		NotificationsWithSubscribers: notifications,
	})
	spend.AddPropertyOverride(jsii.String("Budget.BudgetLimit.Amount"), jsii.String(b.parameters[ParameterBudget].value))
	b.only(ParameterBudget, spend)
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
	add("Latency without requests that wait, p99, ms", "p99", metrics{
		{b.metricNamespace(), "ControlLatency"}, {b.metricNamespace(), "JobsLatency"}, {b.metricNamespace(), "SessionsLatency"},
	})
	add("Stuck jobs and lost runners", "Sum", metrics{{b.metricNamespace(), "StuckJobs"}, {b.metricNamespace(), "LostRunners"}})
	add("Logs: age of late lines and of what waits for Lambda, ms", "Maximum", metrics{
		{b.metricNamespace(), "LogsBehind"}, {"AWS/Lambda", "AsyncEventAge", "FunctionName", b.name + "-logindex"},
	})
	add("Table: units used", "Sum", metrics{
		{"AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", b.served.name},
		{"AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName", b.served.name},
	})
	add("Invocations", "Sum", perFunction("Invocations"))
	add("Duration, p99, ms", "p99", perFunction("Duration"))
	add("Errors", "Sum", perFunction("Errors"))
	add("Throttles", "Sum", perFunction("Throttles"))
	add("Stream: age of what is read, ms", "Maximum", metrics{
		{"AWS/Lambda", "IteratorAge", "FunctionName", b.name + "-dispatch"}, {"AWS/Lambda", "IteratorAge", "FunctionName", b.name + "-audit"},
	})
	waiting := metrics{{"AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", *b.webhooks.AttrQueueName(), map[string]any{"label": "webhooks"}}}
	for _, name := range []string{"Dispatch", "Audit", "Sweep", "LogIndex", "Webhook"} {
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
