package step

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
)

// runAttested is runPlugin for a component whose source is verified, or for a build. It writes to the job's log what a build
// made the component's artifact from. To the result of a build it adds the statement about the build, which the control plane
// signs if it agrees with the record of the job. The signed statement about an image becomes a referrer of the image.
func (a *execution) runAttested(job context.Context, lost <-chan struct{}, grace time.Duration, c *client.Client, started wire.Started,
	spec events.JobSpec, log *marks, secrets *redact.Set, guard *guard) (plugin.Result, error) {
	if b := spec.Built; b != nil {
		// An error of the log is found when it is closed.
		fmt.Fprintf(log, "verified: a build made component %s from %s of %s\n", spec.Component, b.Revision, b.Build.From.Place())
	}
	began := a.Now()
	res, err := a.runPlugin(job, lost, grace, c, started, spec, log, secrets, guard)
	if err != nil || res.Built == nil || spec.Build == nil {
		return res, err
	}
	res.Built.Statement, err = events.Provenance{Build: *spec.Build, Artifact: res.Built.Artifact, Revision: res.Built.Revision, Runner: spec.Runner,
		RunnerVersion: a.Version, Job: spec.Job, Started: began, Finished: a.Now()}.Statement()
	if err != nil || spec.Build.Image == nil {
		return res, err
	}
	signed, err := c.SignProvenance(job, string(spec.Job), *res.Built)
	if err != nil {
		return res, &plugin.Error{Reason: fairlead.ReasonArtifactUnavailable, Err: err,
			Message: fmt.Sprintf("the control plane does not sign the provenance of the image: %v. Publish the app again", err)}
	}
	return res, a.attachProvenance(job, c, started.LeaseToken, secrets.Add, spec.Push, res.Built.Artifact, signed.Envelope)
}
