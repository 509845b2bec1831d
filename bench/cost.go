package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
)

// usage is the AWS usage of a job, of an hour of an idle runner, or of a month of an
// idle control plane.
type usage struct {
	Requests  float64 `json:"requests"`   // requests to the HTTP API; each request invokes a function
	Invokes   float64 `json:"invokes"`    // invocations of functions by other sources: the table's stream, schedules, log subscriptions
	GBSeconds float64 `json:"gb_seconds"` // billed memory × time of functions
	Writes    float64 `json:"writes"`     // write units of the table and its indexes
	Reads     float64 `json:"reads"`      // read units of the table and its indexes
	Queue     float64 `json:"queue"`      // requests to SQS, including receives without a message
	Puts      float64 `json:"puts"`       // writes to S3, and lists
	Gets      float64 `json:"gets"`       // reads from S3
	KMS       float64 `json:"kms"`        // requests to KMS
	LogGB     float64 `json:"log_gb"`     // written to CloudWatch Logs, with 26 bytes for each event: logs of jobs, of functions and of the HTTP API
	OutGB     float64 `json:"out_gb"`     // sent by the HTTP API to the internet
	TableGB   float64 `json:"table_gb"`   // GB-months in tables, with point-in-time recovery
	BlobGB    float64 `json:"blob_gb"`    // GB-months in S3
	KeptGB    float64 `json:"kept_gb"`    // GB-months in CloudWatch Logs, compressed by the service
	Events    float64 `json:"events"`     // sent to the event bus
	Dollars   float64 `json:"dollars"`    // monthly prices of keys and alarms

	CPUHours     float64 `json:"cpu_hours,omitempty"`     // of Fargate, arm64
	MemoryHours  float64 `json:"memory_hours,omitempty"`  // of Fargate, in GB
	AddressHours float64 `json:"address_hours,omitempty"` // of a public IPv4 address
}

// plus returns u + n × v.
func (u usage) plus(n float64, v usage) usage {
	return usage{u.Requests + n*v.Requests, u.Invokes + n*v.Invokes, u.GBSeconds + n*v.GBSeconds, u.Writes + n*v.Writes, u.Reads + n*v.Reads,
		u.Queue + n*v.Queue, u.Puts + n*v.Puts, u.Gets + n*v.Gets, u.KMS + n*v.KMS, u.LogGB + n*v.LogGB,
		u.OutGB + n*v.OutGB, u.TableGB + n*v.TableGB, u.BlobGB + n*v.BlobGB, u.KeptGB + n*v.KeptGB, u.Events + n*v.Events, u.Dollars + n*v.Dollars,
		u.CPUHours + n*v.CPUHours, u.MemoryHours + n*v.MemoryHours, u.AddressHours + n*v.AddressHours}
}

// pricesOf is the month of the prices.
const pricesOf = "2026-11"

// price is a price of AWS in us-east-1, on demand and without the free tier.
type price struct {
	what    string
	unit    string
	dollars float64             // for one unit
	of      func(usage) float64 // number of units
}

// prices returns all prices. The prices of KMS, EventBridge and S3 are the last known
// prices. The other prices are published.
func prices() []price {
	const million = 1e6
	return []price{
		{"HTTP API", "million requests", 1.00, func(u usage) float64 { return u.Requests / million }},
		{"Lambda", "million invocations", 0.20, func(u usage) float64 { return (u.Requests + u.Invokes) / million }},
		{"Lambda, arm64", "GB-second", 0.0000133334, func(u usage) float64 { return u.GBSeconds }},
		{"DynamoDB writes", "million request units", 0.625, func(u usage) float64 { return u.Writes / million }},
		{"DynamoDB reads", "million request units", 0.125, func(u usage) float64 { return u.Reads / million }},
		{"SQS", "million requests", 0.40, func(u usage) float64 { return u.Queue / million }},
		{"S3 writes", "thousand requests", 0.005, func(u usage) float64 { return u.Puts / 1000 }},
		{"S3 reads", "thousand requests", 0.0004, func(u usage) float64 { return u.Gets / 1000 }},
		{"KMS", "ten thousand requests", 0.03, func(u usage) float64 { return u.KMS / 10000 }},
		{"CloudWatch Logs", "GB in", 0.50, func(u usage) float64 { return u.LogGB }},
		{"CloudWatch Logs, kept", "GB-month", 0.03, func(u usage) float64 { return u.KeptGB }},
		{"DynamoDB storage", "GB-month, with recovery", 0.45, func(u usage) float64 { return u.TableGB }},
		{"S3 storage", "GB-month", 0.023, func(u usage) float64 { return u.BlobGB }},
		{"data transfer", "GB out", 0.09, func(u usage) float64 { return u.OutGB }},
		{"EventBridge", "million events", 1.00, func(u usage) float64 { return u.Events / million }},
		{"Fargate, arm64", "CPU-hour", 0.03238, func(u usage) float64 { return u.CPUHours }},
		{"Fargate, arm64", "GB-hour", 0.00356, func(u usage) float64 { return u.MemoryHours }},
		{"public IPv4 address", "hour", 0.005, func(u usage) float64 { return u.AddressHours }},
		{"keys and alarms", "dollar", 1, func(u usage) float64 { return u.Dollars }},
	}
}

