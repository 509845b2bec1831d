package control

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// What the rooms have for those who call them, named here: nobody else enters a room.
type (
	Artifacts = kernel.Artifacts
	Deps      = kernel.Deps
	Holder    = kernel.Holder
	Intervals = kernel.Intervals
	User      = kernel.User
)

// As returns a context whose use cases record that the actor asked for them.
func As(ctx context.Context, a fairlead.Actor) context.Context { return kernel.As(ctx, a) }

// Metered is the intervals where each request is paid for.
func Metered() Intervals { return kernel.Metered() }

// OwnsLog returns nil if the stream is of an attempt of a job of the install.
// Whoever may write for one install may write anything, also in the name of
// another's job; that is of KindForbidden. A job that is not there is of
// KindNotFound.
func OwnsLog(ctx context.Context, jobs kernel.JobReader, install fairlead.InstallID, s joblog.Stream) error {
	return kernel.OwnsLog(ctx, jobs, install, s)
}
