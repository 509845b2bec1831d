// Package cancelmark defines the cancel marker of an attempt, and the marker of a warm step. The control plane writes the
// marker when it cancels a job, and the attempt's step looks for it every 1.5 seconds. A found
// marker only makes the step renew its lease at once: the answer to the renewal decides whether
// the job is canceled. So a lost, late or wrong marker costs latency or one request.
//
// The marker of a warm step exists when a job may be assigned to it; then the step asks the control
// plane. Until then it looks for the marker instead of asking.
//
// A control plane needs markers if it answers renewals at once, because each waiting request is
// billed. A control plane that lets renewals wait needs none.
package cancelmark

import (
	"context"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The attributes of a marker in the table of markers: its key, and the time of its removal in
// seconds since 1970.
const (
	AttrAttempt = "attempt"
	AttrExpires = "expires"
)

// Kept is how long a marker is kept. A step that cannot look for it for so long has lost its lease.
const Kept = time.Hour

// Attempt identifies the marker of one attempt of a job.
type Attempt struct {
	Install fairlead.InstallID
	Job     fairlead.JobID
	Epoch   int64
}

// Key returns the marker's key. It starts with the install, by which the permissions of an
// install's sessions are limited.
func (a Attempt) Key() string {
	return string(a.Install) + "/" + string(a.Job) + "/" + strconv.FormatInt(a.Epoch, 10)
}

// OfWarmStep returns the marker of a warm step for jobs of the install.
func OfWarmStep(install fairlead.InstallID, id fairlead.WarmStepID) Attempt {
	return Attempt{Install: install, Job: fairlead.JobID(id), Epoch: 1} // the prefixes of identifiers differ
}

// Marks writes markers. Safe for concurrent use.
type Marks interface {
	// Put writes the attempt's marker. Writing it again is safe.
	Put(ctx context.Context, a Attempt) error
}

// Place is where an attempt's marker is: URL is the endpoint of DynamoDB, Table the table of
// markers.
type Place struct{ URL, Table, Key string }
