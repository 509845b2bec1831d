package dynamodblocal

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// Records returns what is in the stream of the table at the server: each
// record as JSON, shard by shard, in order. They have the form in which Lambda
// passes them on.
func Records(t testing.TB, endpoint, table string) []json.RawMessage {
	t.Helper()
	call := func(target, in string, out any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, bytes.NewReader([]byte(in)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-amz-json-1.0")
		req.Header.Set("X-Amz-Target", target)
		// The server wants to know who asks, and does not check it.
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20261120/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if cerr := resp.Body.Close(); err == nil {
			err = cerr
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			err = json.Unmarshal(body, out)
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v: %s", target, resp.Status, err, body)
		}
	}
	quote := func(v map[string]any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const streams = "DynamoDBStreams_20120810."
	var described struct {
		Table struct{ LatestStreamArn string }
	}
	call("DynamoDB_20120810.DescribeTable", quote(map[string]any{"TableName": table}), &described)
	arn := described.Table.LatestStreamArn
	if arn == "" {
		t.Fatalf("table %s has no stream", table)
	}
	var found []json.RawMessage
	after := "" // the shard before
	for {
		in := map[string]any{"StreamArn": arn}
		if after != "" {
			in["ExclusiveStartShardId"] = after
		}
		var stream struct {
			StreamDescription struct {
				Shards               []struct{ ShardId string }
				LastEvaluatedShardId string
			}
		}
		call(streams+"DescribeStream", quote(in), &stream)
		for _, shard := range stream.StreamDescription.Shards {
			var at struct{ ShardIterator string }
			call(streams+"GetShardIterator", quote(map[string]any{"StreamArn": arn, "ShardId": shard.ShardId, "ShardIteratorType": "TRIM_HORIZON"}), &at)
			for at.ShardIterator != "" {
				var page struct {
					Records           []json.RawMessage
					NextShardIterator string
				}
				call(streams+"GetRecords", quote(map[string]any{"ShardIterator": at.ShardIterator}), &page)
				found = append(found, page.Records...)
				at.ShardIterator = page.NextShardIterator
				if len(page.Records) == 0 {
					break // an open shard has no end
				}
			}
		}
		if after = stream.StreamDescription.LastEvaluatedShardId; after == "" {
			return found
		}
	}
}
