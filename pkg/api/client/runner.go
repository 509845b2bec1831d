package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// ErrNoWork means that no job was queued while a claim waited. It is not a failure.
var ErrNoWork = errors.New("no work")

// Enrol exchanges a single-use token for an identity.
func (c *Client) Enrol(ctx context.Context, in wire.EnrolRequest) (wire.Enrolled, error) {
	return get[wire.Enrolled](ctx, c, call{route: wire.EnrolRunner, in: in})
}

// Challenge requests a nonce to sign.
func (c *Client) Challenge(ctx context.Context) (wire.Challenge, error) {
	return get[wire.Challenge](ctx, c, call{route: wire.CreateChallenge})
}

// CreateSession proves the agent's identity and returns a session.
func (c *Client) CreateSession(ctx context.Context, in wire.SessionRequest) (wire.Session, error) {
	return get[wire.Session](ctx, c, call{route: wire.CreateSession, in: in})
}

// HeartbeatSession reports the condition of the agent. The client's token must be a
// session token.
func (c *Client) HeartbeatSession(ctx context.Context, in wire.SessionHeartbeat) (wire.SessionStatus, error) {
	return get[wire.SessionStatus](ctx, c, call{route: wire.HeartbeatSession, in: in})
}

// Claim claims a job of the session's runner. If no job is queued, it waits for the
// duration wait, at most 20 s, and then returns ErrNoWork. If the answer is lost, the
// lease of the claimed job expires.
//
// warm reports whether the agent has warm steps to which the job may be assigned.
func (c *Client) Claim(ctx context.Context, wait time.Duration, warm bool) (wire.Claim, error) {
	return c.claim(ctx, call{route: wire.ClaimJob, in: wire.ClaimRequest{WaitSeconds: whole(wait), WarmSteps: warm}})
}

// ReportKeys reports the public keys of installs, by the installs' IDs. The client's token must be a session token.
func (c *Client) ReportKeys(ctx context.Context, keys map[string]string) error {
	_, err := c.do(ctx, call{route: wire.ReportKeys, in: wire.KeysReport{Keys: keys}}, nil)
	return err
}

// claim sends a request whose answer is a claim, or ErrNoWork if the answer is empty.
func (c *Client) claim(ctx context.Context, k call) (wire.Claim, error) {
	var out wire.Claim
	ok, err := c.do(ctx, k, &out)
	if err == nil && !ok {
		err = ErrNoWork
	}
	return out, err
}

// StartAhead returns the warm steps that the agent must start. The client's token must be a session token.
func (c *Client) StartAhead(ctx context.Context, in wire.AheadRequest) ([]wire.WarmStep, error) {
	out, err := get[wire.StartedAhead](ctx, c, call{route: wire.StartAhead, in: in})
	return out.WarmSteps, err
}

// AdoptSteps returns those of the steps whose agent is gone. The client's token must be a session token.
func (c *Client) AdoptSteps(ctx context.Context, in wire.AdoptRequest) (wire.AdoptedSteps, error) {
	return get[wire.AdoptedSteps](ctx, c, call{route: wire.AdoptSteps, in: in})
}

// EndWarmStep ends a warm step. It returns ErrNoWork if the warm step has no job and will get none. If a claim has
// assigned a job to it, EndWarmStep returns that claim without its launch token, and the step continues. The client's
// token must be a session token.
func (c *Client) EndWarmStep(ctx context.Context, warm string) (wire.Claim, error) {
	return c.claim(ctx, call{route: wire.EndWarmStep, path: vars{"warm": warm}})
}

// AwaitJob waits for the job of a warm step for the duration wait, at most 20 s, and returns its claim with the launch
// token, or ErrNoWork. The client's token must be the warm token. The first request needs a proof if the token is bound to
// an AWS role.
func (c *Client) AwaitJob(ctx context.Context, warm, step string, proof *wire.AWSIAMProof, wait time.Duration) (wire.Claim, error) {
	return c.claim(ctx, call{route: wire.AwaitJob, path: vars{"warm": warm}, in: wire.AwaitRequest{StepID: step, WaitSeconds: whole(wait), AWSIAM: proof}})
}

// ClaimJob claims the job that a wake-up named, or returns ErrNoWork if the job
// cannot be claimed. The parameter warm is as for Claim.
func (c *Client) ClaimJob(ctx context.Context, job string, warm bool) (wire.Claim, error) {
	return c.claim(ctx, call{route: wire.ClaimJob, in: wire.ClaimRequest{Job: job, WarmSteps: warm}})
}

// PullLogin returns a login to the registry of the job's artifacts. If the registry
// accepts the client's lease token as the login, PullLogin returns an *Error with code
// "no-pull-login".
func (c *Client) PullLogin(ctx context.Context, job string) (wire.RegistryLogin, error) {
	return get[wire.RegistryLogin](ctx, c, call{route: wire.GetPullLogin, path: vars{"job": job}})
}

// ImageBuild returns access to the service that builds the image of a build job. If the
// runner builds the image, ImageBuild returns an *Error with code "no-image-builds".
func (c *Client) ImageBuild(ctx context.Context, job string) (wire.ImageBuildAccess, error) {
	return get[wire.ImageBuildAccess](ctx, c, call{route: wire.GetImageBuild, path: vars{"job": job}})
}

