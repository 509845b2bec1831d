package control_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/pkg/store/sqlite"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// clock is a clock whose time changes only if a test changes it.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// The engines of production pass the same story as the engine in memory.
func TestMainStoryOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	mainStory(t, newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestPlacementOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	placementStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

// server is a DynamoDB Local that all tests of this package share.
var server dynamodblocal.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	queues.Stop()
	os.Exit(code)
}

func TestMainStoryOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	mainStory(t, newPlaneAt(t, dynamoTable(t, "fairlead"), c.now, c.sleep))
}

func TestPlacementOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	placementStory(newPlaneAt(t, dynamoTable(t, "placement"), c.now, c.sleep))
}

func sqliteTable(t *testing.T) *sqlite.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "table.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the table: %v", err)
		}
	})
	return e
}

func dynamoTable(t *testing.T, name string) *dynamo.Engine {
	t.Helper()
	e, _ := dynamoTableNamed(t, name)
	return e
}

// dynamoTableNamed also returns the name of the table.
func dynamoTableNamed(t *testing.T, name string) (*dynamo.Engine, string) {
	t.Helper()
	name += "-" + rand.Text() // the name is random, because another run of this package may use the same server
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(server.Endpoint(t)),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil // the reader of the stream has the same; the server has tables for each access key
		})}
	if err := dynamotest.CreateTable(t.Context(), cfg, name); err != nil {
		t.Fatal(err)
	}
	return dynamo.New(cfg, name), name
}
