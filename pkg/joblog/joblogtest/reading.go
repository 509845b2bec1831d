package joblogtest

import (
	"context"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/pkg/joblog"
)

func cursors(s *suite) {
	s.opened(at(1))
	whole := pattern(1000)
	for _, cut := range [][2]int{{0, 1}, {1, 2}, {2, 300}, {300, 999}, {999, 1000}} {
		s.append(at(1), int64(cut[0]), whole[cut[0]:cut[1]])
	}
	s.end(at(1), false)
	for offset := range len(whole) + 3 {
		if s.brief() && !slices.Contains([]int{0, 1, 2, 3, 150, 299, 300, 301, 998, 999, 1000, 1002}, offset) {
			continue // each read is a request to the server, so test only offsets near the ends of chunks
		}
		for _, limit := range []int{1, 2, 299, 1000, joblog.MaxRead, math.MaxInt} {
			from := min(offset, len(whole))
			to := from + min(limit, len(whole)-from)
			c := s.read(at(1), int64(offset), limit)
			if string(c.Data) != whole[from:to] || c.Next != int64(max(offset, to)) || c.Ended != (to == len(whole)) {
				s.Fatalf("read %d at %d: %d bytes, next %d, ended %v", limit, offset, len(c.Data), c.Next, c.Ended)
			}
		}
	}
	if c := s.read(at(1), math.MaxInt64, math.MaxInt); len(c.Data) != 0 || !c.Ended {
		s.Errorf("read at the largest offset: %+v", c)
	}
	for _, limit := range []int{1, 7, 64} {
		if got := s.all(at(1), limit); string(got) != whole {
			s.Errorf("reading %d bytes at a time returned %d bytes, different from the %d that were appended", limit, len(got), len(whole))
		}
	}
}

func readBound(s *suite) {
	s.opened(at(1))
	data := pattern(joblog.MaxAppend)
	s.append(at(1), 0, data)
	s.append(at(1), joblog.MaxAppend, data)
	s.end(at(1), false)
	c := s.read(at(1), 1, math.MaxInt)
	if len(c.Data) > joblog.MaxRead || c.Ended || c.Next != 1+int64(len(c.Data)) {
		s.Errorf("read %d bytes, next %d, ended %v", len(c.Data), c.Next, c.Ended)
	}
	s.holds(at(1), data+data)
}

func followAppend(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	got := s.follower(s.Context(), at(1), 3)
	s.settle()
	woken := s.clock()
	s.append(at(1), 0, "abc") // a repeat has no new byte
	s.append(at(1), 3, "def")
	f := <-got
	woken()
	if f.err != nil || string(f.Data) != "def" || f.Next != 6 || f.Ended {
		s.Errorf("followed %+v, %v", f.Chunk, f.err)
	}
}

func followEnd(s *suite) {
	s.opened(at(1))
	got := s.follower(s.Context(), at(1), 0)
	s.settle()
	woken := s.clock()
	s.end(at(1), true)
	f := <-got
	woken()
	if f.err != nil || len(f.Data) != 0 || !f.Ended || !f.Info.Truncated {
		s.Errorf("followed %+v, %v", f.Chunk, f.err)
	}
}

func followAhead(s *suite) {
	s.opened(at(1))
	got := s.follower(s.Context(), at(1), 4)
	s.settle()
	s.append(at(1), 0, "abc")
	s.settle()
	s.append(at(1), 3, "d")
	s.settle()
	s.append(at(1), 4, "e")
	if f := <-got; f.err != nil || string(f.Data) != "e" || f.Next != 5 {
		s.Errorf("followed %+v, %v", f.Chunk, f.err)
	}
}

