// Package catalog holds the use cases of apps and installs: versions and their
// artifacts, inputs, outputs, and the variables of components and jobs.
package catalog

import (
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
)

// Catalog manages apps, their versions, and installs. Safe for concurrent use.
type Catalog struct{ *kernel.Kernel }

// New returns a Catalog on the kernel.
func New(k *kernel.Kernel) *Catalog { return &Catalog{k} }
