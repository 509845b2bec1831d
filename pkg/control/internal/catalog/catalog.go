// Package catalog holds the use cases of apps and installs: versions and where their
// artifacts are, what an install is given, and what its components are made of.
package catalog

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Catalog is the apps with their versions, and the installs with what they are
// given. Safe for concurrent use.
type Catalog struct {
	*kernel.Kernel
	fleet    *runners.Fleet
	versions *lru.Cache[fairlead.VersionID, Version] // that were read and verified
}

// New returns the apps and installs of a kernel.
func New(k *kernel.Kernel, fleet *runners.Fleet) *Catalog {
	versions, err := lru.New[fairlead.VersionID, Version](keptVersions)
	if err != nil {
		panic(err) // of a size below 1
	}
	return &Catalog{Kernel: k, fleet: fleet, versions: versions}
}
