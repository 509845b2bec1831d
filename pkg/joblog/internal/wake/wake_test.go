package wake

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// The conformance suite tests the board through the drivers that use it. This test needs a
// change between the read and the wait, so it has its own read function.
func TestChangeAfterTheReadWakesTheFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		s := joblog.Stream{Job: "job_1", Epoch: 1}
		reads := 0
		c, err := b.Follow(t.Context(), s, 0, func(context.Context) (joblog.Chunk, error) {
			if reads++; reads == 1 {
				b.Changed(s) // a change after this read
				return joblog.Chunk{}, nil
			}
			return joblog.Chunk{Data: []byte("x"), Next: 1}, nil
		})
		if err != nil || string(c.Data) != "x" || reads != 2 {
			t.Errorf("%d reads: %+v, %v; want x after 2", reads, c, err)
		}
		if len(b.streams) != 0 {
			t.Errorf("the board still has a stream without followers")
		}
	})
}
