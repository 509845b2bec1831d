package dynamodblocal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// Records returns all records in the stream of the table at the server, shard by shard,
// in order. Each is JSON in the form that Lambda passes to a function.
func Records(t testing.TB, endpoint, table string) []json.RawMessage {
	t.Helper()
	s := Stream{Endpoint: endpoint, Table: table}
	found, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Stream reads the stream of a table from its beginning. Not safe for concurrent
// use.
type Stream struct {
	Endpoint string // URL of the server
	Table    string

	shards []string          // in order
	at     map[string]string // iterator by shard; "": the shard has ended
}

const (
	tableAPI  = "DynamoDB_20120810."
	streamAPI = "DynamoDBStreams_20120810."
)

// Next returns the records since the previous call, in the order of each shard.
func (s *Stream) Next(ctx context.Context) ([]json.RawMessage, error) {
	if err := s.findShards(ctx); err != nil {
		return nil, err
	}
	var found []json.RawMessage
	for _, shard := range s.shards {
		for s.at[shard] != "" {
			var page struct {
				Records           []json.RawMessage
				NextShardIterator string
			}
			if err := s.call(ctx, streamAPI+"GetRecords", map[string]any{"ShardIterator": s.at[shard]}, &page); err != nil {
				return found, err
			}
			s.at[shard] = page.NextShardIterator
			found = append(found, page.Records...)
			if len(page.Records) == 0 {
				break // the iterator of an open shard never ends
			}
		}
	}
	return found, nil
}

// findShards adds the new shards of the stream.
func (s *Stream) findShards(ctx context.Context) error {
	var described struct {
		Table struct{ LatestStreamArn string }
	}
	if err := s.call(ctx, tableAPI+"DescribeTable", map[string]any{"TableName": s.Table}, &described); err != nil {
		return err
	}
	arn := described.Table.LatestStreamArn
	if arn == "" {
		return fmt.Errorf("table %s has no stream", s.Table)
	}
	if s.at == nil {
		s.at = map[string]string{}
	}
	in := map[string]any{"StreamArn": arn}
	for {
		var stream struct {
			StreamDescription struct {
				Shards               []struct{ ShardId string }
				LastEvaluatedShardId string
			}
		}
		if err := s.call(ctx, streamAPI+"DescribeStream", in, &stream); err != nil {
			return err
		}
		for _, shard := range stream.StreamDescription.Shards {
			if _, known := s.at[shard.ShardId]; known {
				continue
			}
			var at struct{ ShardIterator string }
			if err := s.call(ctx, streamAPI+"GetShardIterator", map[string]any{"StreamArn": arn, "ShardId": shard.ShardId, "ShardIteratorType": "TRIM_HORIZON"}, &at); err != nil {
				return err
			}
			s.shards, s.at[shard.ShardId] = append(s.shards, shard.ShardId), at.ShardIterator
		}
		if stream.StreamDescription.LastEvaluatedShardId == "" {
			return nil
		}
		in["ExclusiveStartShardId"] = stream.StreamDescription.LastEvaluatedShardId
	}
}

func (s *Stream) call(ctx context.Context, target string, in map[string]any, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", target)
	// The server requires this header and does not check the signature.
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20261120/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	body, err = io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, out)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %v: %s", target, resp.Status, err, body)
	}
	return nil
}