// cost returns the price of the usage in dollars.
func cost(u usage) float64 {
	sum := 0.0
	for _, p := range prices() {
		sum += p.of(u) * p.dollars
	}
	return sum
}

// demand is the load of a control plane in a month.
type demand struct {
	installs      int
	jobs          float64 // of each install
	minutes       float64 // mean run time of a job
	warmSeconds   float64 // in which steps wait for a job
	hoursPerMonth float64
}

// typical returns the demand of the printed tables: each install has a deployment of four
// components each working day, with a log of a megabyte for each job.
func typical(installs int) demand {
	seconds, _ := warmWaits(typicalJob)
	return demand{installs: installs, jobs: 200, minutes: typicalJob.Minutes(), warmSeconds: seconds, hoursPerMonth: monthHours}
}

// typicalJob is how long a typical job runs.
const typicalJob = 2 * time.Minute

// taken is the measured usage.
type taken struct {
	Job    usage `json:"job"`                   // usage of a job that ends at once
	Minute usage `json:"minute_of_a_job"`       // additional usage of each minute that a job runs
	Log    usage `json:"log_of_a_job"`          // additional usage of a log of 1 MB that is written evenly in two minutes
	Warm   usage `json:"second_of_a_warm_step"` // usage of each second in which a step waits for its job
	Hour   usage `json:"hour_of_a_runner"`      // usage of an idle runner in an hour
	Claim  usage `json:"claim_at_the_api"`      // usage of a claim at the API that waits for claimFor and gets no job
	Month  usage `json:"month_at_rest"`         // usage of the control plane without installs in a month
}

// month returns the usage of the demand.
func (t taken) month(d demand) usage {
	n := float64(d.installs)
	u := t.Month.plus(n*d.hoursPerMonth, t.Hour).plus(n*d.jobs, t.Job).plus(n*d.jobs*d.minutes, t.Minute)
	return u.plus(n*d.jobs, t.Log).plus(n*d.jobs*d.warmSeconds, t.Warm)
}

// most is the number of installs of the largest control plane in the tables.
const most = 10_000

// idle returns the monthly price of one of 10,000 idle installs, in dollars, with its share of the control plane at rest.
func (t taken) idle() float64 { return cost(usage{}.plus(monthHours, t.Hour)) + cost(t.Month)/most }

// jobs returns the monthly price of an install's 200 jobs with a log of 1 MB each, in dollars.
func (t taken) jobs() float64 {
	d := typical(1)
	return cost(usage{}.plus(d.jobs, t.Job).plus(d.jobs*d.minutes, t.Minute).plus(d.jobs, t.Log).plus(d.jobs*d.warmSeconds, t.Warm))
}

// monthHours is the number of hours in a month.
const monthHours = 730

// buildRunner returns the monthly usage of an idle build runner. The build runner is a
// task of the smallest size with an address. Like every runner it polls its own queue.
func (t taken) buildRunner() usage {
	u := usage{}.plus(monthHours, t.Hour)
	u.CPUHours, u.MemoryHours, u.AddressHours = monthHours*0.25, monthHours*0.5, monthHours
	return u
}

// apiRunner returns the monthly usage of an idle runner that claims at the API. It always
// has an open claim, and the claim occupies a function. The function polls the runner's
// queue instead of the agent.
func (t taken) apiRunner() usage {
	return usage{}.plus(monthHours, t.Hour).plus(-monthHours*receivesAnHour, usage{Queue: 1}).plus(monthHours*receivesAnHour, t.Claim)
}

// printCosts writes the monthly prices for 1, 100 and 10,000 installs, of a build runner,
// and of a runner that claims at the API.
func printCosts(out io.Writer, t taken) {
	sizes := []int{1, 100, 10000}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "$ a month, prices of %s\tunit\tprice\t", pricesOf)
	for _, n := range sizes {
		fmt.Fprintf(w, "%d installs\t", n)
	}
	runners := []usage{t.buildRunner(), t.apiRunner()}
	fmt.Fprintln(w, "a build runner\ta runner at the API\t")
	for _, p := range prices() {
		fmt.Fprintf(w, "%s\t%s\t%s\t", p.what, p.unit, dollars(p.dollars))
		for _, n := range sizes {
			fmt.Fprintf(w, "%s\t", dollars(p.of(t.month(typical(n)))*p.dollars))
		}
		for _, u := range runners {
			fmt.Fprintf(w, "%s\t", dollars(p.of(u)*p.dollars))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "all\t\t\t")
	for _, n := range sizes {
		fmt.Fprintf(w, "%s\t", dollars(cost(t.month(typical(n)))))
	}
	for _, u := range runners {
		fmt.Fprintf(w, "%s\t", dollars(cost(u)))
	}
	fmt.Fprint(w, "\neach install\t\t\t")
	for _, n := range sizes {
		fmt.Fprintf(w, "%s\t", dollars(cost(t.month(typical(n)))/float64(n)))
	}
	fmt.Fprintln(w, "\t\t")
	w.Flush()
}

