package cloudwatch_test

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// shop is an install's log on AWS: its record in CloudWatch, the log, and the subscriber
// between them.
type shop struct {
	t         *testing.T
	transport *cloudwatch.Transport
	log       *archive.Log
	live      joblog.Log // log without the archive
	sub       *cloudwatch.Subscriber
	group     string
	owned     error // the answer of Owns
	asked     int   // the calls of Owns
	budget    joblog.Budget
}

const groups = "/fairlead/test-"

func newShop(t *testing.T) *shop {
	t.Helper()
	cfg := config(logs.Endpoint(t))
	live := joblogtest.Memory()
	p := &shop{t: t, group: group(t), live: live, log: archive.New(live, blobtest.Memory())}
	p.transport = cloudwatch.NewTransport(cfg, p.group, time.Now)
	p.restart()
	return p
}

// restart replaces the subscriber, as another process has it.
func (p *shop) restart() {
	cfg := config(logs.Endpoint(p.t))
	p.sub = &cloudwatch.Subscriber{Log: p.log, Groups: groups, Logger: slog.New(slog.DiscardHandler),
		Owns:   func(context.Context, string, joblog.Stream) (string, error) { p.asked++; return "run_a", p.owned },
		Budget: p.budget, Now: time.Now,
		Record: func(group string) *cloudwatch.Transport { return cloudwatch.NewTransport(cfg, group, time.Now) }}
}

// Each question for the install of a stream reads the table. A stream that one install owns
// is no answer for another install.
func TestOwnerOfAStreamIsAskedOnce(t *testing.T) {
	p := newShop(t)
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := p.log.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	take := func(group, message string, refused int) {
		t.Helper()
		taken, err := p.sub.Take(t.Context(), cloudwatch.Delivery{Group: group, Stream: "job_1/1", Messages: []string{message}})
		if err != nil || taken.Refused != refused {
			t.Errorf("%+v, %v; want %d refused", taken, err, refused)
		}
	}
	forbidden := &fairlead.Error{Kind: fairlead.KindForbidden, Code: "not-yours", Message: "the job is of another install"}
	p.owned = forbidden
	take(p.group, "0 t abc", 1)
	p.owned = nil
	take(p.group, "0 t abc", 0)
	take(p.group, "3 t def", 0)
	if p.asked != 2 {
		t.Errorf("the owner was asked %d times, want 2: a refusal is not remembered, an owner is", p.asked)
	}
	p.owned = forbidden
	take(groups+"another", "6 t ghi", 1)
	if p.asked != 3 {
		t.Errorf("the owner was asked %d times, want 3: another install is another question", p.asked)
	}
}

// events returns the messages in CloudWatch, as a subscription would deliver them.
func (p *shop) events(s joblog.Stream) (messages []string) {
	p.t.Helper()
	out, err := cloudwatchlogs.NewFromConfig(config(logs.Endpoint(p.t))).GetLogEvents(p.t.Context(), &cloudwatchlogs.GetLogEventsInput{
		LogGroupName: &p.group, LogStreamName: aws.String(cloudwatch.StreamName(s)), StartFromHead: aws.Bool(true)})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range out.Events {
		messages = append(messages, *e.Message)
	}
	return messages
}

// The subscription is late, repeats events, changes their order and loses some events. In
// the end, the archive has every written byte. The log counts as complete only if its writer
// reported its end. Otherwise the log counts as truncated.
func TestLogIsCompleteDespiteAFaultySubscription(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	p := newShop(t)
	random := mathrand.New(mathrand.NewPCG(7, 7))
	for epoch := int64(1); epoch <= 8; epoch++ {
		s := joblog.Stream{Job: "job_1", Epoch: epoch}
		if err := p.log.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for range 30 {
			piece := bytes.Repeat([]byte{byte('a' + random.IntN(26))}, 1+random.IntN(2000))
			if random.IntN(4) == 0 {
				piece[0] = 0xff // not text
			}
			for range 1 + random.IntN(2) { // the second put is a retry after a lost response
				if err := p.transport.Put(t.Context(), s, int64(len(want)), piece); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, piece...)
		}
		info := joblog.Info{Stream: s, Size: int64(len(want)), CRC32: crc32.ChecksumIEEE(want)}
		reported := epoch%2 == 0
		if reported {
			if err := p.transport.End(t.Context(), info); err != nil {
				t.Fatal(err)
			}
		}
		events := p.events(s)
		random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for _, part := range [][]string{events[:len(events)/3], events[len(events)/4 : len(events)/2]} { // the other events come too late
			if taken, err := p.sub.Take(t.Context(), cloudwatch.Delivery{Group: p.group, Stream: cloudwatch.StreamName(s), Messages: part}); err != nil || taken.Refused > 0 {
				t.Fatalf("epoch %d: %+v, %v", epoch, taken, err)
			}
		}
		if epoch > 4 { // the step dies before it put everything
			late := bytes.Repeat([]byte("late\n"), 100)
			if err := p.transport.Put(t.Context(), s, int64(len(want)), late); err != nil {
				t.Fatal(err)
			}
			want, reported = append(want, late...), false
		}
		if err := p.log.End(t.Context(), s, true); err != nil {
			t.Fatal(err)
		}
		if taken, err := p.sub.Take(t.Context(), cloudwatch.Delivery{Group: p.group, Stream: cloudwatch.StreamName(s), Messages: p.events(s)}); err != nil {
			t.Errorf("epoch %d: Take of a delivery after the end: %+v, %v", epoch, taken, err)
		}
		if _, err := p.log.Keep(t.Context(), s.Job, p.transport); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			c, err := p.log.Read(t.Context(), s, int64(len(got)), 10_000)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, c.Data...); c.Ended {
				if c.Info.Truncated == reported {
					t.Errorf("epoch %d: truncated is %t, but the writer reported its end: %t", epoch, c.Info.Truncated, reported)
				}
				break
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("epoch %d: read %d bytes, want %d", epoch, len(got), len(want))
		}
	}
}

