package cloudwatch_test

import (
	"crypto/rand"
	"errors"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
)

// group creates an empty log group.
func group(t *testing.T) string {
	t.Helper()
	name := "/fairlead/test-" + rand.Text()
	client := cloudwatchlogs.NewFromConfig(config(logs.Endpoint(t)))
	if _, err := client.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name}); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTransportConforms(t *testing.T) {
	joblogtest.RunTransport(t, func(t *testing.T) joblogtest.Transport {
		return cloudwatch.NewTransport(config(logs.Endpoint(t)), group(t), time.Now)
	})
}

// CloudWatch has all bytes that were put. Repair appends the bytes that a log does not have,
// even if the clock went back and bytes were put several times.
func TestLogIsRepairedFromCloudWatch(t *testing.T) {
	now := time.Now()
	tr := cloudwatch.NewTransport(config(logs.Endpoint(t)), group(t), func() time.Time {
		now = now.Add(-time.Second) // a clock that goes back
		return now
	})
	s := joblog.Stream{Job: "job_1", Epoch: 2}
	log := joblogtest.Memory()
	if err := log.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := tr.Repair(t.Context(), log, s); err != nil {
		t.Errorf("repair of a stream that was never put: %v", err)
	}
	want := []byte(strings.Repeat("aws_vpc.main: Creating…\n", 40_000) + "\x00\xff tail")
	const part = 300_001
	for at := 0; at < len(want); at += part {
		for range 2 { // the second put is a retry after a lost response
			if err := tr.Put(t.Context(), s, int64(at), want[at:min(at+part, len(want))]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := log.Append(t.Context(), s, 0, want[:1000]); err != nil { // the only bytes that the subscription delivered
		t.Fatal(err)
	}
	if err := tr.Repair(t.Context(), log, s); err != nil {
		t.Fatal(err)
	}
	c, err := log.Read(t.Context(), s, 0, 1)
	if err != nil || c.Info.Size != int64(len(want)) || c.Info.CRC32 != crc32.ChecksumIEEE(want) {
		t.Errorf("the log is %+v, %v; want %d bytes", c.Info, err, len(want))
	}
}

// The transport retries after throttling.
func TestThrottledPutIsRetried(t *testing.T) {
	target, err := url.Parse(logs.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	var puts atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutLogEvents") && puts.Add(1) <= 2 {
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"ThrottlingException","message":"Rate exceeded"}`))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	tr := cloudwatch.NewTransport(config(front.URL), group(t), time.Now)
	if err := tr.Put(t.Context(), joblog.Stream{Job: "job_1", Epoch: 1}, 0, []byte("abc")); err != nil {
		t.Errorf("put after two throttled requests: %v", err)
	}
}

// A subscription delivers at least once and in no order.
func TestIngestAcceptsAnyOrder(t *testing.T) {
	log := joblogtest.Memory()
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := log.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	piece := func(at int64, data string) cloudwatch.Event { return cloudwatch.Event{Offset: at, Data: []byte(data)} }
	late := []cloudwatch.Event{piece(9, "jkl"), piece(6, "ghi")}
	before := slices.Clone(late)
	err := cloudwatch.Ingest(t.Context(), log, s, late)
	if e, ok := errors.AsType[*joblog.OffsetError](err); !ok || e.Want != 0 {
		t.Errorf("pieces after a gap: %v, want an OffsetError with 0", err)
	}
	if late[0].Offset != before[0].Offset {
		t.Error("Ingest sorted the caller's slice")
	}
	for _, events := range [][]cloudwatch.Event{
		{piece(3, "def"), piece(0, "abc"), piece(3, "def")}, late, late, {piece(0, "abc")},
	} {
		if err := cloudwatch.Ingest(t.Context(), log, s, events); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := log.Read(t.Context(), s, 0, 100); err != nil || string(c.Data) != "abcdefghijkl" {
		t.Errorf("the log is %q, %v", c.Data, err)
	}
}
