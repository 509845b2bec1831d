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
