package control

import (
	"sync/atomic"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
)

// Fleet is the runners of every org with their agents. Safe for concurrent use.
type Fleet struct {
	*kernel.Kernel
	// watched is when the runners were looked at last, in Unix nanoseconds.
	watched atomic.Int64
}

// newFleet returns the runners of a kernel.
func newFleet(k *kernel.Kernel) *Fleet { return &Fleet{Kernel: k} }
