package sqs

import (
	"testing"
	"time"
)

func TestWholeSeconds(t *testing.T) {
	for _, c := range []struct {
		name string
		wait time.Duration
		want int32
	}{
		{"SQS's longest", 20 * time.Second, 20},
		{"begun a moment ago", 20*time.Second - grace, 20},
		{"half a second is none", 500 * time.Millisecond, 0},
		{"none", 0, 0},
		{"a slow answer ends the wait and does not begin another", -time.Minute, 0},
	} {
		if got := wholeSeconds(c.wait); got != c.want {
			t.Errorf("%s: a wait of %s asks for %d s, want %d", c.name, c.wait, got, c.want)
		}
	}
}
