package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

var tables dynamodblocal.Server

func TestMain(m *testing.M) {
	code := m.Run()
	tables.Stop()
	os.Exit(code)
}

// megabyte is the length of the log.
const megabyte = 1_000_000

// toolOutput returns the first megabyte that the tool prints when it makes many resources with identifiers of their own.
func toolOutput(b *testing.B) []byte {
	tool := os.Getenv("FAIRLEAD_TOFU")
	if tool == "" {
		b.Skip("FAIRLEAD_TOFU names no tool; run `make bench-aws`")
	}
	dir := b.TempDir()
	const module = `
resource "terraform_data" "subnet" {
  count = 2600
  input = {
    name = "private-${count.index}"
    cidr = "10.${floor(count.index / 256)}.${count.index % 256}.0/24"
    vpc  = "vpc-${substr(sha256("vpc"), 0, 17)}"
    tags = { environment = "production", component = "network" }
  }
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(module), 0o600); err != nil {
		b.Fatal(err)
	}
	var output bytes.Buffer
	for _, args := range [][]string{{"init", "-no-color"}, {"apply", "-no-color", "-auto-approve"}} {
		cmd := exec.CommandContext(b.Context(), tool, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &output, &output
		if err := cmd.Run(); err != nil {
			b.Fatalf("%s: %v\n%.2000s", cmd, err, output.Bytes())
		}
	}
	if output.Len() < megabyte {
		b.Fatalf("the tool printed only %d bytes", output.Len())
	}
	b.Logf("the tool printed %d bytes", output.Len())
	return output.Bytes()[output.Len()-megabyte:]
}

// BenchmarkJobLog counts what a log of 1 MB costs on AWS: the step writes it evenly in two minutes, with the pace of a log
// without readers. The function logindex appends each piece to the log table, and archives the log at the end.
func BenchmarkJobLog(b *testing.B) {
	output, ctx := toolOutput(b), b.Context()
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(tables.Endpoint(b)), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(ctx, cfg, table); err != nil {
		b.Fatal(err)
	}
	var units dynamotest.Consumed
	cfg.APIOptions = append(cfg.APIOptions, func(s *middleware.Stack) error { return units.Attach(s) })
	live, err := dynamo.New(cfg, dynamo.Options{Table: table, Poll: time.Second, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	var out loggedJob
	for b.Loop() {
		out = loggedJob{Bytes: len(output)}
		t, files := newTally(), &sizedBlobs{Store: blobtest.Memory()}
		kept := archive.New(live, countedBlobs{files, t})
		logger := slog.New(slog.NewJSONHandler(t, nil))
		subscriber := &cloudwatch.Subscriber{Log: live, Groups: "/jobs/", Logger: logger,
			Record: func(string) *cloudwatch.Transport { b.Fatal("a piece is missing"); return nil },
			Budget: joblog.BudgetOf(0, 0), Now: time.Now,
			Owns: func(context.Context, string, joblog.Stream) (string, error) { out.Owners++; return "run_a", nil }}
		s := joblog.Stream{Job: "job_" + rand.Text(), Epoch: 1}
		units.Reset()
		if err := live.Open(ctx, s); err != nil {
			b.Fatal(err)
		}
		const run = 2 * time.Minute
		pieces := int(run / paceOf(len(output), run))
		for i := range pieces {
			from, to := len(output)*i/pieces, len(output)*(i+1)/pieces
			messages := cloudwatch.Encode(int64(from), output[from:to])
			for _, m := range messages {
				out.Events += len(m) + eventBytes
			}
			if _, err := subscriber.Take(ctx, cloudwatch.Delivery{Group: "/jobs/ins_1", Stream: cloudwatch.StreamName(s), Messages: messages}); err != nil {
				b.Fatal(err)
			}
			out.Pieces++
		}
		if err := live.End(ctx, s, false); err != nil {
			b.Fatal(err)
		}
		if _, err := kept.Keep(ctx, s.Job, nil); err != nil {
			b.Fatal(err)
		}
		whole := units.Units()
		out.Writes, out.Reads, out.Puts, out.Gets, out.Archived, out.Logged = whole.Write, whole.Read, t.puts, t.gets, files.size, t.logged
		infos, err := live.Streams(ctx, s.Job)
		if err != nil || len(infos) != 1 || infos[0].Size != megabyte || infos[0].CRC32 != crc32.ChecksumIEEE(output) {
			b.Fatalf("the log has the streams %+v, %v", infos, err)
		}
		out.Packed = stored(b, cfg, table, s.Job)
	}
	b.ReportMetric(out.Writes, "write-units/op")
	b.ReportMetric(200*cost(out.usage(lambdaMS/1000.*functionMB/1024)), "$/200-logs")
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		b.Fatal(err)
	}
	if file := os.Getenv("FAIRLEAD_BENCH_LOG"); file != "" {
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Fprintf(os.Stderr, "%s\n", text)
}

// paceOf returns how often a step sends a log of so many bytes that grows evenly for a time, without a reader.
func paceOf(size int, run time.Duration) time.Duration {
	every := control.Metered()
	if float64(size)*every.LogEvery.Seconds()/run.Seconds() > wire.LogBulk {
		return every.LogBulk
	}
	return every.LogEvery
}

// stored returns the size of the job's items in the table, without the hundred bytes that DynamoDB adds to each.
func stored(b *testing.B, cfg aws.Config, table, job string) (size int) {
	pages := dynamodb.NewQueryPaginator(dynamodb.NewFromConfig(cfg), &dynamodb.QueryInput{TableName: &table,
		KeyConditionExpression: new("pk = :job"), ExpressionAttributeValues: map[string]types.AttributeValue{":job": &types.AttributeValueMemberS{Value: job}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, it := range page.Items {
			for name, value := range it {
				size += len(name)
				switch v := value.(type) {
				case *types.AttributeValueMemberS:
					size += len(v.Value)
				case *types.AttributeValueMemberB:
					size += len(v.Value)
				case *types.AttributeValueMemberN:
					size += len(v.Value)/2 + 1
				default:
					size++
				}
			}
		}
	}
	return size
}

// sizedBlobs counts the bytes of the blobs.
type sizedBlobs struct {
	blob.Store
	size int
}

func (s *sizedBlobs) Put(ctx context.Context, key string, data []byte) error {
	s.size += len(data)
	return s.Store.Put(ctx, key, data)
}
