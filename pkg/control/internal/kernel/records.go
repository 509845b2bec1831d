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

// OwnsLog returns the job's runner if the stream belongs to an attempt of a job of the install. A
// writer with access to one install could write under the name of another install's
// job; that is an error of KindForbidden. A job that does not exist is an error of
// KindNotFound.
func OwnsLog(ctx context.Context, jobs JobReader, install fairlead.InstallID, s joblog.Stream) (fairlead.RunnerID, error) {
	r, err := jobs.Job(ctx, fairlead.JobID(s.Job))
	if err != nil {
		return "", err
	}
	if r.V.Install != install || install == "" || s.Epoch > r.V.Lease.Epoch {
		return "", &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeLogNotOwned, Message: "log " + s.String() + " does not belong to install " + string(install)}
	}
	return r.V.Runner, nil
}
