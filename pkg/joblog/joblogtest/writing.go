package joblogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

func story(s *suite) {
	s.opened(at(1))
	s.holds(at(1), "")
	s.append(at(1), 0, "plan: ")
	s.append(at(1), 6, "2 to add\n")
	c := s.read(at(1), 0, 4)
	if string(c.Data) != "plan" || c.Next != 4 || c.Ended || c.Info.Ended || c.Info.Size != 15 {
		s.Errorf("read of a part: %+v", c)
	}
	s.end(at(1), false)
	c = s.read(at(1), 6, 100)
	if string(c.Data) != "2 to add\n" || c.Next != 15 || !c.Ended || !c.Info.Ended || c.Info.Truncated {
		s.Errorf("read of the end: %+v", c)
	}
	s.holds(at(1), "plan: 2 to add\n")
}

func notFound(s *suite) {
	ctx := s.Context()
	_, errAppend := s.log.Append(ctx, at(1), 0, []byte("x"))
	_, errRead := s.log.Read(ctx, at(1), 0, 1)
	_, errFollow := s.log.Follow(ctx, at(1), 0, 1)
	for what, err := range map[string]error{
		"append": errAppend, "read": errRead, "follow": errFollow, "end": s.log.End(ctx, at(1), false),
	} {
		if !errors.Is(err, joblog.ErrNotFound) {
			s.Errorf("%s: %v, want ErrNotFound", what, err)
		}
	}
	if infos, err := s.log.Streams(ctx, "job_1"); err != nil || len(infos) != 0 {
		s.Errorf("the refused calls created streams: %v, %v", infos, err)
	}
}

func openAgain(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.opened(at(1))
	s.holds(at(1), "abc")
	s.end(at(1), true)
	s.opened(at(1))
	if i := s.info(at(1)); !i.Ended || !i.Truncated {
		s.Errorf("the second Open reopened the stream: %+v", i)
	}
}

func fencing(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.opened(at(3)) // epochs may be skipped
	s.refused(at(1), 3, "d", joblog.ErrFenced)
	s.refused(at(1), 9, "d", joblog.ErrFenced)             // also for a gap: the writer must stop, not fill the gap
	s.refused(at(1), math.MaxInt64, "d", joblog.ErrFenced) // offset plus length must not overflow
	s.refused(at(1), 2, "cd", joblog.ErrFenced)            // overlap with a new byte
	s.refused(at(1), 0, "xyz", joblog.ErrFenced)           // different bytes
	for _, epoch := range []int64{1, 2} {
		if err := s.log.Open(s.Context(), at(epoch)); !errors.Is(err, joblog.ErrFenced) {
			s.Errorf("open of epoch %d after 3: %v, want ErrFenced", epoch, err)
		}
	}
	s.append(at(3), 0, "next")
	s.holds(at(1), "abc")
	s.holds(at(3), "next")
	other := joblog.Stream{Job: "job_2", Epoch: 1}
	s.opened(other) // another job has its own fence
	s.append(other, 0, "other")
}

func fencedRepeat(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abcdef")
	s.opened(at(2))
	s.append(at(1), 0, "abcdef") // a retry after a lost response must have the same result
	s.append(at(1), 2, "cd")
	s.append(at(1), 6, "")
	s.holds(at(1), "abcdef")
}

func fencedEnd(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	got := s.follower(s.Context(), at(1), 3)
	s.settle()
	s.opened(at(2))
	s.end(at(1), true)
	if f := <-got; f.err != nil || !f.Ended || !f.Info.Truncated {
		s.Errorf("the follower of the lost attempt got %+v, %v", f.Chunk, f.err)
	}
}

func ended(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.end(at(1), false)
	s.refused(at(1), 3, "d", joblog.ErrFenced)
	s.refused(at(1), 9, "d", joblog.ErrFenced)
	s.refused(at(1), 1, "bcd", joblog.ErrFenced)
	s.refused(at(1), 0, "x", joblog.ErrFenced)
	s.append(at(1), 1, "bc")
	s.holds(at(1), "abc")
}

func endTwice(s *suite) {
	for epoch, truncated := range []bool{false, true} {
		st := at(int64(epoch + 1))
		s.opened(st)
		s.end(st, truncated)
		s.end(st, !truncated)
		if i := s.info(st); !i.Ended || i.Truncated != truncated {
			s.Errorf("end with truncated %v, then %v: %+v", truncated, !truncated, i)
		}
	}
}

func repeat(s *suite) {
	s.opened(at(1))
	for range 3 {
		s.append(at(1), 0, "abc")
	}
	s.append(at(1), 3, "def")
	s.append(at(1), 0, "abcdef") // the bytes of two appends
	s.append(at(1), 1, "bcde")
	s.append(at(1), 2, "c")
	s.holds(at(1), "abcdef")
}

func overlap(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.append(at(1), 1, "bcd")
	s.append(at(1), 0, "abcdef")
	s.append(at(1), 5, "fg")
	s.holds(at(1), "abcdefg")
}

