// Package control holds the use cases, and is the only writer of the table. Each use
// case reads records, calls pure packages to decide, and commits all writes in one
// transaction. The transaction requires that the records still have the versions that
// were read. After a conflict the use case runs again. Wake-ups and notifications are
// sent after the commit and may be lost. The sweep sends lost wake-ups again.
//
// Five internal packages hold the use cases. Each may use the packages listed before it: kernel
// (commits, leases, idempotent requests), runners, catalog (apps and installs), state,
// and execution (deployments and jobs). This package holds the use cases that span
// them, and the tokens, webhooks and diagnoses of an org.
package control

import (
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
)

// Control is the control plane: all use cases. Safe for concurrent use; several
// processes may share one table.
type Control struct {
	*kernel.Kernel
	*runners.Fleet
	*catalog.Catalog
	*state.States
	*execution.Execution
}

// New returns a Control with these dependencies.
func New(p kernel.Deps) *Control {
	k := kernel.New(p)
	return &Control{k, runners.New(k), catalog.New(k), state.New(k), execution.New(k)}
}
