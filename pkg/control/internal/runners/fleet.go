// Package runners holds the use cases of runners: what they are and whom they serve,
// which install is placed where, how their agents prove who they are, and whether
// they are alive.
package runners

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

// New returns the runners of a kernel.
func New(k *kernel.Kernel) *Fleet { return &Fleet{Kernel: k} }