// A new or repeated delivery after the log was archived is no failure. Otherwise the
// delivery would be retried without success and become a dead letter.
func TestDeliveryAfterTheArchiveIsAccepted(t *testing.T) {
	p := newShop(t)
	p.sub.Log = p.live // the subscriber's function also uses the log without the archive
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := p.log.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for at, piece := range map[int64]string{0: "abc", 3: "def"} {
		if err := p.transport.Put(t.Context(), s, at, []byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	first := cloudwatch.Delivery{Group: p.group, Stream: cloudwatch.StreamName(s), Messages: []string{"0 t abc"}}
	if _, err := p.sub.Take(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := p.log.End(t.Context(), s, true); err != nil {
		t.Fatal(err)
	}
	if _, err := p.log.Keep(t.Context(), s.Job, p.transport); err != nil {
		t.Fatal(err)
	}
	if c, err := p.live.Read(t.Context(), s, 0, 10); !errors.Is(err, joblog.ErrMoved) {
		t.Fatalf("the log was not moved: %+v, %v", c, err)
	}
	for what, d := range map[string]cloudwatch.Delivery{
		"repeated": first, "late": {Group: p.group, Stream: first.Stream, Messages: []string{"3 t def"}},
	} {
		if taken, err := p.sub.Take(t.Context(), d); err != nil || taken.Pieces != 1 {
			t.Errorf("%s delivery: %+v, %v", what, taken, err)
		}
	}
	if c, err := p.log.Read(t.Context(), s, 0, 10); err != nil || string(c.Data) != "abcdef" {
		t.Errorf("the log is %q, %v", c.Data, err)
	}
}

// Any writer with access to a log group can write anything to it. Such events are not
// appended to a log and not retried.
func TestForeignEventsAreRefused(t *testing.T) {
	p := newShop(t)
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := p.log.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := p.log.Append(t.Context(), s, 0, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	forbidden := &fairlead.Error{Kind: fairlead.KindForbidden, Code: "not-yours", Message: "the job is of another install"}
	for name, test := range map[string]struct {
		d       cloudwatch.Delivery
		owned   error
		refused int
	}{
		"group of another service":        {cloudwatch.Delivery{Group: "/aws/lambda/x", Stream: "job_1/1", Messages: []string{"3 t d"}}, nil, 1},
		"group without an install":        {cloudwatch.Delivery{Group: groups, Stream: "job_1/1", Messages: []string{"3 t d"}}, nil, 1},
		"stream without a job":            {cloudwatch.Delivery{Group: p.group, Stream: "hello", Messages: []string{"3 t d", "4 t e"}}, nil, 2},
		"job of another install":          {cloudwatch.Delivery{Group: p.group, Stream: "job_1/1", Messages: []string{"3 t d"}}, forbidden, 1},
		"messages that are no pieces":     {cloudwatch.Delivery{Group: p.group, Stream: "job_1/1", Messages: []string{"hello", "", "-1 t x", "0 e zz whole"}}, nil, 4},
		"bytes that differ from the log":  {cloudwatch.Delivery{Group: p.group, Stream: "job_1/1", Messages: []string{"0 t xyz"}}, nil, 1},
		"attempt that was never opened":   {cloudwatch.Delivery{Group: p.group, Stream: "job_1/2", Messages: []string{"0 t abc"}}, nil, 1},
		"piece next to a foreign message": {cloudwatch.Delivery{Group: p.group, Stream: "job_1/1", Messages: []string{"rm -rf /", "0 t abc"}}, nil, 1},
	} {
		p.owned = test.owned
		p.restart()
		taken, err := p.sub.Take(t.Context(), test.d)
		if err != nil || taken.Refused != test.refused {
			t.Errorf("%s: %+v, %v; want %d refused", name, taken, err, test.refused)
		}
	}
	if c, err := p.log.Read(t.Context(), s, 0, 100); err != nil || string(c.Data) != "abc" {
		t.Errorf("the log is %q, %v", c.Data, err)
	}
	p.owned = errors.New("the table does not answer")
	p.restart()
	if _, err := p.sub.Take(t.Context(), cloudwatch.Delivery{Group: p.group, Stream: "job_1/1", Messages: []string{"3 t d"}}); err == nil {
		t.Error("Take without a decision on the owner: no error, so no retry")
	}
}

// If the missing bytes before an event are neither in the next delivery nor in the record,
// Take returns an error, so that the delivery is retried.
func TestDeliveryAfterAGapIsRetried(t *testing.T) {
	p := newShop(t)
	s := joblog.Stream{Job: "job_1", Epoch: 1}
	if err := p.log.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	late := cloudwatch.Delivery{Group: p.group, Stream: "job_1/1", Messages: []string{"3 t def"}}
	if _, err := p.sub.Take(t.Context(), late); err == nil {
		t.Error("a piece after a gap was accepted")
	}
	if err := p.transport.Put(t.Context(), s, 0, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if taken, err := p.sub.Take(t.Context(), late); err != nil || taken.Pieces != 1 {
		t.Errorf("with the missing bytes in the record: %+v, %v", taken, err)
	}
	if c, err := p.log.Read(t.Context(), s, 0, 100); err != nil || string(c.Data) != "abcdef" {
		t.Errorf("the log is %q, %v", c.Data, err)
	}
}
