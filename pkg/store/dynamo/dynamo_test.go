package dynamo_test

import (
	"crypto/rand"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var server dynamodblocal.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

// table creates an empty table in a real server. It returns the configuration for
// connections to the server, and the table's name.
func table(t *testing.T) (aws.Config, string) {
	t.Helper()
	cfg := aws.Config{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(server.Endpoint(t)),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	name := "test-" + rand.Text()
	if err := dynamotest.CreateTable(t.Context(), cfg, name); err != nil {
		t.Fatal(err)
	}
	return cfg, name
}

func TestDynamoConforms(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	cfg, name := table(t)
	enginetest.Run(t, func(*testing.T) engine.Engine { return dynamo.New(cfg, name) }, enginetest.Options{})
}