func gap(s *suite) {
	s.opened(at(1))
	s.wants(at(1), 1, "b", 0)
	s.append(at(1), 0, "abc")
	s.wants(at(1), 4, "e", 3)
	s.wants(at(1), joblog.MaxStream, "e", 3)
	s.wants(at(1), math.MaxInt64, "e", 3)
	s.append(at(1), 3, "de")
	s.holds(at(1), "abcde")
}

func diverged(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.append(at(1), 3, "def")
	s.refused(at(1), 0, "abx", joblog.ErrDiverged)
	s.refused(at(1), 5, "x", joblog.ErrDiverged)
	s.refused(at(1), 5, "xg", joblog.ErrDiverged) // the new byte is not stored either
	s.refused(at(1), 2, "cdx", joblog.ErrDiverged)
	s.holds(at(1), "abcdef")
}

func emptyAppend(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "")
	s.append(at(1), 0, "abc")
	s.append(at(1), 1, "")
	s.append(at(1), 3, "")
	s.wants(at(1), 4, "", 3)
	s.holds(at(1), "abc")
}

// pattern returns n bytes in which each byte differs from its neighbours. So a test detects
// a read at a wrong offset.
func pattern(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16)
	}
	return string(b)
}

func maxAppend(s *suite) {
	s.opened(at(1))
	data := pattern(joblog.MaxAppend)
	s.append(at(1), 0, data)
	s.append(at(1), 0, data)
	s.append(at(1), joblog.MaxAppend/3, data[joblog.MaxAppend/3:])
	_, err := s.log.Append(s.Context(), at(1), joblog.MaxAppend, make([]byte, joblog.MaxAppend+1))
	if fairlead.KindOf(err) != fairlead.KindTooLarge {
		s.Errorf("append over the limit: %v, want kind too_large", err)
	}
	s.holds(at(1), data)
}

func maxStream(s *suite) {
	most := s.harness.MaxStream
	s.opened(at(1))
	data := pattern(joblog.MaxAppend)
	last := most - joblog.MaxAppend
	for offset := int64(0); offset < last; offset += joblog.MaxAppend {
		s.append(at(1), offset, data)
	}
	s.append(at(1), last, data[:len(data)-1])
	s.refused(at(1), most-1, "xy", joblog.ErrFull)
	s.append(at(1), most-1, "x") // the last byte fits
	s.refused(at(1), most, "y", joblog.ErrFull)
	s.append(at(1), most-1, "x")
	s.end(at(1), true)
	if i := s.info(at(1)); i.Size != most || !i.Truncated {
		s.Errorf("the full stream is %+v", i)
	}
	if got := s.all(at(1), joblog.MaxRead); string(got[last:]) != data[:len(data)-1]+"x" {
		s.Error("the end of the full stream differs from the appended bytes")
	}
}

func ownBytes(s *suite) {
	s.opened(at(1))
	data := []byte("as appended")
	if _, err := s.log.Append(s.Context(), at(1), 0, data); err != nil {
		s.Fatal(err)
	}
	copy(data, "changed")
	copy(s.read(at(1), 0, 100).Data, "changed")
	s.holds(at(1), "as appended")
}

func checksum(s *suite) {
	s.opened(at(1))
	var want bytes.Buffer
	for i := range 50 {
		data := pattern(i * 37)[:i*37]
		s.append(at(1), int64(want.Len()), data)
		want.WriteString(data)
		s.holds(at(1), want.String()) // also checks the checksum
	}
	s.append(at(1), 0, want.String()) // a repeat does not change the checksum
	s.holds(at(1), want.String())
}

// concurrentAppenders lets writers with different bytes compete for every offset. All
// acknowledged bytes must be stored.
func concurrentAppenders(s *suite) {
	const writers, rounds = 8, 20
	s.opened(at(1))
	var mu sync.Mutex
	won := map[int64]string{} // acknowledged data by offset
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var offset int64
			for round := 0; round < rounds; {
				data := fmt.Sprintf("[writer %d round %d]", w, round)
				next, err := s.log.Append(s.Context(), at(1), offset, []byte(data))
				if err == nil {
					mu.Lock()
					if other, taken := won[offset]; taken {
						s.Errorf("offset %d was won by %s and by %s", offset, other, data)
					}
					won[offset] = data
					mu.Unlock()
					offset = next
					round++
					continue
				}
				if e, ok := errors.AsType[*joblog.OffsetError](err); ok {
					offset = e.Want
					continue
				}
				if !errors.Is(err, joblog.ErrDiverged) {
					s.Errorf("writer %d: %v", w, err)
					return
				}
				c, err := s.log.Read(s.Context(), at(1), 0, 1)
				if err != nil {
					s.Errorf("writer %d: %v", w, err)
					return
				}
				offset = c.Info.Size
			}
		})
	}
	wg.Wait()
	data := string(s.all(at(1), joblog.MaxRead))
	if len(won) != writers*rounds {
		s.Errorf("%d appends were acknowledged, want %d", len(won), writers*rounds)
	}
	total := 0
	for offset, want := range won {
		total += len(want)
		if !strings.HasPrefix(data[offset:], want) {
			s.Errorf("offset %d does not have %s, which was acknowledged", offset, want)
		}
	}
	if total != len(data) {
		s.Errorf("%d bytes were acknowledged, %d are stored", total, len(data))
	}
}

