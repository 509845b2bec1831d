package awstest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// The subscriptions of log groups go to a Kinesis stream in place of the function,
// because a test can read the stream. The stream gets the same deliveries as the
// function.

// kinesis calls an operation of moto's Kinesis.
func (a *account) kinesis(ctx context.Context, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpoints["S3"], bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "Kinesis_20131202."+action)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20261121/"+region+"/kinesis/aws4_request, SignedHeaders=host, Signature=x")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", action, res.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

func (a *account) logStream() string { return "logs-" + a.id }

// redirectSubscription replaces the function by the stream in a request to
// subscribe a log group. It returns other requests unchanged.
func (a *account) redirectSubscription(r *http.Request, body []byte) []byte {
	var in map[string]any
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutSubscriptionFilter") || json.Unmarshal(body, &in) != nil {
		return body
	}
	if want := a.attribute("LogIndex", "Arn") + ":live"; in["destinationArn"] != want { // the function's alias
		a.t.Errorf("a log group is subscribed to %v, want %s", in["destinationArn"], want)
	}
	in["destinationArn"] = "arn:aws:kinesis:" + region + ":" + accountID + ":stream/" + a.logStream()
	out, err := json.Marshal(in)
	if err != nil {
		a.t.Error(err)
	}
	return out
}

// pumpLogs invokes logindex with the deliveries of the subscriptions.
func (a *account) pumpLogs(ctx context.Context) {
	var at struct{ ShardIterator string }
	each(ctx, 100*time.Millisecond, func() bool {
		if at.ShardIterator == "" {
			in := map[string]string{"StreamName": a.logStream(), "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
			if err := a.kinesis(ctx, "GetShardIterator", in, &at); err != nil {
				return false // the stream does not exist yet
			}
		}
		var got struct {
			Records           []struct{ Data []byte }
			NextShardIterator string
		}
		if err := a.kinesis(ctx, "GetRecords", map[string]string{"ShardIterator": at.ShardIterator}, &got); err != nil {
			at.ShardIterator = ""
			return false
		}
		at.ShardIterator = got.NextShardIterator
		for _, r := range got.Records {
			event := map[string]any{"awslogs": map[string]any{"data": base64.StdEncoding.EncodeToString(r.Data)}}
			for attempt := 1; ; attempt++ {
				out, err := a.invoke(ctx, "logindex", event)
				if err == nil || ctx.Err() != nil {
					break
				}
				if attempt == 3 {
					a.t.Errorf("logindex failed %d times for one delivery: %s, %v", attempt, out, err)
					break
				}
			}
		}
		return len(got.Records) > 0
	})
}
