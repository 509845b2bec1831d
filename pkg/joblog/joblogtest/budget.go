package joblogtest

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/joblog"
)

func cut(s *suite) {
	if err := s.log.Cut(s.Context(), at(1)); !errors.Is(err, joblog.ErrNotFound) {
		s.Errorf("cut a stream that was never opened: %v, want ErrNotFound", err)
	}
	s.opened(at(1))
	s.append(at(1), 0, "abc")
	for range 2 {
		if err := s.log.Cut(s.Context(), at(1)); err != nil {
			s.Fatalf("cut: %v", err)
		}
	}
	if i := s.info(at(1)); !i.Cut || i.Ended || i.Truncated {
		s.Errorf("the cut stream is %+v", i)
	}
	s.refused(at(1), 3, "d", joblog.ErrCut)
	s.refused(at(1), 0, "abcd", joblog.ErrCut)
	s.refused(at(1), 9, "d", joblog.ErrCut)
	s.append(at(1), 1, "bc") // a repeat
	if _, err := s.log.Followed(s.Context(), at(1)); !errors.Is(err, joblog.ErrCut) {
		s.Errorf("followers of a cut stream: %v, want ErrCut", err)
	}
	s.end(at(1), false)
	if i := s.info(at(1)); !i.Cut || !i.Ended || !i.Truncated || i.Size != 3 {
		s.Errorf("the cut stream ended as %+v, want a truncated one", i)
	}
	s.holds(at(1), "abc")
	s.opened(at(2)) // the next attempt has a budget again, or reaches its first Step
	s.append(at(2), 0, "x")
	s.refused(at(1), 3, "d", joblog.ErrFenced)
	s.end(at(2), false)
	if err := s.log.Cut(s.Context(), at(2)); err != nil {
		s.Errorf("cut an ended stream: %v", err)
	}
	if i := s.info(at(2)); i.Cut || i.Truncated {
		s.Errorf("a cut after the end changed the stream to %+v", i)
	}
}

// now is the time of an account. It is the current one: a server deletes an account that has expired.
func (s *suite) now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// spent calls Spend and checks its result.
func (s *suite) spent(runner string, n int64, b joblog.Budget, now time.Time, want bool) {
	s.Helper()
	if got, err := s.log.Spend(s.Context(), runner, n, b, now); err != nil || got != want {
		s.Errorf("spend %d bytes of runner %s: %v, %v; want %v", n, runner, got, err, want)
	}
}

func spend(s *suite) {
	b, now := joblog.Budget{Burst: 100, PerHour: 60}, s.now()
	s.spent("run_a", 0, b, now, true)
	s.spent("run_a", 60, b, now, true)
	s.spent("run_a", 60, b, now, true) // the last bytes may exceed the rest, which is -20 now
	s.spent("run_a", 1, b, now, false)
	s.spent("run_a", 0, b, now, false)
	s.spent("run_b", 1, b, now, true)
	s.spent("run_a", 1, b, now.Add(-time.Hour), false) // the clock went back
	s.spent("run_a", 1, b, now.Add(20*time.Minute), false)
	s.spent("run_a", 1, b, now.Add(21*time.Minute), true)
	s.spent("run_a", 1, b, now.Add(21*time.Minute), false)
	s.spent("run_a", 150, b, now.Add(1000*time.Hour), true) // the budget never grows above Burst
	s.spent("run_a", 1, b, now.Add(1000*time.Hour), false)
	for range 3 {
		s.spent("run_a", 1000, joblog.Budget{}, now, true) // no limit
	}
	for _, runner := range []string{"", "run a", "a#b"} {
		if _, err := s.log.Spend(s.Context(), runner, 1, b, now); err == nil {
			s.Errorf("the runner %q is accepted", runner)
		}
	}
}

func spendConcurrently(s *suite) {
	const writers, each = 8, 4
	b, now := joblog.Budget{Burst: writers * each, PerHour: 1}, s.now()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				s.spent("run_a", 1, b, now, true)
			}
		})
	}
	all.Wait()
	s.spent("run_a", 1, b, now, false)
}

// A runner prints without end in two jobs. Its logs are cut when its budget is used up, and the log of another runner
// is not.
func noisyRunner(s *suite) {
	now := s.now()
	cuts := map[joblog.Stream]int{}
	of := func(runner string) joblog.Budgeted {
		return joblog.Budgeted{Log: s.log, Runner: runner, Budget: joblog.Budget{Burst: 6400, PerHour: 100}, Now: func() time.Time { return now },
			OnCut: func(st joblog.Stream) { cuts[st]++ }}
	}
	noisy, quiet := of("run_noisy"), of("run_quiet")
	first, second, other := at(1), joblog.Stream{Job: "job_2", Epoch: 1}, joblog.Stream{Job: "job_3", Epoch: 1}
	for _, st := range []joblog.Stream{first, second, other} {
		s.opened(st)
	}
	line := strings.Repeat("x", 50)
	stored := func(log joblog.Log, st joblog.Stream, lines int) (size int64) {
		for range lines {
			next, err := log.Append(s.Context(), st, size, []byte(line))
			if errors.Is(err, joblog.ErrCut) {
				return size
			}
			if err != nil {
				s.Fatalf("append at %d of %s: %v", size, st, err)
			}
			size = next
		}
		return size
	}
	// A count of 100 bytes is made for each 100 bytes. The 65th count finds nothing left.
	if got := stored(noisy, first, 1000); got != 6500 || !s.info(first).Cut {
		s.Errorf("the log of the noisy runner has %d bytes, want 6500; %+v", got, s.info(first))
	}
	if got := stored(noisy, second, 1000); got != 100 || !s.info(second).Cut {
		s.Errorf("the next log of the noisy runner has %d bytes, want one step of 100; %+v", got, s.info(second))
	}
	if got := stored(quiet, other, 100); got != 5000 || s.info(other).Cut {
		s.Errorf("the log of another runner has %d bytes, want 5000; %+v", got, s.info(other))
	}
	if len(cuts) != 2 || cuts[first] != 1 || cuts[second] != 1 {
		s.Errorf("OnCut was called for %v", cuts)
	}
	now = now.Add(3 * time.Hour) // the budget grows by 300 bytes
	s.opened(joblog.Stream{Job: "job_4", Epoch: 1})
	if got := stored(noisy, joblog.Stream{Job: "job_4", Epoch: 1}, 1000); got != 400 {
		s.Errorf("three hours later a log of the noisy runner has %d bytes, want 400", got)
	}
}
