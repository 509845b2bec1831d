package awstest

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// usage is what BenchmarkUsage counts. Package bench makes the prices of it.
type usage struct {
	// Idle is what the control plane used while a runner was idle for IdleSeconds, and Polls how often
	// the runner asked its queue meanwhile.
	Idle        map[string]use `json:"idle"`
	IdleSeconds float64        `json:"idle_seconds"`
	Polls       int            `json:"polls"`
	// Deployed is what a deployment of examples/shop used, with the archives of its logs, and Queue how
	// often the runner asked its queue for its jobs, and deleted or hid messages.
	Deployed map[string]use `json:"deployed"`
	Jobs     int            `json:"jobs"`
	Queue    int            `json:"queue"`
	// Stored is how many bytes the table and its indexes grew by the deployment, without items that expire.
	Stored int `json:"stored"`
	// Heartbeats are the heartbeats of agents, apart from renewals of their sessions.
	Heartbeats use `json:"heartbeats"`
}

// idleFor returns how long BenchmarkUsage observes an idle runner: some renewals of the sessions of briefSessions, or at least one if
// nothing is recorded.
func idleFor(recorded bool) time.Duration {
	if recorded {
		return 400 * time.Second
	}
	return 100 * time.Second
}

// heartbeatRoute is the route of an agent's heartbeats.
const heartbeatRoute = "POST /runner/v1/session/heartbeat"

// BenchmarkUsage counts what a runner and its jobs use of AWS on the vendor's side, through the functions
// of the stack and a task of the customer's stack for each job. The idle runner's sessions are short, so
// that it renews them while the benchmark looks.
func BenchmarkUsage(b *testing.B) {
	needTofu(b)
	a := deploy(b, releasedTemplate(b, released()))
	a.meter = newMeter(b)
	w := connect(b, a, map[string]http.Handler{planeHost: briefSessions(a.front())}).operated()
	defer w.close()
	w.cli("app", "apply", "examples/shop")
	_, stop := w.install("acme")
	defer stop()
	session := w.attribute("SessionRole", "Arn")
	polls := func() int { return w.guard.Uses(session, "sqs:ReceiveMessage") }
	w.eventually("the runner's start is over: it has sent its first heartbeat, and the event of its start was delivered", func() bool {
		seen := a.meter.look()
		return seen[heartbeatRoute].Count > 0 && seen["webhook"].Count > 0
	})
	w.eventually("the audit has the last change before the runner idles", func() bool {
		entries := ask[[]wire.AuditEntry](w, "audit", "list", "--object", "install acme")
		return slices.ContainsFunc(entries, func(e wire.AuditEntry) bool { return e.Action == wire.UpdateInstall.ID })
	})
	a.ageReports()
	file, out := os.Getenv("FAIRLEAD_BENCH_USAGE"), usage{}
	for b.Loop() {
		before, asked, began := a.meter.look(), polls(), time.Now()
		time.Sleep(idleFor(file != "")) // the time is what is observed
		out.IdleSeconds, out.Idle, out.Polls = time.Since(began).Seconds(), a.meter.since(before), polls()-asked
		if out.Idle[sessionsRoute].Count == 0 {
			b.Error("an idle runner did not renew its session")
		}
		for key := range out.Idle {
			if key != sessionsRoute && key != "sweep" {
				b.Errorf("an idle runner causes %q", key)
			}
		}

		stored := a.stored("Table")
		before, asked = a.meter.look(), polls()+w.guard.Uses(session, "sqs:DeleteMessage")+w.guard.Uses(session, "sqs:ChangeMessageVisibility")
		d := w.deployInstall("acme")
		w.waitArchived("acme")
		out.Jobs = len(w.jobs(d))
		out.Deployed, out.Queue = a.meter.since(before), polls()+w.guard.Uses(session, "sqs:DeleteMessage")+w.guard.Uses(session, "sqs:ChangeMessageVisibility")-asked
		out.Stored = a.stored("Table") - stored
	}
	out.Heartbeats = a.meter.look()[heartbeatRoute]
	text, err := json.MarshalIndent(out, "", "  ")
	if err == nil && file != "" {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	w.ok("write what was used", err)
	b.Logf("%s", text)
	b.ReportMetric(0, "ns/op") // removes the time of the run
}

// ageReports makes the reports of all stacks a day old: after an hour without a change a renewal reads less.
func (a *account) ageReports() {
	a.t.Helper()
	s, ctx := store.New(dynamo.New(a.config("DYNAMODB"), a.ref("Table"))), a.t.Context()
	installs, err := s.Installs(ctx, fairlead.DefaultOrg, fairlead.PageQuery{})
	if err != nil || len(installs.Items) == 0 {
		a.t.Fatalf("read the installs: %d, %v", len(installs.Items), err)
	}
	for _, i := range installs.Items {
		stack, err := s.Stack(ctx, i.V.RunnerID)
		if err != nil {
			a.t.Fatalf("read the stack of %s: %v", i.V.Name, err)
		}
		stack.V.Reported = stack.V.Reported.Add(-24 * time.Hour)
		var tx store.Tx
		tx.PutStack(stack)
		if err := s.Commit(ctx, "age-"+string(i.V.ID), &tx); err != nil {
			a.t.Fatalf("age the report of %s: %v", i.V.Name, err)
		}
	}
}

// stored returns the bytes of a table and its indexes as DynamoDB bills their storage: names and values of attributes, and 100 for each
// item and for each entry of an index. It leaves out items that expire.
func (a *account) stored(id string) (sum int) {
	a.t.Helper()
	const overhead = 100
	keys := [][]string{nil, {dynamo.AttrListPartition, dynamo.AttrListSort}, {dynamo.AttrDuePartition, dynamo.AttrDueSort}}
	pages := dynamodb.NewScanPaginator(dynamodb.NewFromConfig(a.config("DYNAMODB")), &dynamodb.ScanInput{TableName: aws.String(a.ref(id)), ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(a.t.Context())
		if err != nil {
			a.t.Fatalf("read the table: %v", err)
		}
		for _, item := range page.Items {
			if item[dynamo.AttrExpires] != nil {
				continue
			}
			for i, index := range keys {
				names := slices.Concat([]string{dynamo.AttrPartition, dynamo.AttrSort}, index)
				if i == 0 {
					names = slices.Collect(maps.Keys(item))
				}
				if slices.ContainsFunc(names, func(name string) bool { return item[name] == nil }) {
					continue // the item is not in this index
				}
				sum += overhead
				for _, name := range names {
					sum += len(name) + sizeOf(a.t, item[name])
				}
			}
		}
	}
	return sum
}

// sizeOf returns the bytes of a value of the types that package dynamo writes.
func sizeOf(t testing.TB, value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 1
	}
	t.Fatalf("an item has a value of type %T", value)
	return 0
}
