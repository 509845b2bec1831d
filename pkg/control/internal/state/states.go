// Package state holds the use cases of component states: reading, writing and locking
// them, saved plans, a person's repairs, and the cleanup of blobs.
package state

import "github.com/fairlead/fairlead/pkg/control/internal/kernel"

// States manages the states of components, their locks, and saved plans. Safe for
// concurrent use.
type States struct{ *kernel.Kernel }

// New returns States on the kernel.
func New(k *kernel.Kernel) *States { return &States{k} }
