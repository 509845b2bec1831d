package identity

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Scope lists the cloud resources that a runner's session, or one attempt of a job, may use in the control plane's
// account. The session or attempt may use no other resources.
type Scope struct {
	Runner  fairlead.RunnerID
	Install fairlead.InstallID // of Job; "" for a session, because a runner may serve many installs
	App     fairlead.AppID     // of Install

	Queue string         // for a session: the runner's queue, by the name that the control plane gave it
	Job   fairlead.JobID // the job whose log is written, whose artifacts are fetched and whose cancel marker is read; for an attempt
	Epoch int64          // of Job
	NoLog bool           // the log of Job is not written: its runner has used up its budget of log bytes
	// Warm is a warm step of Install, which only reads its marker; for a warm step.
	Warm fairlead.WarmStepID
}

// Access gives direct access to the resources of a Scope: their locations, and credentials that expire soon.
type Access struct {
	Region                                     string
	AccessKeyID, SecretAccessKey, SessionToken string
	Expires                                    time.Time

	QueuePrefix, Queue string // if the scope has a Queue
	LogGroup           string // if the scope has a Job
	Repository         string // if the scope has a Job: the prefix of its app's repositories
	// Cancel is the place of the attempt's cancel marker, if the scope has a Job, or of the
	// warm step's marker; the zero value: there are no markers.
	Cancel cancelmark.Place

	Image ImagePlace // only of the access of a build to the service that builds its image
}

// ImagePlace is where one attempt of a build lets a service build its image.
type ImagePlace struct {
	Project             string // of AWS CodeBuild
	Bucket, Prefix      string // of the objects of this attempt; Prefix ends with a slash
	LogGroup, LogStream string // LogStream is the prefix of this attempt's streams, without the slash that follows
}

// Granter grants access. Safe for concurrent use.
type Granter interface {
	// Grant returns access to all resources of the scope and to no others. A caller may repeat the call; each call
	// returns new credentials.
	Grant(ctx context.Context, s Scope) (Access, error)
}

// Login is a name and a password for a registry of artifacts.
type Login struct {
	Username, Password string
	Expires            time.Time // zero: when the token used as the password expires
}
