package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/tools/page"
)

// load decodes a JSON file.
func load[T any](t *testing.T, file string) (v T) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// met returns "yes" if the figure meets its goal, "**no**" if it does not, and "" if the
// figure has no goal.
func met(t *testing.T, f Figure) string {
	t.Helper()
	goal, ok, err := f.goal()
	switch {
	case err != nil:
		t.Fatal(err)
	case !ok:
		return ""
	case goal.met(f.Value):
		return "yes"
	}
	return "**no**"
}

// docs/contributing/benchmarks.md lists the figures of results.json.
func TestPageHasTheFigures(t *testing.T) {
	var b strings.Builder
	b.WriteString("| Figure | Measured | Goal, and what others were measured at | Met |\n|---|---|---|---|\n")
	for _, f := range load[[]Figure](t, "results.json") {
		fmt.Fprintf(&b, "| `%s` | %v %s | %s | %s |\n", f.Name, f.Value, f.Unit, f.Reference, met(t, f))
	}
	page.Hold(t, "docs/contributing/benchmarks.md", "figures", b.String())
}

// docs/contributing/evidence.md has the figures of results.json in seconds, with two
// decimals below 1 s. A row whose column "test" names figures by a pattern has a span for
// each figure.
func TestEvidenceHasTheMeasuredFigures(t *testing.T) {
	seconds := map[string]string{}
	for _, f := range load[[]Figure](t, "results.json") {
		s := f.Value
		if f.Unit == "ms" {
			s /= 1000
		}
		seconds[f.Name] = fmt.Sprintf("%.0f s", s)
		if s < 1 {
			seconds[f.Name] = fmt.Sprintf("%.2f s", s)
		}
	}
	promised := []string{"dead_host_s", "dead_step_s_max", "dead_step_s_p50", "expire_last_s", "flood_added_ms_p99", "recovery_ms_max", "recovery_ms_p50"}
	for _, name := range promised {
		if seconds[name] == "" {
			t.Errorf("results.json has no %s", name)
		}
		page.Hold(t, "docs/contributing/evidence.md", name, seconds[name])
	}

	named := map[string]bool{}
	for _, row := range page.Table(t, "docs/contributing/evidence.md", "area", "guarantee", "test", "command or figure") {
		spans, err := page.Spans(strings.Join(row, " | "))
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range page.Code(row[2]) {
			for name := range seconds {
				if ok, err := path.Match(pattern, name); err != nil {
					t.Fatal(err)
				} else if !ok {
					continue
				}
				named[name] = true
				if !slices.ContainsFunc(spans, func(s page.Span) bool { return s.Package == "bench" && s.Name == name }) {
					t.Errorf("the guarantee %q names %s, but has no span of it", row[1], name)
				}
			}
		}
	}
	if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, promised) {
		t.Errorf("the page names the figures %q, but this test checks %q", got, promised)
	}
}

