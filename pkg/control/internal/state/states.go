// Package state holds the use cases of the states of components: their locks, the
// saved plans, the ways out of a person, and which blobs something still names.
package state

import "github.com/fairlead/fairlead/pkg/control/internal/kernel"

// States is the states of components with their locks, and the saved plans. Safe for
// concurrent use.
type States struct{ *kernel.Kernel }

// New returns the states of a kernel.
func New(k *kernel.Kernel) *States { return &States{k} }
