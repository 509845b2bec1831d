package control

import "sync/atomic"

// Fleet is the runners of every org with their agents. Safe for concurrent use.
type Fleet struct {
	*Kernel
	// watched is when the runners were looked at last, in Unix nanoseconds.
	watched atomic.Int64
}

// newFleet returns the runners of a kernel.
func newFleet(k *Kernel) *Fleet { return &Fleet{Kernel: k} }