// docs/vendor/cost-and-scale.md has the bills, calculated from the prices and the counts
// in aws.json.
func TestPageHasTheBills(t *testing.T) {
	counted := load[taken](t, "aws.json")
	onStacks := load[stacks](t, stacksFile)
	minute, err := onStacks.minute(control.Metered().Heartbeat)
	if err != nil {
		t.Fatal(err)
	}
	warm, err := onStacks.warmSecond()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]usage{
		"month at rest":         {counted.Month, atRest(onStacks.Idle["sweep"].usage(false))},
		"job":                   {counted.Job, onStacks.job()},
		"minute of a job":       {counted.Minute, minute},
		"second of a warm step": {counted.Warm, warm},
	} {
		if pair[0] != pair[1] {
			t.Errorf("aws.json has for the %s %+v, want %+v as %s has it; run `make bench-aws`", name, pair[0], pair[1], stacksFile)
		}
	}

	for _, f := range known() {
		switch f.Name {
		case "aws_idle_install_dollars":
			f.Value = counted.idle()
		case "aws_jobs_dollars":
			f.Value = counted.jobs()
		default:
			continue
		}
		if err := checkGoal(f, f.Value); err != nil {
			t.Error(err)
		}
	}

	const cents = "%.2f"
	rows := []struct {
		name   string
		prices []string
	}{
		{"HTTP API", []string{"HTTP API"}},
		{"Lambda", []string{"Lambda", "Lambda, arm64"}},
		{"DynamoDB", []string{"DynamoDB writes", "DynamoDB reads", "DynamoDB storage"}},
		{"SQS", []string{"SQS"}},
		{"CloudWatch Logs", []string{"CloudWatch Logs", "CloudWatch Logs, kept"}},
		{"S3", []string{"S3 writes", "S3 reads", "S3 storage"}},
		{"data transfer", []string{"data transfer"}},
		{"KMS, EventBridge", []string{"KMS", "EventBridge"}},
		{"keys and alarms", []string{"keys and alarms"}},
	}
	columns := []struct {
		installs int
		format   string
	}{{1, cents}, {100, cents}, {10000, "%.0f"}}
	var table strings.Builder
	table.WriteString("| $ a month | 1 install | 100 installs | 10,000 installs |\n|---|---|---|---|\n")
	listed := make([]float64, len(columns))
	for _, row := range rows {
		table.WriteString("| " + row.name + " |")
		for i, column := range columns {
			u, sum := counted.month(typical(column.installs)), 0.0
			for _, p := range prices() {
				if slices.Contains(row.prices, p.what) {
					sum += p.of(u) * p.dollars
				}
			}
			listed[i] += sum
			table.WriteString(" " + grouped(fmt.Sprintf(column.format, sum)) + " |")
		}
		table.WriteString("\n")
	}
	all, each := "| **all** |", "| each install |"
	for i, column := range columns {
		bill := cost(counted.month(typical(column.installs)))
		if bill-listed[i] > 0.005 {
			t.Errorf("the bill of %d installs is $%.2f, but the rows of the table have only $%.2f of it", column.installs, bill, listed[i])
		}
		all += " **" + grouped(fmt.Sprintf(column.format, bill)) + "** |"
		each += " " + fmt.Sprintf(cents, bill/float64(column.installs)) + " |"
	}
	page.Hold(t, "docs/vendor/cost-and-scale.md", "bill", table.String()+all+"\n"+each+"\n")

	var routes strings.Builder
	routes.WriteString("| route or function | for each job | ms |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(onStacks.Deployed)) {
		r := onStacks.Deployed[name]
		fmt.Fprintf(&routes, "| `%s` | %.2f | %.0f |\n", name, float64(r.Count)/float64(onStacks.Jobs), r.ms())
	}
	page.Hold(t, "docs/vendor/cost-and-scale.md", "routes", routes.String())

	rest := counted.Month
	months, queues := cost(usage{Dollars: rest.Dollars}), cost(usage{Queue: rest.Queue})
	builder := counted.buildRunner()
	for name, want := range map[string]string{
		"at-rest":        fmt.Sprintf("$"+cents, cost(rest)),
		"at-rest-fixed":  fmt.Sprintf(cents, months),
		"at-rest-queues": fmt.Sprintf(cents, queues),
		"at-rest-sweep":  fmt.Sprintf(cents, cost(rest)-months-queues),
		"warm":           fmt.Sprintf("$%.3f", cost(usage{}.plus(typical(1).jobs*typical(1).warmSeconds, counted.Warm))),
		"idle":           fmt.Sprintf("$%.3f", counted.idle()),
		"jobs":           fmt.Sprintf("$%.3f", counted.jobs()),
		"idle-polls":     fmt.Sprintf(cents, cost(usage{Queue: monthHours * receivesAnHour})),
		"api-runner":     fmt.Sprintf("$"+cents, cost(counted.apiRunner())),
		"api-function":   fmt.Sprintf(cents, cost(usage{GBSeconds: monthHours * receivesAnHour * counted.Claim.GBSeconds})),
		"build-runner":   fmt.Sprintf("$"+cents, cost(builder)),
		"build-fargate":  fmt.Sprintf(cents, cost(usage{CPUHours: builder.CPUHours, MemoryHours: builder.MemoryHours})),
		"build-address":  fmt.Sprintf(cents, cost(usage{AddressHours: builder.AddressHours})),
	} {
		page.Hold(t, "docs/vendor/cost-and-scale.md", name, want)
	}
	page.Hold(t, "docs/vendor/control-plane-on-aws.md", "build-runner", fmt.Sprintf("$%.0f", cost(builder)))
}

