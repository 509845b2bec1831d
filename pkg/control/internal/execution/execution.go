// Package execution holds the use cases of deployments and jobs: queueing, claiming,
// starting, renewing and ending a job, the consequences of its end, and the sweep that
// repairs lost jobs and messages.
package execution

import "github.com/fairlead/fairlead/pkg/control/internal/kernel"

// Execution manages deployments and their jobs, from the request to the last report.
// Safe for concurrent use.
type Execution struct{ *kernel.Kernel }

// New returns an Execution on the kernel.
func New(k *kernel.Kernel) *Execution { return &Execution{k} }
