// Package execution holds the use cases of deployments and jobs: how one is queued,
// claimed, started, renewed and ended, what follows from its end, and the sweep that
// repairs what was lost.
package execution

import (
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
)

// Execution is the deployments and their jobs, from the request to the last report.
// Safe for concurrent use.
type Execution struct {
	*kernel.Kernel
	fleet   *runners.Fleet
	catalog *catalog.Catalog
}

// New returns the deployments and jobs of a kernel.
func New(k *kernel.Kernel, fleet *runners.Fleet, catalog *catalog.Catalog) *Execution {
	return &Execution{Kernel: k, fleet: fleet, catalog: catalog}
}
