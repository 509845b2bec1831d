package cloudwatch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
)

// A runner writes to CloudWatch without end, which no one can refuse at once. Its log is cut when its budget is used up.
// Later deliveries are refused without a question, also by a new process. The archive does not complete the log from
// CloudWatch. The log of another stream is not cut before its first step.
func TestNoisyRunnersLogIsCut(t *testing.T) {
	p := newShop(t)
	p.budget = joblog.Budget{Burst: 64_000, PerHour: 1}
	p.restart()
	noisy, other := joblog.Stream{Job: "job_1", Epoch: 1}, joblog.Stream{Job: "job_2", Epoch: 1}
	for _, s := range []joblog.Stream{noisy, other} {
		if err := p.log.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	piece := strings.Repeat("x", 10_000)
	take := func(s joblog.Stream, offset, refused int) {
		t.Helper()
		if err := p.transport.Put(t.Context(), s, int64(offset), []byte(piece)); err != nil {
			t.Fatal(err)
		}
		taken, err := p.sub.Take(t.Context(), cloudwatch.Delivery{Group: p.group, Stream: cloudwatch.StreamName(s), Messages: []string{fmt.Sprintf("%d t %s", offset, piece)}})
		if err != nil || taken.Refused != refused {
			t.Errorf("the delivery at %d of %s: %+v, %v; want %d refused", offset, s, taken, err, refused)
		}
	}
	for i := range 7 { // 64 steps of 1,000 bytes are paid; the append of the seventh piece finds some left
		take(noisy, i*10_000, 0)
	}
	take(noisy, 70_000, 0) // stored, and then cut
	take(noisy, 80_000, 1)
	asked := p.asked
	take(noisy, 90_000, 1)
	p.restart()
	take(noisy, 100_000, 1)
	if p.asked != asked+1 {
		t.Errorf("the owner of a stream that is cut was asked %d times, want once by the new process", p.asked-asked)
	}
	taken, err := p.sub.Take(t.Context(), cloudwatch.Delivery{Group: p.group, Stream: "job_2/1", Messages: []string{"0 t short"}})
	if err != nil || taken.Pieces != 1 {
		t.Errorf("the first bytes of another log: %+v, %v", taken, err)
	}

	if err := p.log.End(t.Context(), noisy, false); err != nil {
		t.Fatal(err)
	}
	kept, err := p.log.Keep(t.Context(), noisy.Job, p.transport)
	if err != nil || kept.Bytes != 80_000 || kept.Found != 0 || kept.Truncated != 1 {
		t.Errorf("the archive kept %+v, %v; want the 80,000 bytes before the cut", kept, err)
	}
	if infos, err := p.log.Streams(t.Context(), noisy.Job); err != nil || !infos[0].Cut || !infos[0].Truncated {
		t.Errorf("the archived log is %+v, %v", infos, err)
	}
}
