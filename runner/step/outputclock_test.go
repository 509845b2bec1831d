package step

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoOutputTimeCountsFromTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutputClock(io.Discard)
		is := func(want time.Duration) {
			t.Helper()
			if got := s.length(); got != want {
				t.Errorf("no output for %s, want %s", got, want)
			}
		}
		is(0)
		time.Sleep(time.Minute)
		is(time.Minute) // also for a tool that has written nothing yet
		s.Write([]byte("."))
		is(0)
		time.Sleep(time.Second)
		s.Write(nil)
		is(time.Second)
		s.over()
		time.Sleep(time.Hour)
		is(0)
	})
}
