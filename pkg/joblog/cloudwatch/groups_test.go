package cloudwatch_test

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/fairlead/fairlead/pkg/control/controltest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
)

func TestGroupsConform(t *testing.T) {
	cfg, prefix := config(logs.Endpoint(t)), "/fairlead/groups-"+rand.Text()+"/"
	client := cloudwatchlogs.NewFromConfig(cfg)
	// The destination of events must exist. In this test the destination is a stream, not a
	// function.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, *cfg.BaseEndpoint, strings.NewReader(`{"StreamName":"logs","ShardCount":1}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "Kinesis_20131202.CreateStream")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20261121/eu-central-1/kinesis/aws4_request, SignedHeaders=host, Signature=x")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("create the stream: %v, %v", res, err)
	}
	res.Body.Close()
	stream := "arn:aws:kinesis:eu-central-1:123456789012:stream/logs"
	controltest.LogRecords(t, controltest.Records{
		Open: func(t *testing.T) controltest.LogPlaces {
			g, err := cloudwatch.NewGroups(cfg, cloudwatch.GroupOptions{Prefix: prefix, Days: 30, Subscriber: stream})
			if err != nil {
				t.Fatal(err)
			}
			return g
		},
		There: func(t *testing.T, install fairlead.InstallID) bool {
			name := prefix + string(install)
			out, err := client.DescribeLogGroups(t.Context(), &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &name})
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(out.LogGroups, func(g types.LogGroup) bool { return *g.LogGroupName == name })
		},
		Write: func(t *testing.T, install fairlead.InstallID) error {
			return cloudwatch.NewTransport(cfg, prefix+string(install), time.Now).Put(t.Context(), joblog.Stream{Job: "job_1", Epoch: 1}, 0, []byte("a line\n"))
		},
	})
}