// docs/vendor/cost-and-scale.md has the used amounts of AWS's limits, calculated from the
// counts in aws.json.
func TestPageHasTheLimits(t *testing.T) {
	counted := load[taken](t, "aws.json")
	var table strings.Builder
	table.WriteString("| limit | is | 1 | 100 | 10,000 installs | at the limit |\n|---|---|---|---|---|---|\n")
	for _, q := range quotas() {
		fmt.Fprintf(&table, "| %s | %s", q.name, grouped(fmt.Sprintf("%.0f", q.limit)))
		if q.note != "" {
			table.WriteString(" (" + q.note + ")")
		}
		for _, installs := range []int{1, 100, 10000} {
			used := q.of(counted, typical(installs))
			if used > q.limit {
				t.Errorf("%d installs use %.0f of %q, which is %.0f", installs, used, q.name, q.limit)
			}
			table.WriteString(" | " + amount(used))
		}
		table.WriteString(" | " + q.meaning + " |\n")
	}
	page.Hold(t, "docs/vendor/cost-and-scale.md", "limits", table.String())
}

// amount formats a number with two significant digits, without decimals from 10, and with two
// decimals at most.
func amount(n float64) string {
	switch {
	case n >= 10 || n == math.Trunc(n):
		return fmt.Sprintf("%.0f", n)
	case n >= 1:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.2f", n)
}

// grouped separates the thousands of a decimal number with commas.
func grouped(number string) string {
	whole, fraction, point := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		return whole + "." + fraction
	}
	return whole
}

// spread is a measured time of several runs.
type spread struct {
	Runs   int   `json:"runs"`
	Median int64 `json:"median_ms"`
	Max    int64 `json:"max_ms"`
}

// stackTime is a time that the benchmarks of package awstest measure on the emulated stacks, and what AWS adds to it.
type stackTime struct {
	name, from, to string
	adds           float64 // seconds
	source         string  // of adds
	goal           float64 // seconds, of the slowest run; 0: none
	own            bool    // the goal is for the measured part
}

const (
	taskStart = 45.0      // of a task on Fargate: the larger number of AWS re:Post
	lineRate  = 100e6 / 8 // bytes a second of the line from a registry, as networkRate in package awstest
	s3Rate    = 85e6      // bytes a second that S3 in the same region gives for a request
)

// stackTimes returns the times of the page. The sizes of providers, in bytes, and the starts of tasks are those that the
// benchmarks recorded.
func stackTimes(sizes map[string]int64) []stackTime {
	const fargate = "start of a task on Fargate, 30 to 45 s ([AWS re:Post](https://repost.aws/questions/QUjZAzJd27SZWxXM7MgyxOZw/how-to-speed-up-provisioning-of-ecs-fargate-task)); none with a [warm step](../contributing/decisions/warm-steps.md)"
	starts := func(name string) string {
		if n := sizes[name+"_starts"]; n != 1 {
			return fmt.Sprintf("%d starts", n)
		}
		return "one start"
	}
	rows := []stackTime{
		{"claim_to_task", "a job is claimed", "the container of its task starts", taskStart, fargate, 0, false},
		{"claim_to_tool", "a job is claimed", "its tool starts; the module needs no provider", taskStart, "as above", 0, false},
		{"chain_warm", "a person deploys a chain of four components", fmt.Sprintf("its eight jobs have ended. Each start of a task takes %d s, and the deployment waits for %s: [warm steps](../contributing/decisions/warm-steps.md)", sizes["start_ms"]/1000, starts("chain_warm")), 0, "nothing: the starts are in it", 0, false},
		{"chain_cold", "as above", fmt.Sprintf("the same without warm steps: the deployment waits for %s", starts("chain_cold")), 0, "as above", 0, false},
		{"line_to_reader", "a tool prints a line", "a reader of the API sees it, without a follower", 3, "delivery of a subscription; assumed, AWS says near real time", 0, false},
		{"line_to_follower", "a tool prints a line", "a follower of the log sees it", 3, "as above", 1, true},
		{"unchanged30", "a person deploys 30 components of which none has changed", "the deployment has ended, without a job", 0.3, "API Gateway and warm functions for two requests; assumed", 2, true},
		{"cancel_to_interrupt", "a person cancels a job", "the process that its tool runs has ended", 1, "until a read of DynamoDB sees the marker; assumed, AWS says a short time", 3, false},
	}
	for _, of := range []struct{ prefix, provider string }{{"full_", "`hashicorp/aws` in full size"}, {"", "a `hashicorp/aws` with few services"}} {
		packed := float64(sizes[of.prefix+"packed_bytes"])
		rows = append(rows, []stackTime{
			{of.prefix + "mirror", "a job is claimed", "its tool has " + of.provider + ", whose archive is in the mirror of the stack's bucket", taskStart + packed/s3Rate, "start of the task; S3 in the same region gives 85 MB/s for a request", 20, true},
			{of.prefix + "mirror_first", "a job is claimed", "the same, with an empty mirror", taskStart + packed/lineRate, "start of the task; download at 100 Mbit/s, assumed", 0, false},
			{of.prefix + "registry", "a job is claimed", "the same without a mirror, from a registry on the same machine", taskStart + packed/lineRate, "as above", 0, false},
			{of.prefix + "registry_line", "a job is claimed", "the same, from a registry behind a line of 100 Mbit/s", taskStart, "start of the task", 0, false},
			{of.prefix + "warm_disk", "a job is claimed", "the same, in the agent's task (isolation `Process`), whose disk has the provider", 0, "nothing", 0, false},
		}...)
	}
	return rows
}

