package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	plane "github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/tools/page"
)

// An alarm on a metric that does not exist never fires. The table has the metrics that
// AWS documents, each with exactly its dimensions, and the alarms on them.
func TestAlarmsUseExistingMetrics(t *testing.T) {
	want := map[string][]string{
		"AWS/ApiGateway 5xx [ApiId]": {"APIErrors"},
		"AWS/DynamoDB ReadThrottleEvents [GlobalSecondaryIndexName TableName]":       {"DueIndexReadThrottles", "ListIndexReadThrottles"},
		"AWS/DynamoDB ReadThrottleEvents [TableName]":                                {"CancelsReadThrottles", "LogTableReadThrottles", "TableReadThrottles"},
		"AWS/DynamoDB WriteThrottleEvents [GlobalSecondaryIndexName TableName]":      {"DueIndexWriteThrottles", "ListIndexWriteThrottles"},
		"AWS/DynamoDB WriteThrottleEvents [TableName]":                               {"CancelsWriteThrottles", "LogTableWriteThrottles", "TableWriteThrottles"},
		"Fairlead/STAGE ControlLatency []":                                           {"ControlLatency"},
		"Fairlead/STAGE JobsLatency []":                                              {"JobsLatency"},
		"Fairlead/STAGE LogsBehind []":                                               {"LogsBehind"},
		"Fairlead/STAGE LogsUndelivered []":                                          {"LogsUndelivered"},
		"Fairlead/STAGE LostRunners []":                                              {"LostRunners"},
		"Fairlead/STAGE RunnerDeadLetters []":                                        {"RunnerDeadLetters"},
		"Fairlead/STAGE SessionsLatency []":                                          {"SessionsLatency"},
		"Fairlead/STAGE StuckJobs []":                                                {"StuckJobs"},
		"AWS/Lambda Errors [ExecutedVersion FunctionName Resource]":                  {"AuditCanary", "ControlAPICanary", "DirectCanary", "DispatchCanary", "LogIndexCanary", "RunnerAPICanary", "SessionAPICanary", "SweepCanary", "WebhookCanary"},
		"AWS/Lambda Errors [FunctionName]":                                           {"AuditErrors", "ControlAPIErrors", "DirectErrors", "DispatchErrors", "LogIndexErrors", "RunnerAPIErrors", "SessionAPIErrors", "SweepErrors", "WebhookErrors"},
		"AWS/Lambda Invocations [FunctionName]":                                      {"SweepMissing"},
		"AWS/Lambda IteratorAge [FunctionName]":                                      {"AuditBehind", "DispatchBehind"},
		"AWS/Lambda Throttles [FunctionName]":                                        {"AuditThrottles", "ControlAPIThrottles", "DirectThrottles", "DispatchThrottles", "LogIndexThrottles", "RunnerAPIThrottles", "SessionAPIThrottles", "SweepThrottles", "WebhookThrottles"},
		"AWS/S3 OperationsFailedReplication [DestinationBucket RuleId SourceBucket]": {"BlobCopiesFail", "LogCopiesFail"},
		"AWS/S3 ReplicationLatency [DestinationBucket RuleId SourceBucket]":          {"BlobCopiesLate", "LogCopiesLate"},
		"AWS/SQS ApproximateAgeOfOldestMessage [QueueName]":                          {"WebhooksBehind"},
		"AWS/SQS ApproximateNumberOfMessagesVisible [QueueName]":                     {"AuditDeadLetter", "DispatchDeadLetter", "LogIndexDeadLetter", "SweepDeadLetter", "WebhookDeadLetter"},
	}
	got, n, own := map[string][]string{}, 0, 0
	s := stack(t)
	throttled := map[string]bool{} // names of tables and indexes with an alarm
	alarms := maps.Clone(s.Resources)
	maps.Copy(alarms, spareStack(t).Resources)
	for id, r := range alarms {
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		if !strings.HasPrefix(id, "Direct") && !strings.Contains(id, "Copies") { // exists only with direct launch, or with a spare Region
			n++
		}
		var names []string
		list, _ := r.Properties["Dimensions"].([]any)
		for _, d := range list {
			dimension := d.(map[string]any)
			names = append(names, fmt.Sprint(dimension["Name"]))
			if r.Properties["Namespace"] == "AWS/DynamoDB" {
				throttled[fmt.Sprint(dimension["Value"])] = true
			}
		}
		slices.Sort(names)
		metric := strings.Replace(fmt.Sprint(r.Properties["Namespace"], " ", r.Properties["MetricName"], " ", names), "Fairlead/test", "Fairlead/STAGE", 1)
		got[metric] = append(got[metric], strings.TrimSuffix(id, "Alarm"))
	}
	for metric, alarms := range got {
		slices.Sort(alarms)
		if !slices.Equal(alarms, want[metric]) {
			t.Errorf("%s has the alarms %q, want %q", metric, alarms, want[metric])
		}
	}
	for _, r := range s.Resources {
		if r.Type == "AWS::Logs::MetricFilter" {
			own++
		}
	}
	for metric, alarms := range want {
		if got[metric] == nil {
			t.Errorf("%s has no alarm, want %q", metric, alarms)
		}
	}
	for id, r := range s.Resources {
		if r.Type != "AWS::DynamoDB::Table" {
			continue
		}
		if !throttled[strings.ToLower(id)] {
			t.Errorf("no alarm fires when DynamoDB throttles requests to %s", id)
		}
		indexes, _ := r.Properties["GlobalSecondaryIndexes"].([]any)
		for _, index := range indexes {
			if name := fmt.Sprint(index.(map[string]any)["IndexName"]); !throttled[name] {
				t.Errorf("no alarm fires when DynamoDB throttles requests to the index %s of %s", name, id)
			}
		}
	}

	var table strings.Builder
	table.WriteString("| metric | dimensions | alarms |\n|---|---|---|\n")
	for _, metric := range slices.Sorted(maps.Keys(got)) {
		name, dimensions, _ := strings.Cut(metric, " [")
		fmt.Fprintf(&table, "| `%s` | %s | `%s` |\n", name, strings.ReplaceAll(strings.TrimSuffix(dimensions, "]"), " ", ", "), strings.Join(got[metric], "`, `"))
	}
	page.Hold(t, "docs/reference/metrics.md", "metrics", table.String())

	const dollars, ofMetric = 0.10, 0.30 // prices for a month: of an alarm, and of a metric that is not AWS's own
	page.Hold(t, "docs/vendor/control-plane-on-aws.md", "alarms", fmt.Sprint(n))
	costs, err := os.ReadFile("../../bench/aws.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d*0.10 + %d*0.30", n, own); !strings.Contains(string(costs), want) {
		t.Errorf("the costs of bench/aws.go do not count %s", want)
	}
	page.Hold(t, "docs/vendor/control-plane-on-aws.md", "alarms-cost", fmt.Sprintf("$%.2f", float64(n)*dollars+float64(own)*ofMetric))
}

