package control

import (
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
)

// Execution is the deployments and their jobs, from the request to the last report.
// Safe for concurrent use.
type Execution struct {
	*kernel.Kernel
	fleet   *runners.Fleet
	catalog *catalog.Catalog
	states  *state.States
}

// newExecution returns the deployments and jobs of a kernel.
func newExecution(k *kernel.Kernel, fleet *runners.Fleet, catalog *catalog.Catalog, states *state.States) *Execution {
	return &Execution{Kernel: k, fleet: fleet, catalog: catalog, states: states}
}
