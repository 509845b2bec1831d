package dynamo_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var (
	tables dynamodblocal.Server
	logs   moto.Server
)

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	logs.Stop()
	os.Exit(code)
}

func config(endpoint string) aws.Config {
	return aws.Config{
		Region: "eu-central-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

// maxStream is the size of a full stream in the suite. In a short run it is smaller,
// because 64 MiB in DynamoDB's JSON take a minute of CPU.
func maxStream() int64 {
	if testing.Short() {
		return 4 << 20
	}
	return joblog.MaxStream
}

func TestIndexConforms(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	joblogtest.Run(t, joblogtest.Harness{
		MaxStream: maxStream(),
		Open: func(t joblogtest.TB, dir string) (joblog.Log, func()) {
			l, err := dynamo.New(cfg, dynamo.Options{Table: table, Now: time.Now, Prefix: filepath.ToSlash(dir) + "#", Poll: time.Second, MaxStream: maxStream()})
			if err != nil {
				t.Fatal(err)
			}
			return l, func() {}
		},
		Remote: true,
	})
}

// A follower in another process finds an append by polling.
func TestFollowerInAnotherProcessFindsTheAppend(t *testing.T) {
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	var both [2]*dynamo.Index
	for i := range both {
		l, err := dynamo.New(cfg, dynamo.Options{Table: table, Now: time.Now, Poll: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		both[i] = l
	}
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := both[0].Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got := make(chan joblog.Chunk, 1)
	go func() {
		c, err := both[1].Follow(t.Context(), s, 0, 100)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	if _, err := both[0].Append(t.Context(), s, 0, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if c := <-got; string(c.Data) != "abc" || c.Next != 3 {
		t.Errorf("followed %+v", c)
	}
}
