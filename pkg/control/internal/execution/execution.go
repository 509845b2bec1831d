// Package execution holds the use cases of deployments and jobs: how one is queued,
// claimed, started, renewed and ended, what follows from its end, and the sweep that
// repairs what was lost.
package execution

import "github.com/fairlead/fairlead/pkg/control/internal/kernel"

// Execution is the deployments and their jobs, from the request to the last report.
// Safe for concurrent use.
type Execution struct{ *kernel.Kernel }

// New returns the deployments and jobs of a kernel.
func New(k *kernel.Kernel) *Execution { return &Execution{k} }
