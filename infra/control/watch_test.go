package control_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

// An alarm on a metric that does not exist never fires. The table has the metrics that
// AWS documents, each with exactly its dimensions, and the alarms on them.
func TestAlarmsUseExistingMetrics(t *testing.T) {
	want := map[string][]string{
		"AWS/ApiGateway 5xx [ApiId]": {"APIErrors"},
		"AWS/DynamoDB ReadThrottleEvents [GlobalSecondaryIndexName TableName]":  {"DueIndexReadThrottles", "ListIndexReadThrottles"},
		"AWS/DynamoDB ReadThrottleEvents [TableName]":                           {"CancelsReadThrottles", "LogTableReadThrottles", "TableReadThrottles"},
		"AWS/DynamoDB WriteThrottleEvents [GlobalSecondaryIndexName TableName]": {"DueIndexWriteThrottles", "ListIndexWriteThrottles"},
		"AWS/DynamoDB WriteThrottleEvents [TableName]":                          {"CancelsWriteThrottles", "LogTableWriteThrottles", "TableWriteThrottles"},
		"AWS/Lambda Errors [FunctionName]":                                      {"ControlAPIErrors", "DispatchErrors", "LogIndexErrors", "RunnerAPIErrors", "SessionAPIErrors", "SweepErrors", "WebhookErrors"},
		"AWS/Lambda Invocations [FunctionName]":                                 {"SweepMissing"},
		"AWS/Lambda IteratorAge [FunctionName]":                                 {"DispatchBehind"},
		"AWS/Lambda Throttles [FunctionName]":                                   {"ControlAPIThrottles", "DispatchThrottles", "LogIndexThrottles", "RunnerAPIThrottles", "SessionAPIThrottles", "SweepThrottles", "WebhookThrottles"},
		"AWS/SQS ApproximateAgeOfOldestMessage [QueueName]":                     {"WebhooksBehind"},
		"AWS/SQS ApproximateNumberOfMessagesVisible [QueueName]":                {"DispatchDeadLetter", "LogIndexDeadLetter", "SweepDeadLetter", "WebhookDeadLetter"},
	}
	got, n := map[string][]string{}, 0
	s := stack(t)
	throttled := map[string]bool{} // names of tables and indexes with an alarm
	for id, r := range s.Resources {
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		n++
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
		metric := fmt.Sprint(r.Properties["Namespace"], " ", r.Properties["MetricName"], " ", names)
		got[metric] = append(got[metric], strings.TrimSuffix(id, "Alarm"))
	}
	for metric, alarms := range got {
		slices.Sort(alarms)
		if !slices.Equal(alarms, want[metric]) {
			t.Errorf("%s has the alarms %q, want %q", metric, alarms, want[metric])
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

	const dollars = 0.10 // price of an alarm for a month
	page.Hold(t, "docs/vendor/control-plane-on-aws.md", "alarms", fmt.Sprint(n))
	page.Hold(t, "docs/vendor/control-plane-on-aws.md", "alarms-cost", fmt.Sprintf("$%.2f", float64(n)*dollars))
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
	for id, r := range stack(t).Resources {
		if r.Type != "AWS::CloudWatch::Alarm" {
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
