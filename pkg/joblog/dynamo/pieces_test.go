package dynamo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
)

// output returns the output of a tool that makes n resources.
func output(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "module.network.aws_subnet.private[%d]: Creation complete after %ds [id=subnet-%08x]\n", i, i%7, i*2654435761)
	}
	return b.String()
}

// A piece of a tool's output is compressed, is one write, and expires at DynamoDB's own cost. Move writes only the
// stream's item.
func TestPiecesAreCompressedAndExpire(t *testing.T) {
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	metered, sum := cfg.Copy(), &dynamotest.Consumed{}
	metered.APIOptions = append(metered.APIOptions, func(s *middleware.Stack) error { return sum.Attach(s) })
	l, err := dynamo.New(metered, dynamo.Options{Table: table, Poll: time.Second, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	s, data := joblog.Stream{Job: "job_1", Epoch: 1}, output(600)
	if err := l.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	sum.Reset()
	if _, err := l.Append(t.Context(), s, 0, []byte(data)); err != nil {
		t.Fatal(err)
	}
	stored := pieces(t.Context(), t, dynamodb.NewFromConfig(cfg), table)
	if len(stored) != 1 {
		t.Fatalf("%d pieces, want 1", len(stored))
	}
	packed, ok := stored[0]["zstd"].(*types.AttributeValueMemberB)
	if !ok || len(packed.Value) > len(data)/4 {
		t.Errorf("the piece of %d bytes has the attributes %v, want it compressed to a quarter", len(data), stored[0])
	}
	want := strconv.FormatInt(now.Add(7*24*time.Hour).Unix(), 10)
	if at, ok := stored[0][dynamo.AttrExpires].(*types.AttributeValueMemberN); !ok || at.Value != want {
		t.Errorf("the piece expires at %v, want %s", stored[0][dynamo.AttrExpires], want)
	}
	if limit := float64(len(packed.Value)/1024 + 1); sum.Units().Write > limit {
		t.Errorf("the append took %v write units, want %v", sum.Units().Write, limit)
	}
	if err := l.End(t.Context(), s, false); err != nil {
		t.Fatal(err)
	}
	sum.Reset()
	if err := l.Move(t.Context(), joblog.Info{Stream: s, Size: int64(len(data)), CRC32: crc32.ChecksumIEEE([]byte(data)), Ended: true}); err != nil {
		t.Fatal(err)
	}
	if got := sum.Units().Write; got != 1 {
		t.Errorf("the move took %v write units, want 1", got)
	}
	if got := pieces(t.Context(), t, dynamodb.NewFromConfig(cfg), table); len(got) != 2 { // the second one ends the chain
		t.Errorf("after the move there are %d pieces, want 2, which expire", len(got))
	}
}

// An append reads the stream and the end of its chain at once. Of an old stream, whose epoch was followed by others, it reads
// the end of the chain on its own.
func TestAppendCostsOneReadUnit(t *testing.T) {
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	sum := &dynamotest.Consumed{}
	cfg.APIOptions = append(cfg.APIOptions, func(s *middleware.Stack) error { return sum.Attach(s) })
	l, err := dynamo.New(cfg, dynamo.Options{Table: table, Poll: time.Second, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	for epoch, most := range map[int64]float64{1: 1, 2: 2} {
		s := joblog.Stream{Job: fmt.Sprint("job_", epoch), Epoch: epoch}
		for e := range epoch {
			if err := l.Open(t.Context(), joblog.Stream{Job: s.Job, Epoch: e + 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(t.Context(), joblog.Stream{Job: s.Job, Epoch: e + 1}, 0, []byte("first\n")); err != nil {
				t.Fatal(err)
			}
		}
		sum.Reset()
		if _, err := l.Append(t.Context(), s, 6, []byte("second\n")); err != nil {
			t.Fatal(err)
		}
		if got := sum.Units().Read; got == 0 || got > most {
			t.Errorf("an append to epoch %d read %v units, want %v", epoch, got, most)
		}
		if c, err := l.Read(t.Context(), s, 0, 100); err != nil || string(c.Data) != "first\nsecond\n" {
			t.Errorf("epoch %d has %q, %v", epoch, c.Data, err)
		}
	}
}

func pieces(ctx context.Context, t *testing.T, c *dynamodb.Client, table string) []map[string]types.AttributeValue {
	t.Helper()
	from, to := &types.AttributeValueMemberS{Value: "c#"}, &types.AttributeValueMemberS{Value: "c$"}
	out, err := c.Query(ctx, &dynamodb.QueryInput{TableName: &table, KeyConditionExpression: new("pk = :job AND sk BETWEEN :from AND :to"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":job": &types.AttributeValueMemberS{Value: "job_1"}, ":from": from, ":to": to}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Items
}

// A writer that read the stream before its end finds the key of its piece occupied.
func TestLatePieceFindsTheStreamClosed(t *testing.T) {
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	l, err := dynamo.New(cfg, dynamo.Options{Table: table, Poll: time.Second, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	// The slow writer stops before its put, while the stream is fenced by the next attempt.
	late := cfg.Copy()
	late.APIOptions = append(late.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("late", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			if _, ok := in.Parameters.(*dynamodb.PutItemInput); ok {
				if err := l.Open(ctx, joblog.Stream{Job: "job_1", Epoch: 2}); err != nil {
					t.Error(err)
				}
			}
			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
	})
	slow, err := dynamo.New(late, dynamo.Options{Table: table, Poll: time.Second, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), s, 0, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Append(t.Context(), s, 3, []byte("d")); !errors.Is(err, joblog.ErrFenced) {
		t.Errorf("append after the fence: %v, want ErrFenced", err)
	}
	if c, err := l.Read(t.Context(), s, 0, 10); err != nil || string(c.Data) != "abc" || c.Info.Size != 3 {
		t.Errorf("the fenced stream is %+v, %v", c, err)
	}
}
