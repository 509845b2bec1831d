package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

type vars = map[string]string

// Meta returns the control plane's version, registry and keys. It needs no token.
func (c *Client) Meta(ctx context.Context) (wire.Meta, error) {
	return get[wire.Meta](ctx, c, call{route: wire.GetMeta})
}

// PublishVersion publishes an app version.
func (c *Client) PublishVersion(ctx context.Context, app string, in wire.PublishVersionRequest) (wire.AppVersion, error) {
	return get[wire.AppVersion](ctx, c, call{route: wire.PublishVersion, path: vars{"app": app}, in: in})
}

// OpenRegistry returns the repositories for the artifacts of an app's components, and
// a login. The app need not exist yet.
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

// BuildApp requests the builds of an app's components.
func (c *Client) BuildApp(ctx context.Context, app string, in wire.BuildAppRequest) (wire.AppBuilds, error) {
	return get[wire.AppBuilds](ctx, c, call{route: wire.BuildApp, path: vars{"app": app}, in: in, key: NewIdempotencyKey()})
}

// DeleteApp deletes an app that no install uses.
func (c *Client) DeleteApp(ctx context.Context, app string) error {
	_, err := c.do(ctx, call{route: wire.DeleteApp, path: vars{"app": app}}, nil)
	return err
}

// ListVersions lists one page of an app's versions, newest first.
func (c *Client) ListVersions(ctx context.Context, app string, o ListOptions) (wire.Page[wire.AppVersion], error) {
	return page[wire.AppVersion](ctx, c, o, call{route: wire.ListVersions, path: vars{"app": app}})
}

// GetVersion returns a version of an app with its configuration. ref is an identifier or a name.
func (c *Client) GetVersion(ctx context.Context, app, ref string) (wire.AppVersion, error) {
	return get[wire.AppVersion](ctx, c, call{route: wire.GetVersion, path: vars{"app": app, "version": ref}})
}

// GetProvenance returns the signed provenance of a component that a build made. ref is an identifier or a name of a version.
func (c *Client) GetProvenance(ctx context.Context, app, ref, component string) (wire.Provenance, error) {
	return get[wire.Provenance](ctx, c, call{route: wire.GetProvenance, path: vars{"app": app, "version": ref, "component": component}})
}

// CreateInstall creates an install.
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

// UpdateInstall changes an install's inputs, labels or runner.
func (c *Client) UpdateInstall(ctx context.Context, install string, in wire.UpdateInstallRequest) (wire.Install, error) {
	return get[wire.Install](ctx, c, call{route: wire.UpdateInstall, path: vars{"install": install}, in: in})
}

// ForgetInstall deletes an install's records. Unless abandon is set, the control
// plane refuses while a component may still exist in the customer's account.
func (c *Client) ForgetInstall(ctx context.Context, install string, abandon bool) error {
	q := url.Values{}
	if abandon {
		q.Set("abandon", "true")
	}
	_, err := c.do(ctx, call{route: wire.ForgetInstall, path: vars{"install": install}, query: q}, nil)
	return err
}

// CheckStack checks whether a runner stack could be prepared in a customer's account.
func (c *Client) CheckStack(ctx context.Context, in wire.CheckStackRequest) error {
	_, err := c.do(ctx, call{route: wire.CheckStack, in: in}, nil)
	return err
}

// PutStack prepares an install for a runner stack in a customer's account.
func (c *Client) PutStack(ctx context.Context, install string, in wire.PutStackRequest) (wire.Stack, error) {
	return get[wire.Stack](ctx, c, call{route: wire.PutStack, path: vars{"install": install}, in: in})
}

// GetStack returns the runner stack of an install.
func (c *Client) GetStack(ctx context.Context, install string) (wire.Stack, error) {
	return get[wire.Stack](ctx, c, call{route: wire.GetStack, path: vars{"install": install}})
}

// ListStacks lists one page of runner stacks by the names of their installs; only those
// with an older template or image if behind is true. A page before the last page may
// have fewer items than the limit, even none.
func (c *Client) ListStacks(ctx context.Context, behind bool, o ListOptions) (wire.Page[wire.Stack], error) {
	q := url.Values{}
	if behind {
		q.Set("behind", "true")
	}
	return page[wire.Stack](ctx, c, o, call{route: wire.ListStacks, query: q})
}

// RenderInstall returns what a deployment of the install would give to each component, or to the named component. version is
// an identifier or a name; "": the newest version.
func (c *Client) RenderInstall(ctx context.Context, install, version, component string) (wire.Rendered, error) {
	q := url.Values{}
	if version != "" {
		q.Set("version", version)
	}
	if component != "" {
		q.Set("component", component)
	}
	return get[wire.Rendered](ctx, c, call{route: wire.RenderInstall, path: vars{"install": install}, query: q})
}

// GetOutputs returns an install's outputs; sensitive values only if showSensitive is
// true.
func (c *Client) GetOutputs(ctx context.Context, install string, showSensitive bool) (wire.Outputs, error) {
	q := url.Values{}
	if showSensitive {
		q.Set("show_sensitive", "true")
	}
	return get[wire.Outputs](ctx, c, call{route: wire.GetOutputs, path: vars{"install": install}, query: q})
}

// UnlockState breaks the state lock of a component if the tool that locked the state
// has ended. If lock is not "", UnlockState breaks only the lock with that ID.
func (c *Client) UnlockState(ctx context.Context, install, component, lock string) error {
	q := url.Values{}
	set(q, "lock_id", lock)
	_, err := c.do(ctx, call{route: wire.UnlockState, path: vars{"install": install, "component": component}, query: q}, nil)
	return err
}

