package dynamo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/pkg/blob"
	blobs3 "github.com/fairlead/fairlead/pkg/blob/s3"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// archivedAtOnce is a log that archives each stream as soon as the stream has ended.
type archivedAtOnce struct{ *archive.Log }

func (l archivedAtOnce) End(ctx context.Context, s joblog.Stream, truncated bool) error {
	if err := l.Log.End(ctx, s, truncated); err != nil {
		return err
	}
	if _, err := l.Keep(ctx, s.Job, nil); err != nil && !errors.Is(err, archive.ErrOpen) {
		return err
	}
	return nil
}

// bucket returns a blob store in a new bucket.
func bucket(t *testing.T) blob.Store {
	t.Helper()
	cfg, name := config(logs.Endpoint(t)), strings.ToLower("logs-"+rand.Text())
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: "eu-central-1"}}); err != nil {
		t.Fatal(err)
	}
	b, err := blobs3.New(cfg, blobs3.Options{Bucket: name, PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestArchivedIndexConforms(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	blobs := bucket(t)
	joblogtest.Run(t, joblogtest.Harness{
		MaxStream: maxStream(),
		Open: func(t joblogtest.TB, dir string) (joblog.Log, func()) {
			l, err := dynamo.New(cfg, dynamo.Options{Table: table, Now: time.Now, Prefix: filepath.ToSlash(dir) + "#", Poll: time.Second, MaxStream: maxStream()})
			if err != nil {
				t.Fatal(err)
			}
			return archivedAtOnce{archive.New(l, inFolder{blobs, fmt.Sprintf("%08x/", crc32.ChecksumIEEE([]byte(dir)))})}, func() {}
		},
		Remote: true,
	})
}

// inFolder stores the blobs of one test in their own folder, separate from the blobs of
// other tests.
type inFolder struct {
	blob.Store
	prefix string
}

func (s inFolder) Put(ctx context.Context, key string, data []byte) error {
	return s.Store.Put(ctx, s.prefix+key, data)
}
func (s inFolder) Get(ctx context.Context, key string) ([]byte, error) {
	return s.Store.Get(ctx, s.prefix+key)
}
func (s inFolder) Delete(ctx context.Context, key string) error {
	return s.Store.Delete(ctx, s.prefix+key)
}
func (s inFolder) List(ctx context.Context, prefix string) ([]string, error) {
	keys, err := s.Store.List(ctx, s.prefix+prefix)
	for i := range keys {
		keys[i] = strings.TrimPrefix(keys[i], s.prefix)
	}
	return keys, err
}

// A repeated Move is no error. After the first Move, a reader in another process reads the
// stream from the archive, although the table still has its bytes.
func TestRepeatedMoveChangesNothing(t *testing.T) {
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	l, err := dynamo.New(cfg, dynamo.Options{Table: table, Now: time.Now, Poll: time.Second, MaxStream: maxStream()})
	if err != nil {
		t.Fatal(err)
	}
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	info := joblog.Info{Stream: s, Size: 3, CRC32: crc32.ChecksumIEEE([]byte("abc")), Ended: true}
	if err := l.Move(t.Context(), info); !errors.Is(err, joblog.ErrNotFound) {
		t.Errorf("move of a stream that was never opened: %v", err)
	}
	if err := l.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), s, 0, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if err := l.Move(t.Context(), info); fairlead.KindOf(err) != fairlead.KindConflict {
		t.Errorf("move of an open stream: %v", err)
	}
	if err := l.End(t.Context(), s, false); err != nil {
		t.Fatal(err)
	}
	short := info
	short.Size = 2
	if err := l.Move(t.Context(), short); fairlead.KindOf(err) != fairlead.KindConflict {
		t.Errorf("move with an info that lacks the last byte: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Move(ctx, info); !errors.Is(err, context.Canceled) {
		t.Errorf("move with an ended context: %v", err)
	}
	for range 2 {
		if err := l.Move(t.Context(), info); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := l.Read(t.Context(), s, 1, 1); !errors.Is(err, joblog.ErrMoved) || c.Info != info {
		t.Errorf("read %+v, %v", c, err)
	}
}

// The archive was out of order for more than a week, so DynamoDB has removed the pieces of an ended
// log. When its dead letter is replayed, the archive takes the log from CloudWatch Logs, and only
// if it has exactly the bytes that the log had.
func TestExpiredLogIsArchivedFromItsRecord(t *testing.T) {
	cfg := config(tables.Endpoint(t))
	table := "logs-" + rand.Text()
	if err := dynamotest.CreateLogTable(t.Context(), cfg, table); err != nil {
		t.Fatal(err)
	}
	live, err := dynamo.New(cfg, dynamo.Options{Table: table, Now: time.Now, Poll: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	whole := []byte("plan: 2 to add\napply complete\n")
	for _, test := range []struct {
		name, job string
		record    []byte // nil: none
		archived  bool
	}{
		{"the record has the log", "job_1", whole, true},
		{"the record has more than the log", "job_2", append(whole[:len(whole):len(whole)], "late"...), true},
		{"the record has other bytes", "job_3", []byte(strings.ToUpper(string(whole))), false},
		{"the record has a part", "job_4", whole[:9], false},
		{"there is no record", "job_5", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := joblog.Stream{Job: test.job, Epoch: 1}
			l := archive.New(live, bucket(t))
			if err := l.Open(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(t.Context(), s, 0, whole); err != nil {
				t.Fatal(err)
			}
			if err := l.End(t.Context(), s, false); err != nil {
				t.Fatal(err)
			}
			if n, err := dynamotest.ExpireLog(t.Context(), cfg, table, test.job); err != nil || n == 0 {
				t.Fatalf("%d pieces removed, %v", n, err)
			}
			if _, err := l.Read(t.Context(), s, 0, 1); !errors.Is(err, joblog.ErrExpired) {
				t.Errorf("read before the archive has it: %v", err)
			}
			var record archive.Record
			if test.record != nil {
				r := joblogtest.MemoryTransport()
				if err := r.Put(t.Context(), s, 0, test.record); err != nil {
					t.Fatal(err)
				}
				record = r
			}
			kept, err := l.Keep(t.Context(), test.job, record)
			if !test.archived {
				if err == nil {
					t.Errorf("archived %+v", kept)
				}
				return
			}
			c, rerr := l.Read(t.Context(), s, 0, joblog.MaxRead)
			if err != nil || rerr != nil || string(c.Data) != string(whole) || c.Info.Truncated || kept.Found != int64(len(whole)) {
				t.Errorf("archived %+v, %v; read %q of %+v, %v", kept, err, c.Data, c.Info, rerr)
			}
		})
	}
}
