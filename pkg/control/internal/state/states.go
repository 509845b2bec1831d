// Package state holds the use cases of the states of components: their locks, the
// saved plans, the ways out of a person, and which blobs something still names.
package state

import (
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
)

// States is the states of components with their locks, and the saved plans. Safe for
// concurrent use.
type States struct {
	*kernel.Kernel
	fleet   *runners.Fleet
	catalog *catalog.Catalog
}

// New returns the states of a kernel.
func New(k *kernel.Kernel, fleet *runners.Fleet, catalog *catalog.Catalog) *States {
	return &States{Kernel: k, fleet: fleet, catalog: catalog}
}
