// Package planstore stores saved plans between a plan and its apply: on the runner's disk, or in the control plane. A runner
// with a key encrypts them, in every storage. The terraform
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
	"github.com/fairlead/fairlead/pkg/installkey"
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

// Save puts the plan of a plan job into a store, encrypted if keys has a key. It returns the digest that a person approves:
// that of the stored bytes. A person who knows a plan but a short secret in it could find the secret from the digest of the
// plan in clear. judge decides on the plan by this digest before anything is stored; nil: nothing is to be decided. The error is
// ctx's, judge's, or a *plugin.Error that a person can read.
func Save(ctx context.Context, s Store, spec plugin.Spec, keys installkey.Ring, plan []byte, judge func(digest string) error) (digest string, err error) {
	if !keys.IsZero() {
		if plan, err = seal(keys, placeOf(spec.Component, spec.Job), plan); err != nil {
			return "", err
		}
	}
	digest = plugin.Digest(plan)
	if judge != nil {
		if err := judge(digest); err != nil {
			return "", err
		}
	}
	err = s.Put(ctx, string(spec.Job), plan)
	switch {
	case err == nil:
		return digest, nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("save the plan: %w", ctx.Err())
	}
	return "", &plugin.Error{Reason: fairlead.ReasonPlanUnsaved, Err: err, Message: fmt.Sprintf("the plan could not be saved, so it cannot be applied: %v", err)}
}

// placeOf returns the place of a saved plan, so that the plan of another component or job does not open.
func placeOf(component string, job fairlead.JobID) string {
	return "plan/" + component + "/" + string(job)
}

// maxPlan is the largest plan in clear that Approved returns, in bytes. It bounds a plan that was compressed.
const maxPlan = 256 << 20

func seal(keys installkey.Ring, place string, plan []byte) ([]byte, error) {
	small, err := installkey.Compress(plan)
	if err != nil {
		return nil, err
	}
	return keys.Seal(place, small)
}

// open returns a plan in clear. It refuses a plan that no step of this customer made: with a key, an apply applies only what a
// holder of the seed has sealed for exactly this plan job.
func open(keys installkey.Ring, place string, saved []byte) ([]byte, error) {
	const replan = ". Nothing was applied: a new plan is needed"
	switch {
	case !installkey.Sealed(saved) && keys.IsZero():
		return saved, nil
	case !installkey.Sealed(saved):
		return nil, plugin.Errorf(fairlead.ReasonPlanElsewhere, "the saved plan is not encrypted. It was made before this runner had a key, or not by this runner%s", replan)
	}
	small, err := keys.OpenOwn(place, saved)
	if err == nil {
		var plan []byte
		if plan, err = installkey.Decompress(small, maxPlan); err == nil {
			return plan, nil
		}
	}
	e := &plugin.Error{Reason: fairlead.ReasonEncryptedDamaged, Err: err, Message: "the saved plan is damaged, or was made for another job or component. Nothing was applied: plan again"}
	switch {
	case errors.Is(err, installkey.ErrUnknownKey):
		e.Reason, e.Message = fairlead.ReasonPlanElsewhere, "the saved plan was encrypted for a key that this runner does not have"+replan
	case errors.Is(err, installkey.ErrForeign):
		e.Reason, e.Message = fairlead.ReasonEncryptedForeign, "the saved plan was not made by a step of this customer. Nothing was applied. Find out who can write to the storage of saved plans, then plan again"
	}
	return nil, e
}

// Approved gets the plan that the spec names, and refuses it if it does not have the approved digest, or if keys has a key and
// no step of this customer made the plan. The error is ctx's, or a *plugin.Error.
func Approved(ctx context.Context, s Store, spec plugin.Spec, keys installkey.Ring) ([]byte, error) {
	saved, err := s.Get(ctx, string(spec.Plan.Job))
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("fetch the plan: %w", ctx.Err())
		}
		if _, ok := errors.AsType[*plugin.Error](err); ok {
			return nil, err
		}
		return nil, &plugin.Error{Reason: fairlead.ReasonPlanMissing, Err: err, Message: fmt.Sprintf("the saved plan could not be fetched: %v; retry", err)}
	}
	if got := plugin.Digest(saved); got != spec.Plan.Digest {
		return nil, plugin.Errorf(fairlead.ReasonPlanDigest, "the saved plan is %s, but %s was approved: nothing was applied; plan again", got, spec.Plan.Digest)
	}
	return open(keys, placeOf(spec.Component, spec.Plan.Job), saved)
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