// A metric that is taken from a log has a value only if the program really writes lines that match
// its pattern, with a number in its field.
func TestMetricsMatchTheLinesOfTheirLogs(t *testing.T) {
	line := func(v slog.LogValuer) map[string]any {
		var out bytes.Buffer
		slog.New(slog.NewJSONHandler(&out, nil)).Info("a line", slog.Any("", v))
		return decoded(t, out.String())
	}
	kept := func(ran time.Duration, delivered, missed int64) map[string]any {
		return line(archive.Archived{Kept: archive.Kept{Streams: 1, Bytes: delivered + missed, Found: missed, Missed: missed}, Job: "job_1", Ran: ran})
	}
	s := stack(t)
	access := fmt.Sprint(s.Resources["APIStage"].Properties["AccessLogSettings"].(map[string]any)["Format"])
	request := func(method, route string) map[string]any {
		return decoded(t, strings.NewReplacer("$context.httpMethod", method, "$context.routeKey", route, "$context.responseLatency", "12").Replace(access))
	}
	const writes, jobs, sessions = "ANY /v1/{proxy+}", "ANY /runner/v1/jobs/{proxy+}", "ANY /runner/v1/sessions"
	lines := map[string]struct {
		log          string
		match, other map[string]any
		value        float64
	}{
		"StuckJobs":         {"SweepLog", line(plane.Swept{Stuck: 3}), line(plane.Swept{Lost: 1, Turned: 1}), 3},
		"LostRunners":       {"SweepLog", line(plane.Swept{Lost: 2}), line(plane.Swept{Stuck: 1, Turned: 1}), 2},
		"RunnerDeadLetters": {"SweepLog", line(plane.Swept{Letters: 4}), line(plane.Swept{Lost: 1}), 4},
		"LogsBehind":        {"LogIndexLog", line(cloudwatch.Late{Age: 90 * time.Second}), kept(time.Hour, 0, 1000), 90_000},
		"LogsUndelivered":   {"LogIndexLog", kept(2*time.Minute, 0, 1000), kept(time.Hour, 600, 400), 1000}, // the last lines of a job may arrive after its end
		"ControlLatency":    {"APILog", request("POST", writes), request("GET", writes), 12},
		"JobsLatency":       {"APILog", request("POST", jobs), request("POST", "ANY /runner/v1/claims"), 12},
		"SessionsLatency":   {"APILog", request("POST", sessions), request("POST", jobs), 12},
	}
	routes := fmt.Sprint(s.Resources["ControlAPIRoute"].Properties, s.Resources["JobsRoute"].Properties, s.Resources["SessionsRoute"].Properties)
	for _, route := range []string{writes, jobs, sessions} {
		if !strings.Contains(routes, route) {
			t.Errorf("the API has no route %s", route)
		}
	}
	for id, r := range s.Resources {
		if r.Type != "AWS::Logs::MetricFilter" {
			continue
		}
		name := strings.TrimSuffix(id, "Metric")
		l, ok := lines[name]
		delete(lines, name)
		transformation := r.Properties["MetricTransformations"].([]any)[0].(map[string]any)
		alarm := s.Resources[name+"Alarm"].Properties
		if !ok || transformation["MetricName"] != alarm["MetricName"] || transformation["MetricNamespace"] != alarm["Namespace"] {
			t.Errorf("the metric %s has no line, or its alarm watches another metric: %v", name, transformation)
			continue
		}
		if want := s.Resources[l.log].Properties["LogGroupName"]; r.Properties["LogGroupName"] != want && !strings.HasSuffix(fmt.Sprint(r.Properties["LogGroupName"]), strings.ToLower(l.log)) {
			t.Errorf("the metric %s reads %v, want %v", name, r.Properties["LogGroupName"], want)
		}
		pattern := fmt.Sprint(r.Properties["FilterPattern"])
		if !matchesPattern(t, pattern, l.match) || matchesPattern(t, pattern, l.other) {
			t.Errorf("the pattern %s does not match %v, or matches %v", pattern, l.match, l.other)
		}
		field := strings.TrimPrefix(fmt.Sprint(transformation["MetricValue"]), "$.")
		if l.match[field] != l.value {
			t.Errorf("the metric %s takes the value %v from %v, want %v", name, l.match[field], l.match, l.value)
		}
	}
	for name := range lines {
		t.Errorf("the stack has no metric %s", name)
	}
}

