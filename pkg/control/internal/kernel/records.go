package kernel

import (
	"context"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/store"
)

// JobReader reads jobs.
type JobReader interface {
	Job(ctx context.Context, id fairlead.JobID) (store.Stored[store.Job], error)
}

// OwnsLog returns nil if the stream is of an attempt of a job of the install.
// Whoever may write for one install may write anything, also in the name of
// another's job; that is of KindForbidden. A job that is not there is of
// KindNotFound.
func OwnsLog(ctx context.Context, jobs JobReader, install fairlead.InstallID, s joblog.Stream) error {
	r, err := jobs.Job(ctx, fairlead.JobID(s.Job))
	if err != nil {
		return err
	}
	if r.V.Install != install || install == "" || s.Epoch > r.V.Lease.Epoch {
		return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeLogNotOwned, Message: "log " + s.String() + " is none of install " + string(install)}
	}
	return nil
}
