package e2e

import "time"

// Pauses returns the pauses between two looks at what other processes do: 10 ms at
// first, then half as long again each time, up to 200 ms. Each look takes CPU, a
// request or a process, from those that are waited for.
func Pauses() func() time.Duration {
	next := 10 * time.Millisecond
	return func() time.Duration {
		pause := next
		next = min(next*3/2, 200*time.Millisecond)
		return pause
	}
}
