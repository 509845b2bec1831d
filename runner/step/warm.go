package step

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
)

const (
	// awaitFor is the longest wait for a job in one request. It is the API's limit.
	awaitFor = 20 * time.Second
	// awaitSlack is the time that an answer may take in addition to awaitFor.
	awaitSlack = 15 * time.Second
	// awaitPause is the pause after an empty answer that came early: a control plane that pays for each second of a
	// request does not let it wait. The job waits for this long at most.
	awaitPause = time.Second
	// awaitPatient replaces awaitPause between two looks for the marker when a step has waited for longer than patientAfter:
	// then jobs of its deployment take minutes, so two seconds more are little. Where jobs are short, no step waits so long.
	awaitPatient = 3 * time.Second
	patientAfter = time.Minute
	// awaitWithMarker is the pause of a step that looks for its marker meanwhile. A marker can be lost, and a step whose
	// deployment has ended gets none.
	awaitWithMarker = time.Minute
	// maxMarkerErrors is how often in succession the look for the marker may fail. Some networks block DynamoDB.
	maxMarkerErrors = 3
	// outlive is how long a warm step continues to ask after its time is over, because clocks differ. Only the answer
	// of the control plane makes certain that no claim assigns a job to it.
	outlive = time.Minute
)

// awaitJob waits until the control plane assigns a job to this step, which was started ahead. It sets the fields of the
// input that come from the job's claim, and returns the launch token. Until then the step has no credential of any job.
func (a *execution) awaitJob(ctx context.Context, token string) (launch string, err error) {
	c, err := a.client(token, -1)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.in.Warm.Expires.Sub(a.Now())+outlive, errors.New("its time is over"))
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	listening := make(chan struct{})
	defer func() { // a later signal is for the job
		interrupt(nil)
		<-listening
	}()
	go func() {
		defer close(listening)
		select {
		case <-a.Signals:
			interrupt(errors.New("the runner asked it to stop"))
		case <-ctx.Done():
		}
	}()
	pauses := a.quick(0).Pauses()
	id := a.NewID() // in no file, as in start
	var marker *markerOfWarm
	known := false // the control plane knows the id of this step
	for {
		sent := a.Now()
		claim, err := a.awaitOnce(ctx, c, token, id, !known)
		known = known || err == nil || errors.Is(err, client.ErrNoWork)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx) // an assignment that came with the signal is lost: the agent reports the death
		case err == nil:
			return claim.LaunchToken, a.take(claim)
		case errors.Is(err, client.ErrNoWork):
			pauses.Reset()
			if a.Now().Sub(sent) < awaitPause {
				if marker == nil {
					marker = a.findMarker(ctx, c)
				}
				marker.await(ctx, a)
			}
		case client.Refused(err):
			return "", err
		default:
			_ = retry.Sleep(ctx, pauses.NextBackOff())
		}
	}
}

func (a *execution) awaitOnce(ctx context.Context, c *client.Client, token, id string, first bool) (wire.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitFor+awaitSlack)
	defer cancel()
	var proof *wire.AWSIAMProof
	if first {
		var err error
		if proof, err = a.proof(ctx, token, wire.AwaitStatement(a.in.Warm.ID, id)); err != nil {
			return wire.Claim{}, err
		}
	}
	return c.AwaitJob(ctx, a.in.Warm.ID, id, proof, awaitFor)
}

// markerOfWarm is the marker of a warm step. A step asks the control plane less often while it looks for the marker, because
// a look costs a thirtieth of a request.
type markerOfWarm struct {
	found  func(context.Context) (bool, error) // nil: the step has no marker
	since  time.Time                           // when the step began to look
	errors int                                 // in succession
}

// findMarker asks the control plane for the place of the marker, once. An older control plane has none.
func (a *execution) findMarker(ctx context.Context, c *client.Client) *markerOfWarm {
	if a.FindMarker == nil {
		return &markerOfWarm{}
	}
	ctx, cancel := context.WithTimeout(ctx, awaitSlack)
	defer cancel()
	m, err := c.GetWarmMarker(ctx, a.in.Warm.ID)
	if err != nil {
		a.Log.Debug("this step has no marker; it asks for its job each second", "warm", a.in.Warm.ID, "err", err)
		return &markerOfWarm{}
	}
	found := a.FindMarker(Marker{Place: cancelmark.Place(m.Marker), Region: m.Region, HTTP: &http.Client{Transport: a.Transport}, Now: a.Now,
		Credentials: func(context.Context) (wire.CloudAccess, error) { return m.CloudAccess, nil }})
	return &markerOfWarm{found: found, since: a.Now()}
}

// await returns when it is time to ask the control plane.
func (m *markerOfWarm) await(ctx context.Context, a *execution) {
	for asked := a.Now(); ; {
		pause := awaitPause
		if m.found != nil && a.Now().Sub(m.since) >= patientAfter {
			pause = awaitPatient
		}
		_ = retry.Sleep(ctx, pause)
		if m.found == nil || ctx.Err() != nil || a.Now().Sub(asked) >= awaitWithMarker {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		found, err := m.found(bounded)
		cancel()
		switch {
		case ctx.Err() != nil || found:
			return
		case err == nil:
			m.errors = 0
		case m.errors+1 == maxMarkerErrors:
			a.Log.Warn("cannot look for the marker; this step asks for its job each second", "warm", a.in.Warm.ID, "err", err)
			m.found = nil
		default:
			m.errors++
		}
	}
}

// take makes the claimed job the job of this step. It refuses a job that the step was not started for: the step has the
// role of another operation, belongs to another install, or runs in another image.
func (a *execution) take(c wire.Claim) error {
	if err := attempt.CheckID(c.Job); err != nil || c.Epoch < 1 || c.LaunchToken == "" {
		return fmt.Errorf("the control plane answers with no valid claim: job %q, epoch %d", c.Job, c.Epoch)
	}
	t, _ := component.Of(c.Plugin)
	if role, ok := t.RoleOf(job.Operation(c.Operation), c.Role); !ok || role != a.in.Warm.Role {
		return fmt.Errorf("the control plane assigns the %s of a %s to a step with the role %s", c.Operation, c.Plugin, a.in.Warm.Role)
	}
	if c.Image != "" {
		return fmt.Errorf("the control plane assigns a job in the image %s to a step in the runner's image", c.Image)
	}
	if a.in.InstallID != "" && a.in.InstallID != c.InstallID {
		return fmt.Errorf("the control plane assigns a job of install %s to a step of install %s", c.InstallID, a.in.InstallID)
	}
	a.in = a.in.WithJob(c)
	return nil
}
