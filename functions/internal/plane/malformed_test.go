package plane_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// An unreadable record of the stream causes one event, is not repeated, and does not stop the
// records behind it in its batch: the runner of the next record's job gets its wake-up.
func TestMalformedRecordDoesNotBlockItsBatch(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	r := plane.Resources{Table: c.table, LogTable: c.logTable, Blobs: c.bucket, QueuePrefix: c.prefix, SealKey: c.sealKey}
	first := must(plane.Control(ctx, c.config("DYNAMODB"), r, slog.New(slog.DiscardHandler)))(t)
	if _, err := first.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: "east"}, ""); err != nil {
		t.Fatal(err)
	}
	name := "runner-" + string(must(first.Store.Runner(ctx, fairlead.DefaultOrg, "east"))(t).V.ID)
	first.Queue = lost{} // as if the process had died
	j := must(first.CheckRunner(ctx, control.User{Org: fairlead.DefaultOrg}, "east", ""))(t)
	q := must(plane.Queue(c.config("SQS"), c.prefix, true))(t)
	if err := q.Make(ctx, name, nil); err != nil {
		t.Fatal(err)
	}
	records := dynamodblocal.Records(t, c.endpoints["DYNAMODB"], c.table)
	good := records[len(records)-1] // of the job
	f := c.start("dispatch", c.dispatch())
	body := func(text any) func(map[string]any) {
		return func(d map[string]any) { d["NewImage"].(map[string]any)["b"] = map[string]any{"B": text} }
	}
	for what, change := range map[string]func(d map[string]any){
		"its version is a string":              func(d map[string]any) { d["NewImage"].(map[string]any)["v"] = map[string]any{"S": "1"} },
		"its version is a list":                func(d map[string]any) { d["NewImage"].(map[string]any)["v"] = []any{1} },
		"its item is no object":                func(d map[string]any) { d["NewImage"] = "JOB" },
		"its item has another key":             func(d map[string]any) { d["NewImage"].(map[string]any)["pk"] = map[string]any{"S": "JOB#other"} },
		"its item has no body":                 func(d map[string]any) { delete(d["NewImage"].(map[string]any), "b") },
		"its body is no base64":                body("{}"),
		"its body is cut off":                  body("eyJpZCI6"),
		"its body is a list":                   body("W10="),
		"its body has no id":                   body("e30="),
		"its body is another job's":            body("eyJpZCI6ImpvYl8xIn0="),
		"its body is nested deeper than a job": body("eyJqb2IiOnsiaWQiOnsiaWQiOlsxXX19fQ=="),
		"its key is a number":                  func(d map[string]any) { d["Keys"].(map[string]any)["pk"] = map[string]any{"N": "1"} },
		"it has no key":                        func(d map[string]any) { delete(d, "Keys") },
		"it has neither a key nor an item":     func(d map[string]any) { delete(d, "Keys"); delete(d, "NewImage") },
		"it has only a sequence number": func(d map[string]any) {
			for k := range d {
				if k != "SequenceNumber" {
					delete(d, k)
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			var bad map[string]any
			if err := json.Unmarshal(good, &bad); err != nil {
				t.Fatal(err)
			}
			change(bad["dynamodb"].(map[string]any))
			c.events() // drop the earlier events
			if out := must(f.Invoke(ctx, map[string]any{"Records": []any{bad, good}}))(t); string(out) != `{"batchItemFailures":[]}` {
				t.Errorf("it answers %s", out)
			}
			m := must(q.Receive(ctx, name, time.Minute, 10*time.Second))(t)
			if w := must(events.DecodeWake(m.Body))(t); w.Job != j.ID {
				t.Errorf("the wake-up is for %s, want %s", w.Job, j.ID)
			}
			if err := q.Delete(ctx, name, m.Receipt); err != nil {
				t.Error(err)
			}
			unreadable, queued := 0, 0
			for _, e := range c.events() {
				switch e.Type {
				case control.UnreadableEvent:
					unreadable++
				case "fairlead.job.queued":
					queued++
				}
			}
			if unreadable != 1 || queued != 1 {
				t.Errorf("%d events of unreadable records and %d of queued jobs, want one of each", unreadable, queued)
			}
		})
	}
}
