// Package runners holds the use cases of runners: their configuration and scope, the
// placement of installs, the authentication of their agents, and whether they are
// online.
package runners

import (
	"sync/atomic"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
)

// Fleet manages the runners of all orgs and their agents. Safe for concurrent use.
type Fleet struct {
	*kernel.Kernel
	// watched is the time of the last check of all runners, in Unix nanoseconds.
	watched atomic.Int64
}

// New returns a Fleet on the kernel.
func New(k *kernel.Kernel) *Fleet { return &Fleet{Kernel: k} }
