package dynamo_test

import (
	"crypto/rand"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/cancelmark/cancelmarktest"
	"github.com/fairlead/fairlead/pkg/cancelmark/dynamo"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

var tables dynamodblocal.Server

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	os.Exit(code)
}

// table is a new table of markers, and a client that reads it without the package under test.
type table struct {
	cfg    aws.Config
	name   string
	client *dynamodb.Client
}

func newTable(t *testing.T) table {
	t.Helper()
	c := table{name: "c-" + strings.ToLower(rand.Text()), cfg: aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(tables.Endpoint(t)),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}}
	if err := dynamotest.CreateCancelTable(t.Context(), c.cfg, c.name); err != nil {
		t.Fatal(err)
	}
	c.client = dynamodb.NewFromConfig(c.cfg)
	return c
}

func (c table) item(t *testing.T, key string) map[string]types.AttributeValue {
	t.Helper()
	out, err := c.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &c.name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{cancelmark.AttrAttempt: &types.AttributeValueMemberS{Value: key}}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func TestTable(t *testing.T) {
	cancelmarktest.Run(t, func(t *testing.T) cancelmarktest.Subject {
		c := newTable(t)
		return cancelmarktest.Subject{Marks: dynamo.New(c.cfg, c.name, time.Now), Found: func(t *testing.T, key string) bool { return len(c.item(t, key)) > 0 }}
	})
}

// DynamoDB removes a marker an hour after its last write. A marker without this time would stay
// and cost for ever.
func TestMarkerExpiresAfterAnHour(t *testing.T) {
	c := newTable(t)
	attempt := cancelmark.Attempt{Install: "ins_a", Job: "job_a", Epoch: 1}
	for _, now := range []time.Time{time.Unix(1_800_000_000, 0), time.Unix(1_800_000_600, 0)} {
		if err := dynamo.New(c.cfg, c.name, func() time.Time { return now }).Put(t.Context(), attempt); err != nil {
			t.Fatal(err)
		}
		got, ok := c.item(t, attempt.Key())[cancelmark.AttrExpires].(*types.AttributeValueMemberN)
		if want := strconv.FormatInt(now.Add(time.Hour).Unix(), 10); !ok || got.Value != want {
			t.Errorf("written at %d, the marker expires at %v, want %s", now.Unix(), got, want)
		}
	}
}

// The use case that cancels continues without the marker, so it must know what failed and that a
// later write can succeed.
func TestUnreachableTableIsAnError(t *testing.T) {
	c := newTable(t)
	c.cfg.BaseEndpoint, c.cfg.RetryMaxAttempts = aws.String("http://127.0.0.1:1"), 1
	err := dynamo.New(c.cfg, c.name, time.Now).Put(t.Context(), cancelmark.Attempt{Install: "ins_a", Job: "job_a", Epoch: 1})
	if e, ok := errors.AsType[*fairlead.Error](err); !ok || e.Kind != fairlead.KindUnavailable || !strings.Contains(err.Error(), "job_a") {
		t.Errorf("error %v, want one of the kind unavailable that names the job", err)
	}
}

// DynamoDB's public endpoint is derived from the region. A step of a customer in another region
// uses the endpoint of the control plane's region.
func TestEndpointIsInTheControlPlanesRegion(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1":  "https://dynamodb.eu-central-1.amazonaws.com",
		"cn-north-1":    "https://dynamodb.cn-north-1.amazonaws.com.cn",
		"us-gov-west-1": "https://dynamodb.us-gov-west-1.amazonaws.com",
	} {
		if got, err := dynamo.Endpoint(t.Context(), aws.Config{Region: region}); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", region, got, err, want)
		}
	}
}
