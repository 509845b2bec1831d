package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

type vars = map[string]string

// Meta asks the control plane about itself; it needs no token.
func (c *Client) Meta(ctx context.Context) (wire.Meta, error) {
	return get[wire.Meta](ctx, c, call{route: wire.GetMeta})
}

// PublishVersion publishes an app version.
func (c *Client) PublishVersion(ctx context.Context, app string, in wire.PublishVersionRequest) (wire.AppVersion, error) {
	return get[wire.AppVersion](ctx, c, call{route: wire.PublishVersion, path: vars{"app": app}, in: in})
}

// OpenRegistry returns where the artifacts of an app's components are pushed to,
// and by which login. The app need not be there yet.
func (c *Client) OpenRegistry(ctx context.Context, app string, components []string) (wire.RegistryAccess, error) {
	return get[wire.RegistryAccess](ctx, c, call{route: wire.OpenRegistry, path: vars{"app": app}, in: wire.RegistryAccessRequest{Components: components}})
}

// ListApps lists one page of apps.
func (c *Client) ListApps(ctx context.Context, o ListOptions) (wire.Page[wire.App], error) {
	return page[wire.App](ctx, c, o, call{route: wire.ListApps})
}

// GetApp returns an app with its newest version.
func (c *Client) GetApp(ctx context.Context, app string) (wire.App, error) {
	return get[wire.App](ctx, c, call{route: wire.GetApp, path: vars{"app": app}})
}

// ListVersions lists one page of an app's versions, newest first.
func (c *Client) ListVersions(ctx context.Context, app string, o ListOptions) (wire.Page[wire.AppVersion], error) {
	return page[wire.AppVersion](ctx, c, o, call{route: wire.ListVersions, path: vars{"app": app}})
}

// CreateInstall makes an install.
func (c *Client) CreateInstall(ctx context.Context, in wire.CreateInstallRequest) (wire.Install, error) {
	return get[wire.Install](ctx, c, call{route: wire.CreateInstall, in: in, key: NewIdempotencyKey()})
}

// ListInstalls lists one page of installs.
func (c *Client) ListInstalls(ctx context.Context, o ListOptions) (wire.Page[wire.Install], error) {
	return page[wire.Install](ctx, c, o, call{route: wire.ListInstalls})
}

// GetInstall returns an install.
func (c *Client) GetInstall(ctx context.Context, install string) (wire.Install, error) {
	return get[wire.Install](ctx, c, call{route: wire.GetInstall, path: vars{"install": install}})
}

// GetEffective returns an install with what a deployment of it would use now.
func (c *Client) GetEffective(ctx context.Context, install string) (wire.Install, error) {
	return get[wire.Install](ctx, c, call{route: wire.GetInstall, path: vars{"install": install}, query: url.Values{"effective": {"true"}}})
}

// UpdateInstall changes an install's inputs.
func (c *Client) UpdateInstall(ctx context.Context, install string, in wire.UpdateInstallRequest) (wire.Install, error) {
	return get[wire.Install](ctx, c, call{route: wire.UpdateInstall, path: vars{"install": install}, in: in})
}

// ForgetInstall drops an install's records. Unless abandon is set it is
// refused while any component may still exist in the customer's account.
func (c *Client) ForgetInstall(ctx context.Context, install string, abandon bool) error {
	q := url.Values{}
	if abandon {
		q.Set("abandon", "true")
	}
	_, err := c.do(ctx, call{route: wire.ForgetInstall, path: vars{"install": install}, query: q}, nil)
	return err
}

// PutStack readies an install for a runner stack in a customer's account.
func (c *Client) PutStack(ctx context.Context, install string, in wire.PutStackRequest) (wire.Stack, error) {
	return get[wire.Stack](ctx, c, call{route: wire.PutStack, path: vars{"install": install}, in: in})
}

// GetStack returns the runner stack of an install.
func (c *Client) GetStack(ctx context.Context, install string) (wire.Stack, error) {
	return get[wire.Stack](ctx, c, call{route: wire.GetStack, path: vars{"install": install}})
}

// GetOutputs returns an install's outputs; sensitive values only when asked for.
func (c *Client) GetOutputs(ctx context.Context, install string, showSensitive bool) (wire.Outputs, error) {
	q := url.Values{}
	if showSensitive {
		q.Set("show_sensitive", "true")
	}
	return get[wire.Outputs](ctx, c, call{route: wire.GetOutputs, path: vars{"install": install}, query: q})
}

// UnlockState breaks the lock of a component's state that a dead tool left; if
// a lock is named, that one and no other.
func (c *Client) UnlockState(ctx context.Context, install, component, lock string) error {
	q := url.Values{}
	set(q, "lock_id", lock)
	_, err := c.do(ctx, call{route: wire.UnlockState, path: vars{"install": install, "component": component}, query: q}, nil)
	return err
}

// PushState puts a state in place that a tool could not save.
func (c *Client) PushState(ctx context.Context, install, component string, state []byte) (wire.PushedState, error) {
	return get[wire.PushedState](ctx, c, call{route: wire.PushState, path: vars{"install": install, "component": component}, raw: state})
}

// CreateDeployment starts or queues a deployment.
func (c *Client) CreateDeployment(ctx context.Context, install string, in wire.CreateDeploymentRequest) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.CreateDeployment, path: vars{"install": install}, in: in, key: NewIdempotencyKey()})
}