// recordedTimes returns what the benchmarks of package awstest recorded: times, and the sizes and numbers beside them.
func recordedTimes(t *testing.T) (times map[string]spread, sizes map[string]int64) {
	t.Helper()
	times, sizes = map[string]spread{}, map[string]int64{}
	for _, file := range []string{"aws-times.json", "aws-providers.json", "aws-chain.json", "aws-unchanged.json"} {
		for name, raw := range load[map[string]json.RawMessage](t, file) {
			var s spread
			var size int64
			if err := json.Unmarshal(raw, &size); err == nil {
				sizes[name] = size
			} else if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatalf("%s: %s: %v", file, name, err)
			} else {
				times[name] = s
			}
		}
	}
	return times, sizes
}

// `make bench-aws` runs this test after it measures: the slowest run with AWS's part is within the goal. The delivery of a
// subscription has no documented time, so the goal of a follower is for the part that is measured. So is that of a provider: a
// task starts with and without one.
func TestTimesOfTheStacksMeetTheirGoals(t *testing.T) {
	times, sizes := recordedTimes(t)
	for _, r := range stackTimes(sizes) {
		if r.goal == 0 {
			continue
		}
		slowest := float64(times[r.name].Max) / 1000
		if !r.own {
			slowest += r.adds
		}
		if slowest == 0 || slowest > r.goal {
			t.Errorf("%s to %s: %.2f s, want at most %.0f s", r.from, r.to, slowest, r.goal)
		}
	}
}

// docs/vendor/cost-and-scale.md has the times that the benchmarks of package awstest measure on the emulated stacks, with AWS's
// part, which is not measured here.
func TestPageHasTheTimesOfTheStacks(t *testing.T) {
	times, sizes := recordedTimes(t)
	var table strings.Builder
	table.WriteString("| from | to | of | median | maximum | AWS adds | median with it | maximum with it | goal | AWS's part |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range stackTimes(sizes) {
		s, ok := times[r.name]
		if !ok || s.Runs == 0 {
			t.Errorf("no benchmark measured %s", r.name)
		}
		delete(times, r.name)
		goal := ""
		switch {
		case r.own:
			goal = fmt.Sprintf("%.0f s, measured", r.goal)
		case r.goal > 0:
			goal = fmt.Sprintf("%.0f s", r.goal)
		}
		median, slowest := float64(s.Median)/1000, float64(s.Max)/1000
		fmt.Fprintf(&table, "| %s | %s | %d | %.2f s | %.2f s | %.1f s | %.2f s | %.2f s | %s | %s |\n", r.from, r.to, s.Runs, median, slowest, r.adds, median+r.adds, slowest+r.adds, goal, r.source)
	}
	for name := range times {
		t.Errorf("the page has no row for %s", name)
	}
	page.Hold(t, "docs/vendor/cost-and-scale.md", "times", table.String())
	size := func(prefix string) string {
		return fmt.Sprintf("%.0f MB, %.0f MB unpacked", float64(sizes[prefix+"packed_bytes"])/1e6, float64(sizes[prefix+"unpacked_bytes"])/1e6)
	}
	page.Hold(t, "docs/vendor/cost-and-scale.md", "provider-size", size(""))
	page.Hold(t, "docs/vendor/cost-and-scale.md", "full-provider-size", size("full_"))
}