// PushState replaces the stored state of a component with a state that a tool could
// not save.
func (c *Client) PushState(ctx context.Context, install, component string, state []byte) (wire.PushedState, error) {
	return get[wire.PushedState](ctx, c, call{route: wire.PushState, path: vars{"install": install, "component": component}, raw: state})
}

// ListActions returns the actions of the version that an install has deployed.
func (c *Client) ListActions(ctx context.Context, install string) (wire.InstallActions, error) {
	return get[wire.InstallActions](ctx, c, call{route: wire.ListActions, path: vars{"install": install}})
}

// RunAction starts or queues a run of an action.
func (c *Client) RunAction(ctx context.Context, install, action string, in wire.RunActionRequest) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.RunAction, path: vars{"install": install, "action": action}, in: in, key: NewIdempotencyKey()})
}

// CreateDeployment starts or queues a deployment.
func (c *Client) CreateDeployment(ctx context.Context, install string, in wire.CreateDeploymentRequest) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.CreateDeployment, path: vars{"install": install}, in: in, key: NewIdempotencyKey()})
}

// DeploymentFilter selects deployments; the zero value selects all.
type DeploymentFilter struct {
	Install string // name, also of a forgotten install
	Action  string // only runs of this action
	State   string
	ID      string // prefix of the IDs
}

// ListDeployments lists one page of deployments, newest first. A page before the last
// page may also have fewer items than the limit, even none.
func (c *Client) ListDeployments(ctx context.Context, f DeploymentFilter, o ListOptions) (wire.Page[wire.Deployment], error) {
	q := url.Values{}
	set(q, "install", f.Install)
	set(q, "action", f.Action)
	set(q, "state", f.State)
	set(q, "id", f.ID)
	return page[wire.Deployment](ctx, c, o, call{route: wire.ListDeployments, query: q})
}

// GetDeployment returns a deployment.
func (c *Client) GetDeployment(ctx context.Context, deployment string) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.GetDeployment, path: vars{"deployment": deployment}})
}

// WaitDeployment waits until the deployment's revision is greater than the parameter
// after, and returns the deployment. When the duration wait has passed, it returns the
// deployment as it is. The server waits at most 20 s.
func (c *Client) WaitDeployment(ctx context.Context, deployment string, after int64, wait time.Duration) (wire.Deployment, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait_seconds": {seconds(wait)}}
	return get[wire.Deployment](ctx, c, call{route: wire.GetDeployment, path: vars{"deployment": deployment}, query: q})
}

// ApproveDeployment approves plans that wait for approval. If the answer is lost, the
// client does not repeat the request. A repeated request could approve a newer plan
// that no person has seen.
func (c *Client) ApproveDeployment(ctx context.Context, deployment string, in wire.ApproveRequest) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.ApproveDeployment, path: vars{"deployment": deployment}, in: in, once: true})
}

// CancelDeployment cancels a deployment; running tools are interrupted.
func (c *Client) CancelDeployment(ctx context.Context, deployment string) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.CancelDeployment, path: vars{"deployment": deployment}})
}

// RetryDeployment starts a deployment that continues where this one failed.
func (c *Client) RetryDeployment(ctx context.Context, deployment string) (wire.Deployment, error) {
	return get[wire.Deployment](ctx, c, call{route: wire.RetryDeployment, path: vars{"deployment": deployment}, key: NewIdempotencyKey()})
}

// JobFilter selects jobs; the zero value selects all.
type JobFilter struct {
	Deployment string
	ID         string // prefix of the IDs
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

// CancelJob cancels a job, and with it the job's component in its deployment.
func (c *Client) CancelJob(ctx context.Context, job string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.CancelJob, path: vars{"job": job}})
}

// ReadJobLog reads a job's log from a cursor: an epoch (0: the first) and an offset.
// The fields Epoch and Next of a chunk are the cursor of the next chunk. The server
// waits for new data, at most for the duration wait.
func (c *Client) ReadJobLog(ctx context.Context, job string, epoch, offset int64, wait time.Duration) (wire.LogChunk, error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}, "wait_seconds": {seconds(wait)}}
	if epoch > 0 {
		q.Set("epoch", strconv.FormatInt(epoch, 10))
	}
	return get[wire.LogChunk](ctx, c, call{route: wire.ReadJobLog, path: vars{"job": job}, query: q})
}

// CreateRunner creates a runner.
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

// CreateEnrolment creates a single-use enrolment token.
func (c *Client) CreateEnrolment(ctx context.Context, runner string) (wire.Enrolment, error) {
	return get[wire.Enrolment](ctx, c, call{route: wire.CreateEnrolment, path: vars{"runner": runner}})
}

// CheckRunner queues a job that changes nothing. Its success shows that the runner
// can run jobs.
func (c *Client) CheckRunner(ctx context.Context, runner string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.CheckRunner, path: vars{"runner": runner}, key: NewIdempotencyKey()})
}

// AskRunnerLog queues a job that copies the recent log of the runner's agent into the
// job's log.
func (c *Client) AskRunnerLog(ctx context.Context, runner string) (wire.Job, error) {
	return get[wire.Job](ctx, c, call{route: wire.AskRunnerLog, path: vars{"runner": runner}, key: NewIdempotencyKey()})
}

// seconds renders d in whole seconds, for a query.
func seconds(d time.Duration) string { return strconv.Itoa(whole(d)) }

// whole rounds d up to whole seconds. If it rounded half a second down to 0, a loop of
// waits would send requests without a pause.
func whole(d time.Duration) int { return int((max(d, 0) + time.Second - 1) / time.Second) }
