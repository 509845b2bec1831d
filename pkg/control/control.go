// Package control holds the use cases, and is the only writer of state. Each
// use case reads, asks a pure package what follows, and commits all of it in
// one transaction whose preconditions are the versions it read; a conflict
// reads again. Wake-ups and notices go out after the commit, and may be lost:
// the sweep repairs that.
//
// The use cases are in rooms, each of which knows those before it: the kernel
// (the commit, leases, repeated requests), the fleet of runners, the catalog of
// apps and installs, the states, and the execution of deployments. What spans them
// is here, with what an org has beside: tokens, webhooks, and advice.
package control

import (
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
)

// Control is the control plane: all rooms, and what spans them. Safe for
// concurrent use; many may share one table.
type Control struct {
	*kernel.Kernel
	*runners.Fleet
	*catalog.Catalog
	*state.States
	*execution.Execution
}

// New returns a Control on its parts.
func New(p kernel.Deps) *Control {
	k := kernel.New(p)
	return &Control{k, runners.New(k), catalog.New(k), state.New(k), execution.New(k)}
}
