// Package planstore stores saved plans between a plan and its apply: on the runner's disk, or in the control plane. The terraform
// plugin stores plans in the customer's own storages, which only its tool can access.
package planstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/plane"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Store stores saved plans. A plan belongs to the job that made it. Implementations may be used by one job only.
type Store interface {
	// Put saves a plan. It repeats a request to the control plane until ctx ends.
	Put(ctx context.Context, job string, plan []byte) error
	// Get returns the plan that a job saved. The error is a *plugin.Error with fairlead.ReasonPlanMissing if there is none.
	Get(ctx context.Context, job string) ([]byte, error)
	// Applied reports that the plan was applied, so that it is not needed any more.
	Applied(job string)
}

// Save puts a plan into a store. The error is ctx's, or a *plugin.Error that a person can read.
func Save(ctx context.Context, s Store, job string, plan []byte) error {
	err := s.Put(ctx, job, plan)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("save the plan: %w", ctx.Err())
	}
	return &plugin.Error{Reason: fairlead.ReasonPlanUnsaved, Err: err, Message: fmt.Sprintf("the plan could not be saved, so it cannot be applied: %v", err)}
}

// Approved gets the plan that a job saved, and refuses it if it does not have the approved digest. The error is ctx's, or a
// *plugin.Error.
func Approved(ctx context.Context, s Store, job, digest string) ([]byte, error) {
	saved, err := s.Get(ctx, job)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("fetch the plan: %w", ctx.Err())
		}
		if _, ok := errors.AsType[*plugin.Error](err); ok {
			return nil, err
		}
		return nil, &plugin.Error{Reason: fairlead.ReasonPlanMissing, Err: err, Message: fmt.Sprintf("the saved plan could not be fetched: %v; retry", err)}
	}
	if got := plugin.Digest(saved); got != digest {
		return nil, plugin.Errorf(fairlead.ReasonPlanDigest, "the saved plan is %s, but %s was approved: nothing was applied; plan again", got, digest)
	}
	return saved, nil
}

// Disk stores plans on the runner's disk.
type Disk struct{ folder string }

// OnDisk returns the store in a runner's data folder.
func OnDisk(data string) *Disk { return &Disk{filepath.Join(data, "plans")} }

// Folder returns the folder of the plan that a job saved. Files of its plugin can be beside the plan until the plan is applied.
func (d *Disk) Folder(job string) string { return filepath.Join(d.folder, job) }

// Put implements Store. It also removes plans that were never applied.
func (d *Disk) Put(_ context.Context, job string, plan []byte) error {
	dir := d.Folder(job)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	if err := errors.Join(safefile.Write(filepath.Join(dir, "plan"), plan, 0o600), safefile.SyncFolder(d.folder)); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	workspace.RemoveUnused(d.folder)
	return nil
}

// Get implements Store.
func (d *Disk) Get(_ context.Context, job string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(d.Folder(job), "plan"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.Errorf(fairlead.ReasonPlanMissing, "the plan of %s is not on this runner's disk; plan again", job)
	}
	return b, err
}

// Applied removes the plan: a plan is applied once.
func (d *Disk) Applied(job string) { os.RemoveAll(d.Folder(job)) }

// Plane stores plans in the control plane.
type Plane struct {
	client *client.Client
	job    string
}

// InPlane returns the store of the control plane, with the lease of a job.
func InPlane(c *client.Client, job string) *Plane { return &Plane{c, job} }

// requestTimeout bounds one request with its parts. It equals the time that the control plane allows for the upload of a plan.
const requestTimeout = 2 * time.Minute

// transferTimeout bounds saving or fetching a plan. It equals the time for which a step repeats its report.
const transferTimeout = 15 * time.Minute

// Put implements Store.
func (p *Plane) Put(ctx context.Context, job string, plan []byte) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	_, err := plane.Ask(ctx, 0, requestTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.client.PutPlan(ctx, job, plan) })
	if err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	return nil
}

// Get returns the plan that the spec of this store's job names.
func (p *Plane) Get(ctx context.Context, _ string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	b, err := plane.Ask(ctx, 0, requestTimeout, func(ctx context.Context) ([]byte, error) { return p.client.GetPlan(ctx, p.job) })
	if client.HasCode(err, fairlead.CodePlanNotFound) {
		return nil, &plugin.Error{Reason: fairlead.ReasonPlanMissing, Err: err, Message: "the control plane does not have the saved plan; plan again"}
	}
	return b, err
}

// Applied does nothing: the control plane removes the plans of an ended deployment.
func (*Plane) Applied(string) {}
