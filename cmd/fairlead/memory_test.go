//go:build !light

package main

import "testing"

// A server with much live memory must not spend its time collecting garbage: its heap may still double.
func TestMemoryLimitFollowsTheLiveMemory(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct{ live, fixed, want int64 }{
		"a small server":    {5 * mib, 10 * mib, serverMemory},
		"a thousand agents": {25 * mib, 20 * mib, serverMemory},
		"a large server":    {500 * mib, 100 * mib, 1100 * mib},
	} {
		if got := memoryLimit(c.live, c.fixed); got != c.want {
			t.Errorf("%s: the limit is %d MiB, want %d", name, got/mib, c.want/mib)
		}
	}
	live, fixed := readMemory()
	if fixed <= 0 || live < 0 || fixed > 1<<30 {
		t.Errorf("the process has %d bytes in use, and %d beside the heap", live, fixed)
	}
}