func decoded(t *testing.T, line string) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatalf("the line %s is no JSON: %v", line, err)
	}
	return fields
}

// matchesPattern decides like CloudWatch over the forms of patterns that the stack uses:
// comparisons of a field with a number or a text, joined by &&. It accepts no other form.
func matchesPattern(t *testing.T, pattern string, line map[string]any) bool {
	t.Helper()
	inner, ok := strings.CutPrefix(pattern, "{ ")
	inner, closed := strings.CutSuffix(inner, " }")
	for term := range strings.SplitSeq(inner, " && ") {
		m := regexp.MustCompile(`^\$\.(\w+) (=|!=|>) ("[^"]*"|\d+)$`).FindStringSubmatch(term)
		if m == nil || !ok || !closed {
			t.Fatalf("the pattern %s has a form that this test does not know", pattern)
		}
		text, _ := line[m[1]].(string)
		number, isNumber := line[m[1]].(float64)
		limit, _ := strconv.ParseFloat(m[3], 64)
		holds := map[string]bool{"=": `"`+text+`"` == m[3], "!=": `"`+text+`"` != m[3], ">": isNumber && number > limit}
		if !holds[m[2]] {
			return false
		}
	}
	return true
}

// A person must learn what the account costs. The budget exists if the vendor sets an amount, and
// the topic of alarms accepts its messages.
func TestSpendRaisesAnAlarm(t *testing.T) {
	s := stack(t)
	text := fmt.Sprint(s.Resources["Spend"].Properties)
	for _, want := range []string{"Amount:500", "FORECASTED", "ACTUAL", fmt.Sprint(s.Resources["AlarmsByMail"].Properties["TopicArn"])} {
		if !strings.Contains(text, want) {
			t.Errorf("the budget lacks %s: %s", want, text)
		}
	}
	accepted := slices.ContainsFunc(infratest.Statements(s.Resources["AlarmsPolicy"].Properties["PolicyDocument"]), func(p map[string]any) bool {
		return strings.Contains(fmt.Sprint(p["Principal"]), "budgets.amazonaws.com") && p["Effect"] == "Allow"
	})
	if !accepted {
		t.Error("the topic refuses the messages of the budget")
	}
	values := given()
	values[control.ParameterBudget] = control.None
	without, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := without.Resources["Spend"]; ok {
		t.Error("without an amount, the stack has a budget")
	}
}

// TestEveryAlarmHasARunbook checks that each alarm of the template is in exactly one
// heading of docs/operations/alarms.md.
func TestEveryAlarmHasARunbook(t *testing.T) {
	const file = "docs/operations/alarms.md"
	text, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]int{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		if !strings.Contains(body, "\n1. ") {
			t.Errorf("%s: the section %s has no steps", file, heading)
		}
		for _, name := range page.Code(heading) {
			sections[name]++
		}
	}
	resources := maps.Clone(stack(t).Resources)
	maps.Copy(resources, spareStack(t).Resources)
	for id, r := range resources {
		if r.Type != "AWS::CloudWatch::Alarm" && r.Type != "AWS::Budgets::Budget" && id != "FailedCopies" {
			continue
		}
		name := strings.TrimSuffix(id, "Alarm")
		if sections[name] != 1 {
			t.Errorf("%s has %d sections for the alarm %s, want 1", file, sections[name], name)
		}
		delete(sections, name)
	}
	for name := range sections {
		t.Errorf("%s has a section for %s, which is not an alarm of the stack", file, name)
	}
}