func streams(s *suite) {
	for _, epoch := range []int64{2, 10, 300} { // the order is numeric, not alphabetical
		s.opened(at(epoch))
		s.append(at(epoch), 0, fmt.Sprint("epoch ", epoch))
		s.end(at(epoch), epoch == 10)
	}
	s.opened(joblog.Stream{Job: "job_11", Epoch: 1})
	infos, err := s.log.Streams(s.Context(), "job_1")
	if err != nil || len(infos) != 3 {
		s.Fatalf("%d streams, %v; want 3", len(infos), err)
	}
	for i, epoch := range []int64{2, 10, 300} {
		if want := s.info(at(epoch)); infos[i] != want {
			s.Errorf("listed %+v, read %+v", infos[i], want)
		}
	}
}

func drop(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.opened(at(2))
	s.append(at(2), 0, "def")
	other := joblog.Stream{Job: "job_11", Epoch: 1}
	s.opened(other)
	s.append(other, 0, "stays")
	for range 2 { // the second Drop finds no streams, which is no error
		if err := s.log.Drop(s.Context(), "job_1"); err != nil {
			s.Fatal(err)
		}
	}
	notFound(s)
	s.holds(other, "stays")
	s.opened(at(1)) // the new stream is empty, and its epoch is not fenced
	s.holds(at(1), "")
	s.append(at(1), 0, "new")
	s.holds(at(1), "new")
}

func limits(s *suite) {
	ctx := s.Context()
	s.opened(at(1))
	read := func(st joblog.Stream, offset int64, limit int) error {
		_, err := s.log.Read(ctx, st, offset, limit)
		_, errFollow := s.log.Follow(ctx, st, offset, limit)
		if fairlead.KindOf(err) != fairlead.KindOf(errFollow) {
			s.Errorf("read returned %v, follow %v", err, errFollow)
		}
		return err
	}
	appended := func(st joblog.Stream, offset int64) error {
		_, err := s.log.Append(ctx, st, offset, []byte("x"))
		return err
	}
	listed := func(job string) error {
		_, err := s.log.Streams(ctx, job)
		return err
	}
	for what, err := range map[string]error{
		"open without a job":        s.log.Open(ctx, joblog.Stream{Epoch: 1}),
		"open of a path":            s.log.Open(ctx, joblog.Stream{Job: "a/b", Epoch: 1}),
		"open of a long job":        s.log.Open(ctx, joblog.Stream{Job: strings.Repeat("a", 129), Epoch: 1}),
		"open of epoch 0":           s.log.Open(ctx, at(0)),
		"append to epoch 0":         appended(at(0), 0),
		"append at a negative":      appended(at(1), -1),
		"append without a job":      appended(joblog.Stream{Epoch: 1}, 0),
		"end of epoch 0":            s.log.End(ctx, at(0), false),
		"read of epoch 0":           read(at(0), 0, 1),
		"read at a negative offset": read(at(1), -1, 1),
		"read of no bytes":          read(at(1), 0, 0),
		"read of negative bytes":    read(at(1), 0, -1),
		"list without a job":        listed(""),
		"drop without a job":        s.log.Drop(ctx, ""),
	} {
		if fairlead.KindOf(err) != fairlead.KindInvalid {
			s.Errorf("%s: %v, want kind invalid", what, err)
		}
	}
	s.holds(at(1), "")
}

func endedContext(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, errAppend := s.log.Append(ctx, at(1), 3, []byte("d"))
	_, errRead := s.log.Read(ctx, at(1), 0, 1)
	_, errStreams := s.log.Streams(ctx, "job_1")
	for what, err := range map[string]error{
		"open":    s.log.Open(ctx, at(2)),
		"append":  errAppend,
		"end":     s.log.End(ctx, at(1), false),
		"read":    errRead,
		"streams": errStreams,
		"drop":    s.log.Drop(ctx, "job_1"),
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	s.append(at(1), 3, "d")
	s.holds(at(1), "abcd")
}

func reopen(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "lost attempt")
	s.opened(at(2))
	data := pattern(300_000)
	s.append(at(2), 0, data)
	ended := joblog.Stream{Job: "job_2", Epoch: 1}
	s.opened(ended)
	s.append(ended, 0, "done")
	s.end(ended, true)
	before, err := s.log.Streams(s.Context(), "job_1")
	if err != nil {
		s.Fatal(err)
	}

	s.close()
	s.open()
	after, err := s.log.Streams(s.Context(), "job_1")
	if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		s.Errorf("before: %v, after reopening: %v, %v", before, after, err)
	}
	s.refused(at(1), 12, "x", joblog.ErrFenced)
	s.refused(ended, 4, "x", joblog.ErrFenced)
	s.append(at(2), int64(len(data)), "goes on")
	s.append(at(2), 0, data)
	s.holds(at(1), "lost attempt")
	s.holds(at(2), data+"goes on")
	s.holds(ended, "done")
	if i := s.info(ended); !i.Truncated {
		s.Errorf("after reopening: %+v", i)
	}
}
