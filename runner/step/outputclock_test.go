package step

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoOutputTimeCountsFromTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newOutputClock(io.Discard)
		wantNoOutput := func(want time.Duration) {
			t.Helper()
			if got := clock.sinceLast(); got != want {
				t.Errorf("no output for %s, want %s", got, want)
			}
		}
		wantNoOutput(0)
		time.Sleep(time.Minute)
		wantNoOutput(time.Minute) // the tool has written nothing yet
		clock.Write([]byte("."))
		wantNoOutput(0)
		time.Sleep(time.Second)
		clock.Write(nil)
		wantNoOutput(time.Second)
		clock.stop()
		time.Sleep(time.Hour)
		wantNoOutput(0)
	})
}
