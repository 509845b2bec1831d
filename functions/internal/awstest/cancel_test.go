package awstest

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// trail records in which order a step renews its lease and finds its cancel marker.
type trail struct {
	mu       sync.Mutex
	looks    int
	renewals []time.Time
	found    []int // for each look that found the marker: the number of renewals before it
}

// renewed passes requests on, and records the renewals of leases.
func (tr *trail) renewed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/runner/v1/jobs/") && strings.HasSuffix(r.URL.Path, "/heartbeat") {
			tr.mu.Lock()
			tr.renewals = append(tr.renewals, time.Now())
			tr.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// look records a step's request for its marker, before DynamoDB gets it.
func (tr *trail) look(exists bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.looks++; exists {
		tr.found = append(tr.found, len(tr.renewals))
	}
}

func (tr *trail) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.renewals)
}

// On AWS a cancellation reaches a step by its marker: a function writes it, IAM lets only this
// attempt read it, and the step renews its lease before the renewal is due. Without the marker the
// job would be canceled as well, at the next renewal.
func TestCancellationTravelsByItsMarker(t *testing.T) {
	skipIfShort(t)
	needTofu(t)
	tr := &trail{}
	a := deploy(t, releasedTemplate(t, released()))
	w := connect(t, a, map[string]http.Handler{planeHost: tr.renewed(a.front())}).operated()
	defer w.close()
	table, direct := a.ref("Cancels"), dynamodb.NewFromConfig(a.config("DYNAMODB"))
	a.gates["DYNAMODB"].set(func(r *http.Request, body []byte) fault {
		var in struct {
			TableName string
			Key       map[string]struct{ S string }
		}
		if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetItem") || json.Unmarshal(body, &in) != nil || in.TableName != table {
			return none
		}
		key := map[string]dynamotypes.AttributeValue{}
		for name, value := range in.Key {
			if strings.Contains(value.S, fairlead.PrefixWarmStep+"_") {
				return none // the marker of a step that waits for its job
			}
			key[name] = &dynamotypes.AttributeValueMemberS{Value: value.S}
		}
		out, err := direct.GetItem(r.Context(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: key})
		if r.Context().Err() == nil {
			a.ok("read a marker", err)
			tr.look(err == nil && len(out.Item) > 0)
		}
		return none
	})
	w.app("clock", map[string]string{"main.tf": `resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "echo pid=$$; while true; do sleep 1; done"
  }
}
`})
	m, ctx := w.measured("clock", "acme", nil), t.Context()
	defer m.stop()
	d, jobs := m.deploy(ctx, false)
	r := &reader{measured: m, job: jobs["apply"].ID}
	r.process(ctx)
	before := tr.count()
	w.eventually("the apply renews its lease", func() bool { return tr.count() > before })
	before = tr.count() // the next renewal is due after a whole period
	_, err := m.CancelJob(ctx, r.job)
	w.ok("cancel", err)
	if d = m.untilDone(ctx, d); d.State == "succeeded" {
		t.Errorf("the deployment is %s although its apply was canceled", d.State)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.found) != 1 || tr.found[0] != before || len(tr.renewals) <= before {
		t.Fatalf("of %d looks for the marker %d found it, after %v renewals; want one after %d, and before the next of %d renewals", tr.looks, len(tr.found), tr.found, before, len(tr.renewals))
	}
	if gap, due := tr.renewals[before].Sub(tr.renewals[before-1]), (job.Terms{}).RenewEvery(); gap >= due-3*time.Second {
		t.Errorf("the step renewed its lease %s after the renewal before the cancellation, as if it had found no marker: one is due after %s", gap, due)
	}
}
