package cancelwatch_test

import (
	"crypto/rand"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/cancelmark/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/runner/internal/cancelwatch"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

var tables dynamodblocal.Server

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	os.Exit(code)
}

// The control plane writes with the SDK, and the step reads with its own signed requests. Both use
// the same item of a real table.
func TestStepFindsOnlyItsOwnMarker(t *testing.T) {
	keys := credentials.NewStaticCredentialsProvider("test", "test", "")
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(tables.Endpoint(t)), Credentials: keys}
	name := "c-" + strings.ToLower(rand.Text())
	if err := dynamotest.CreateCancelTable(t.Context(), cfg, name); err != nil {
		t.Fatal(err)
	}
	url, err := dynamo.Endpoint(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	attempt := cancelmark.Attempt{Install: "ins_a", Job: "job_a", Epoch: 2}
	look := func(table string, a cancelmark.Attempt) (bool, error) {
		m := &cancelwatch.Marker{Place: cancelmark.Place{URL: url, Table: table, Key: a.Key()}, Region: cfg.Region, Credentials: keys, HTTP: http.DefaultClient, Now: time.Now}
		return m.Found(t.Context())
	}
	if found, err := look(name, attempt); found || err != nil {
		t.Errorf("before the cancellation: found %t, %v", found, err)
	}
	marks := dynamo.New(cfg, name, time.Now)
	for range 2 { // the dispatcher writes it again
		if err := marks.Put(t.Context(), attempt); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := look(name, attempt); !found || err != nil {
		t.Errorf("after the cancellation: found %t, %v", found, err)
	}
	for _, other := range []cancelmark.Attempt{{Install: "ins_a", Job: "job_a", Epoch: 3}, {Install: "ins_a", Job: "job_b", Epoch: 2}, {Install: "ins_b", Job: "job_a", Epoch: 2}} {
		if found, err := look(name, other); found || err != nil {
			t.Errorf("the marker of %s: found %t, %v", other.Key(), found, err)
		}
	}
	if _, err := look("missing", attempt); err == nil || !strings.Contains(err.Error(), "ResourceNotFoundException") {
		t.Errorf("a missing table: %v, want an error with the type of the answer", err)
	}
}
