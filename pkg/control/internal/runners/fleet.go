// Package runners holds the use cases of runners: their configuration and scope, the
// placement of installs, the authentication of their agents, and whether they are
// online.
package runners

import "github.com/fairlead/fairlead/pkg/control/internal/kernel"

// Fleet manages the runners of all orgs and their agents. Safe for concurrent use.
type Fleet struct {
	*kernel.Kernel
	known watches
}

// New returns a Fleet on the kernel.
func New(k *kernel.Kernel) *Fleet { return &Fleet{Kernel: k} }