// DeploymentFilter selects deployments; the zero value selects all.
type DeploymentFilter struct {
	Install string // name, also of one that has been forgotten
	State   string
	ID      string // the beginning of identifiers
}

// ListDeployments lists one page of deployments, newest first. One that is not
// the last may hold fewer than asked for, even none.
func (c *Client) ListDeployments(ctx context.Context, f DeploymentFilter, o ListOptions) (wire.Page[wire.Deployment], error) {
	q := url.Values{}
	set(q, "install", f.Install)
	set(q, "state", f.State)
	set(q, "id", f.ID)
	return page[wire.Deployment](ctx, c, o, call{route: wire.ListDeployments, query: q})
}

// GetDeployment returns a deployment.
func (c *Client) GetDeployment(ctx context.Context, deployment string) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.GetDeployment, path: vars{"deployment": deployment}})
}

// WaitDeployment returns the deployment once its revision is greater than
// after, or as it is when wait is over. The server waits at most 20 s.
func (c *Client) WaitDeployment(ctx context.Context, deployment string, after int64, wait time.Duration) (wire.Deployment, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait_seconds": {seconds(wait)}}
	return get[wire.Deployment](ctx, c, call{route: wire.GetDeployment, path: vars{"deployment": deployment}, query: q})
}

// ApproveDeployment approves plans that wait for approval. When the answer is
// lost it is not sent again: by then another plan, which nobody has seen, may
// wait for approval.
func (c *Client) ApproveDeployment(ctx context.Context, deployment string, in wire.ApproveRequest) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.ApproveDeployment, path: vars{"deployment": deployment}, in: in, once: true})
}

// CancelDeployment cancels a deployment; running tools are interrupted.
func (c *Client) CancelDeployment(ctx context.Context, deployment string) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.CancelDeployment, path: vars{"deployment": deployment}})
}

// RetryDeployment starts a deployment that goes on where this one failed.
func (c *Client) RetryDeployment(ctx context.Context, deployment string) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.RetryDeployment, path: vars{"deployment": deployment}, key: NewIdempotencyKey()})
}

// JobFilter selects jobs; the zero value selects all.
type JobFilter struct {
	Deployment string
	ID         string // the beginning of identifiers
}

// ListJobs lists one page of jobs, newest first.
func (c *Client) ListJobs(ctx context.Context, f JobFilter, o ListOptions) (wire.Page[wire.Job], error) {
	q := url.Values{}
	set(q, "deployment", f.Deployment)
	set(q, "id", f.ID)
	return page[wire.Job](ctx, c, o, call{route: wire.ListJobs, query: q})
}

// GetJob returns a job.
func (c *Client) GetJob(ctx context.Context, job string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.GetJob, path: vars{"job": job}})
}

// CancelJob cancels a job, and with it its deployment's way through that component.
func (c *Client) CancelJob(ctx context.Context, job string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.CancelJob, path: vars{"job": job}})
}

// ReadJobLog reads a job's log from a cursor: the epoch (0: the first) and
// offset of the chunk before. The server waits up to wait for news.
func (c *Client) ReadJobLog(ctx context.Context, job string, epoch, offset int64, wait time.Duration) (wire.LogChunk, error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}, "wait_seconds": {seconds(wait)}}
	if epoch > 0 {
		q.Set("epoch", strconv.FormatInt(epoch, 10))
	}
	return get[wire.LogChunk](ctx, c, call{route: wire.ReadJobLog, path: vars{"job": job}, query: q})
}

// CreateRunner makes a runner.
func (c *Client) CreateRunner(ctx context.Context, in wire.CreateRunnerRequest) (wire.Runner, error) {
	return get[wire.Runner](ctx, c, call{route: wire.CreateRunner, in: in, key: NewIdempotencyKey()})
}

// ListRunners lists one page of runners.
func (c *Client) ListRunners(ctx context.Context, o ListOptions) (wire.Page[wire.Runner], error) {
	return page[wire.Runner](ctx, c, o, call{route: wire.ListRunners})
}

// GetRunner returns a runner with its sessions.
func (c *Client) GetRunner(ctx context.Context, runner string) (wire.Runner, error) {
	return get[wire.Runner](ctx, c, call{route: wire.GetRunner, path: vars{"runner": runner}})
}

// CreateEnrolment makes a single-use enrolment token.
func (c *Client) CreateEnrolment(ctx context.Context, runner string) (wire.Enrolment, error) {
	return get[wire.Enrolment](ctx, c, call{route: wire.CreateEnrolment, path: vars{"runner": runner}})
}

// CheckRunner queues a job that does nothing but prove the way through the runner.
func (c *Client) CheckRunner(ctx context.Context, runner string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.CheckRunner, path: vars{"runner": runner}, key: NewIdempotencyKey()})
}

// AskRunnerLog queues a job whose log is what the runner's agent itself has said
// of late.
func (c *Client) AskRunnerLog(ctx context.Context, runner string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.AskRunnerLog, path: vars{"runner": runner}, key: NewIdempotencyKey()})
}

// seconds renders d in whole seconds, for a query.
func seconds(d time.Duration) string { return strconv.Itoa(whole(d)) }

// whole rounds d up to whole seconds: a wait of half a second must not become
// none, which would make a loop of waits a busy one.
func whole(d time.Duration) int { return int((max(d, 0) + time.Second - 1) / time.Second) }