// SignProvenance returns the signed statement about what a build job has made. The job then still has to report the same.
func (c *Client) SignProvenance(ctx context.Context, job string, built wire.Built) (wire.SignedProvenance, error) {
	return get[wire.SignedProvenance](ctx, c, call{route: wire.SignProvenance, path: vars{"job": job}, in: built})
}

// GetWarmMarker returns the place of a warm step's marker. The client's token must be the warm token of the step.
func (c *Client) GetWarmMarker(ctx context.Context, warm string) (wire.WarmMarker, error) {
	return get[wire.WarmMarker](ctx, c, call{route: wire.GetWarmMarker, path: vars{"warm": warm}})
}

// RenewLogAccess returns new credentials for an attempt's log. The client's token must
// be the lease token of the attempt.
func (c *Client) RenewLogAccess(ctx context.Context, job string) (wire.LogAccess, error) {
	return get[wire.LogAccess](ctx, c, call{route: wire.RenewLogAccess, path: vars{"job": job}})
}

// Release returns a claimed job to the queue. Call it only for a job whose step was
// not started.
func (c *Client) Release(ctx context.Context, job string, epoch int64) error {
	_, err := c.do(ctx, call{route: wire.ReleaseJob, path: vars{"job": job}, in: wire.ReleaseRequest{Epoch: epoch}}, nil)
	return err
}

// Died reports a step that ended without a report of its own.
func (c *Client) Died(ctx context.Context, job string, in wire.DiedRequest) error {
	_, err := c.do(ctx, call{route: wire.ReportDied, path: vars{"job": job}, in: in}, nil)
	return err
}

// Start exchanges the launch token for the signed spec. The client's token must be the
// launch token.
func (c *Client) Start(ctx context.Context, job string, in wire.StartRequest) (wire.Started, error) {
	return get[wire.Started](ctx, c, call{route: wire.StartJob, path: vars{"job": job}, in: in,
		header: map[string]string{wire.HeaderSpecFields: strings.Join(in.Fields, ",")}})
}

// HeartbeatJob renews the lease, and reports for how long the job's tool has written
// no output. The client's token must be the lease token.
func (c *Client) HeartbeatJob(ctx context.Context, job string, noOutput, wait time.Duration) (wire.Lease, error) {
	in := wire.JobHeartbeat{WaitSeconds: whole(wait), NoOutputSeconds: int(noOutput / time.Second)}
	return get[wire.Lease](ctx, c, call{route: wire.HeartbeatJob, path: vars{"job": job}, in: in})
}

// AppendLog stores data at offset of the attempt's log and returns the next offset. If
// offset is not the end of the stored log, it returns an *Error with code "log-offset"
// and the expected offset in the detail "want".
func (c *Client) AppendLog(ctx context.Context, job string, offset int64, data []byte) (int64, error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	a, err := get[wire.LogAppended](ctx, c, call{route: wire.AppendJobLog, path: vars{"job": job}, query: q, raw: data})
	return a.Next, err
}

// RescueLog is AppendLog for an agent whose step died before it sent its whole log.
// The client's token must be a session token.
func (c *Client) RescueLog(ctx context.Context, job string, epoch, offset int64, data []byte) (int64, error) {
	q := url.Values{"epoch": {strconv.FormatInt(epoch, 10)}, "offset": {strconv.FormatInt(offset, 10)}}
	a, err := get[wire.LogAppended](ctx, c, call{route: wire.RescueJobLog, path: vars{"job": job}, query: q, raw: data})
	return a.Next, err
}

// Finish reports how the job ended.
func (c *Client) Finish(ctx context.Context, job string, in wire.FinishRequest) error {
	_, err := c.do(ctx, call{route: wire.FinishJob, path: vars{"job": job}, in: in}, nil)
	return err
}

// PutPlan stores the attempt's saved plan in http storage, next to the state.
func (c *Client) PutPlan(ctx context.Context, job string, plan []byte) error {
	_, err := c.do(ctx, call{route: wire.PutPlan, path: vars{"job": job}, raw: plan}, nil)
	return err
}

// GetValues fetches the sensitive values that the job's spec names. The client's token must be the lease token.
func (c *Client) GetValues(ctx context.Context, job, name string) ([]byte, error) {
	return c.send(ctx, call{route: wire.GetValues, path: vars{"job": job, "name": name}})
}

// GetPlan fetches from http storage the saved plan that the job's spec names.
func (c *Client) GetPlan(ctx context.Context, job string) ([]byte, error) {
	return c.send(ctx, call{route: wire.GetPlan, path: vars{"job": job}})
}

// GetState fetches a state from http storage. It returns nil if there is no state.
// path is relative to the control plane's URL and comes from the job's spec. An answer
// that is not JSON is an error: for example, a web page with status 200 does not come
// from the control plane.
func (c *Client) GetState(ctx context.Context, job, path string) ([]byte, error) {
	route := wire.GetState
	route.Path = path
	// The route accepts only basic authentication, because the tool sends that.
	b, err := c.send(ctx, call{route: route, user: job})
	if err != nil || b == nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("%s: the answer is not a state: it is not JSON", route.ID)
	}
	return b, nil
}
