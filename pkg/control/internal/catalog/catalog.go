// Package catalog holds the use cases of apps and installs: versions and where their
// artifacts are, what an install is given, and what its components are made of.
package catalog

import (
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
)

// Catalog is the apps with their versions, and the installs with what they are
// given. Safe for concurrent use.
type Catalog struct{ *kernel.Kernel }

// New returns the apps and installs of a kernel.
func New(k *kernel.Kernel) *Catalog { return &Catalog{k} }
