package e2e

import "time"

// Pauses returns a function that returns the next pause between two polls of another
// process: first 10 ms, then 1.5 times the last pause, at most 200 ms. The pauses grow
// because each poll takes CPU time from the processes that the test waits for.
func Pauses() func() time.Duration {
	next := 10 * time.Millisecond
	return func() time.Duration {
		pause := next
		next = min(next*3/2, 200*time.Millisecond)
		return pause
	}
}
