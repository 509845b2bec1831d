package sqs

import (
	"testing"
	"time"
)

func TestWaitIsRoundedToWholeSeconds(t *testing.T) {
	for _, c := range []struct {
		name string
		wait time.Duration
		want int32
	}{
		{"the maximum of SQS", 20 * time.Second, 20},
		{"slightly less than the maximum", 20*time.Second - grace, 20},
		{"half a second", 500 * time.Millisecond, 0},
		{"zero", 0, 0},
		{"negative", -time.Minute, 0},
	} {
		if got := wholeSeconds(c.wait); got != c.want {
			t.Errorf("%s: a wait of %s becomes %d s, want %d", c.name, c.wait, got, c.want)
		}
	}
}