func noticedFollower(s *suite) {
	ctx, leave := context.WithCancel(s.Context())
	defer leave()
	if _, err := s.log.Followed(ctx, at(1)); !errors.Is(err, joblog.ErrNotFound) {
		s.Errorf("followers of a stream that was never opened: %v, want ErrNotFound", err)
	}
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	s.read(at(1), 0, 3)
	if s.followed(at(1)) {
		s.Error("a stream that was read counts as followed")
	}
	got := s.follower(ctx, at(1), 3)
	s.settle()
	for !s.followed(at(1)) { // a remote follower may still be on its way
		if s.Context().Err() != nil {
			s.Fatal("the follower was not noticed")
		}
	}
	s.opened(at(2))
	if s.followed(at(2)) {
		s.Error("the followers of an attempt count for the next one")
	}
	s.end(at(1), false)
	if f := <-got; f.err != nil || !f.Ended {
		s.Errorf("the follower got %+v, %v", f.Chunk, f.err)
	}
	if s.followed(at(1)) {
		s.Error("an ended stream counts as followed")
	}
}

func (s *suite) followed(st joblog.Stream) bool {
	s.Helper()
	is, err := s.log.Followed(s.Context(), st)
	if err != nil {
		s.Fatalf("followers of %s: %v", st, err)
	}
	return is
}

func followNow(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	woken := s.clock()
	for _, end := range []bool{false, true} {
		if end {
			s.end(at(1), false)
		}
		c, err := s.log.Follow(s.Context(), at(1), 1, 100)
		if err != nil || string(c.Data) != "bc" || c.Next != 3 || c.Ended != end {
			s.Errorf("followed %+v, %v", c, err)
		}
	}
	c, err := s.log.Follow(s.Context(), at(1), 3, 100)
	if err != nil || len(c.Data) != 0 || !c.Ended {
		s.Errorf("followed the end of an ended stream: %+v, %v", c, err)
	}
	woken()
}

func followCancelled(s *suite) {
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	ctx, cancel := context.WithCancel(s.Context())
	got := s.follower(ctx, at(1), 3)
	s.settle()
	woken := s.clock()
	cancel()
	if f := <-got; f.err != nil || len(f.Data) != 0 || f.Next != 3 || f.Ended {
		s.Errorf("followed %+v, %v", f.Chunk, f.err)
	}
	c, err := s.log.Follow(ctx, at(1), 2, 100) // ctx ended before the call
	if err != nil || len(c.Data) != 0 || c.Next != 2 || c.Ended {
		s.Errorf("followed %+v, %v", c, err)
	}
	woken()
}

func followDropped(s *suite) {
	s.opened(at(1))
	s.opened(at(2))
	first, second := s.follower(s.Context(), at(1), 0), s.follower(s.Context(), at(2), 0)
	s.settle()
	woken := s.clock()
	if err := s.log.Drop(s.Context(), "job_1"); err != nil {
		s.Fatal(err)
	}
	for _, got := range []<-chan followed{first, second} {
		if f := <-got; !errors.Is(f.err, joblog.ErrNotFound) {
			s.Errorf("followed %+v, %v; want ErrNotFound", f.Chunk, f.err)
		}
	}
	woken()
}

// manyFollowers checks that no follower misses the wake-up of an append. A follower that
// missed the last wake-up would wait forever.
func manyFollowers(s *suite) {
	followers, appends := 12, 100
	if s.brief() {
		followers, appends = 4, 25
	}
	s.opened(at(1))
	whole := pattern(appends * 10)
	var wg sync.WaitGroup
	for range followers {
		wg.Go(func() {
			var data []byte
			for {
				c, err := s.log.Follow(s.Context(), at(1), int64(len(data)), 64)
				if err != nil {
					s.Error(err)
					return
				}
				data = append(data, c.Data...)
				if !c.Ended {
					continue
				}
				if string(data) != whole || c.Info.CRC32 != crc32.ChecksumIEEE(data) {
					s.Errorf("a follower read %d bytes, different from the %d that were appended", len(data), len(whole))
				}
				return
			}
		})
	}
	woken := s.clock()
	for i := range appends {
		s.append(at(1), int64(i*10), whole[i*10:(i+1)*10])
	}
	s.end(at(1), false)
	wg.Wait()
	woken()
}
