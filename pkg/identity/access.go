package identity

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Scope is what a runner's session, or one attempt of a job, may reach of the
// cloud in which the control plane is. What is not named it may not.
type Scope struct {
	Runner  fairlead.RunnerID
	Install fairlead.InstallID
	App     fairlead.AppID

	Queue string         // the runner's, by the name that the control plane has for it: its session
	Job   fairlead.JobID // whose log is written, and whose artifacts are fetched: an attempt
	Epoch int64          // of Job
}

// Access is a way past the APIs to what a Scope names: where it is, and
// credentials that end soon.
type Access struct {
	Region                                     string
	AccessKeyID, SecretAccessKey, SessionToken string
	Expires                                    time.Time

	QueuePrefix, Queue string // with a Queue in the scope
	LogGroup           string // with a Job in the scope
	Repository         string // with a Job in the scope: that its app's repositories are below
}

// Granter gives access. Safe for concurrent use.
type Granter interface {
	// Grant returns access to all that the scope names and to nothing else. It
	// may be repeated; each time the credentials are new.
	Grant(ctx context.Context, s Scope) (Access, error)
}

// Login is a name and a password for a registry of artifacts.
type Login struct {
	Username, Password string
	Expires            time.Time // zero: when the token that is the password does
}