// dollars formats an amount with three significant digits, and with at least two digits
// after the point.
func dollars(d float64) string {
	if d == 0 {
		return "0"
	}
	digits := max(2, 2-int(math.Floor(math.Log10(math.Abs(d)))))
	return fmt.Sprintf("%.*f", digits, d)
}

// quota is a limit of AWS for an account in a region.
type quota struct {
	name    string
	limit   float64
	note    string                      // what limits the limit further; "": nothing
	of      func(taken, demand) float64 // the used amount of the limit
	meaning string                      // what happens at the limit
}

// busy is the ratio of the load in working hours to the mean load. A month has 730 hours,
// and some 170 of these hours are working hours.
const busy = monthHours / 170.0

// quotas returns the published limits of AWS.
func quotas() []quota {
	perSecond := func(n, hours float64) float64 { return n / hours / 3600 }
	rate := func(of func(usage) float64) func(taken, demand) float64 {
		return func(t taken, d demand) float64 {
			rest := usage{}.plus(float64(d.installs), t.Hour)
			n := float64(d.installs) * d.jobs
			jobs := usage{}.plus(n, t.Job).plus(n*d.minutes, t.Minute).plus(n, t.Log).plus(n*d.warmSeconds, t.Warm)
			return perSecond(of(rest), 1) + perSecond(of(jobs), d.hoursPerMonth)*busy
		}
	}
	writes := rate(func(u usage) float64 { return u.Writes })
	running := func(_ taken, d demand) float64 {
		return float64(d.installs) * d.jobs * d.minutes / d.hoursPerMonth / 60 * busy / control.Metered().LogEvery.Seconds()
	}
	const again = "429 as above; streams and queues are tried again"
	same := func(n float64) func(taken, demand) float64 { return func(taken, demand) float64 { return n } }
	return []quota{
		{"HTTP API, requests a second", 10000, "the stack sets limits by route, mostly 500", rate(func(u usage) float64 { return u.Requests }),
			"429; agents and steps wait as the answer requires, and leases outlast it"},
		{"Lambda, executions at once", 1000, "", rate(func(u usage) float64 { return u.GBSeconds * 1024 / functionMB }), again},
		{"DynamoDB, write units a second of the main table", 40000, "", func(t taken, d demand) float64 {
			t.Log = usage{}
			return writes(t, d)
		}, "calls are repeated; a table on demand doubles within half an hour"},
		{"DynamoDB, write units a second of the log table", 40000, "", func(t taken, d demand) float64 { return writes(taken{Log: t.Log}, d) },
			"as above; logs appear later, the record in CloudWatch Logs has the bytes"},
		{"STS, calls a second", 600, "", func(t taken, d demand) float64 { return float64(d.installs) / sessionSeconds }, "sessions are renewed early and with jitter"},
		{"CloudWatch Logs, PutLogEvents a second", 5000, "", running, "the shipper waits; the log is in a file on the runner's disk"},
		{"CloudWatch Logs, subscription filters", 2, "of each group", same(1), "one is used"},
		{"KMS, signatures a second", 300, "", rate(func(u usage) float64 { return u.KMS }), "a start is repeated; the claim outlasts it"},
		{"SQS, receives in flight of one queue", 120000, "", same(1), "never reached: each runner has its own queue"},
	}
}

// functionMB is the memory of a function, as infra sets it.
const functionMB = 256

// sessionSeconds is the time after which a runner renews its credentials: two thirds of
// the 15 minutes for which they are valid.
const sessionSeconds = 600

// printQuotas writes the used amount of each limit, for 1, 100 and 10,000 installs.
func printQuotas(out io.Writer, t taken) {
	sizes := []int{1, 100, 10000}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "limit\tis\t")
	for _, n := range sizes {
		fmt.Fprintf(w, "%d installs\t", n)
	}
	fmt.Fprintln(w)
	for _, q := range quotas() {
		fmt.Fprintf(w, "%s\t%.0f\t", q.name, q.limit)
		for _, n := range sizes {
			fmt.Fprintf(w, "%s\t", dollars(q.of(t, typical(n))))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}
