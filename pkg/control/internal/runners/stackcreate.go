package runners

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/store"
)

// NewStack is a request to prepare an install for a runner stack.
type NewStack struct {
	Account string `json:"account"`          // the customer's AWS account, 12 digits
	Region  string `json:"region,omitempty"` // proposed to the customer; "": any
	// Replace makes the control plane forget the current stack. Set it if the customer
	// removed the stack, or installs it in another account.
	Replace bool `json:"replace,omitempty"`
}

// CreateStack prepares an install for a runner stack in the customer's account. It
// creates the external id, and allows the stack's runner role to open sessions of the
// install's runner. A repeated request only changes the region and restarts the wait
// for the role.
func (f *Fleet) CreateStack(ctx context.Context, org fairlead.OrgID, install string, in NewStack) (Stack, error) {
	partition, err := f.checkStack(in)
	if err != nil {
		return Stack{}, err
	}
	external := "fl-" + rand.Text()
	err = f.Transact(ctx, "ready install "+install+" for a stack", func(tx *kernel.Tx) error {
		inst, err := f.Store.Install(ctx, org, install)
		if err != nil {
			return err
		}
		runner, err := ServingRunner(tx, inst.V)
		if err != nil {
			return err
		}
		if runner.V.Shared() {
			return operatorOnly(fmt.Sprintf("runner %s is shared with every org, and cannot run in a customer's stack", runner.V.Name))
		}
		r, err := store.Optional(f.Store.Stack(ctx, runner.V.ID))
		if err != nil {
			return err
		}
		known := r.Version > 0
		if known && r.V.Install != inst.V.ID {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerServesAnother,
				Message: fmt.Sprintf("runner %s runs in the stack of install %s", runner.V.Name, r.V.InstallName),
				Hint:    "A stack is for one install: create a runner for this install, and create the install with that runner."}
		}
		if known && r.V.ExternalID == external {
			return nil // our own earlier commit, whose outcome was unclear
		}
		trust, err := awsiam.ParseTrust(awsiam.RunnerRole(partition, in.Account, inst.V.ID), "", tx.Now.Add(roleWait).Truncate(time.Second))
		if err != nil {
			return err
		}
		if !in.Replace {
			if trust, err = keepTrust(inst.V, runner.V, trust, known && r.V.Report == nil); err != nil {
				return err
			}
		}
		runner.V.Trust = &trust
		if !known {
			if r.V, err = newStack(tx, inst.V, runner.V); err != nil {
				return err
			}
			r.V.ExternalID = external
		}
		if r.V.Account != in.Account || in.Replace {
			retire(&r.V)
			r.V.Reported, r.V.Adopted = time.Time{}, false
		}
		r.V.Account, r.V.Region = in.Account, in.Region
		tx.PutStack(r)
		if err := adapt(tx, &runner.V, inst.V, r.V.Report == nil); err != nil {
			return err
		}
		tx.PutRunner(runner)
		return nil
	})
	if err != nil {
		return Stack{}, err
	}
	v, err := f.Stack(ctx, org, install)
	if err != nil {
		return v, err
	}
	if err := f.makeQueue(ctx, v.Runner, v.RunnerName); err != nil {
		return Stack{}, err
	}
	return v, nil
}

// CheckStack returns the error of CreateStack for a request that no install can make.
func (f *Fleet) CheckStack(in NewStack) error {
	_, err := f.checkStack(in)
	return err
}

// checkStack is CheckStack. It returns the partition of the stack.
func (f *Fleet) checkStack(in NewStack) (partition string, err error) {
	if !awsiam.IsAccount(in.Account) {
		return "", fairlead.Invalid(fairlead.CodeInvalidAccount, "%.40q is not an AWS account id, which has 12 digits", in.Account)
	}
	partition, ok := awsiam.PartitionOf(in.Region)
	if !ok {
		return "", fairlead.Invalid(fairlead.CodeInvalidRegion, "%.40q is not an AWS region in which a runner can prove its role", in.Region)
	}
	if f.Partition != "" && partition != f.Partition {
		return "", fairlead.Invalid(fairlead.CodeInvalidRegion, "%s is in the AWS partition %s, but this control plane is in %s; accounts of another partition cannot read its image and template", in.Region, partition, f.Partition)
	}
	return partition, nil
}

// keepTrust returns the new trust of the runner for a request that replaces no stack. If
// the request names the role that the runner trusts, and this role was proved, keepTrust
// keeps the current trust. It refuses another role, unless the parameter waiting is true:
// the stack of the trusted role has never reported.
func keepTrust(inst store.Install, r store.Runner, trust awsiam.Trust, waiting bool) (awsiam.Trust, error) {
	old := r.Trust
	if old == nil {
		return trust, nil
	}
	same := old.RoleARN() == trust.RoleARN()
	switch {
	case !same && !waiting:
		return trust, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerTrustsAnother,
			Message: fmt.Sprintf("runner %s trusts the role %s", r.Name, cmp.Or(old.RoleARN(), old.RoleID)),
			Hint:    "If that stack was removed or must be replaced: {install.replace-stack}. Its runner is then refused.",
			Args:    fairlead.Args{Install: inst.Name}}
	case same && old.RoleID != "":
		return *old, nil // a proved role stays fixed to its unique id
	}
	return trust, nil
}

// newStack returns the record of the install's first stack, and puts the reference from
// the install to the stack.
func newStack(tx *kernel.Tx, inst store.Install, r store.Runner) (store.Stack, error) {
	app, err := tx.Store.App(tx.Ctx, inst.Org, inst.App)
	if err != nil {
		return store.Stack{}, err
	}
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, inst.ID))
	if err != nil {
		return store.Stack{}, err
	}
	ref.V = store.StackRef{Runner: r.ID}
	tx.PutStackRef(inst.ID, ref)
	return store.Stack{Install: inst.ID, InstallName: inst.Name, Org: inst.Org, App: app.V.ID, Runner: r.ID, RunnerName: r.Name, Created: tx.Now}, nil
}

// adapt makes the runner one of a customer's stack: of kind aws-ecs, and for this install
// only if it serves the whole org. Otherwise other customers' jobs could run in this
// customer's account. It changes nothing if other installs use the runner. fresh is true
// before the first report of the stack. After it the kind stays: an agent of an older
// template may follow the control plane's configuration.
func adapt(tx *kernel.Tx, r *store.Runner, inst store.Install, fresh bool) error {
	others := false
	err := EachUse(tx, r.ID, func(_ store.RunnerUse, in store.Install) bool {
		others = in.ID != inst.ID
		return !others
	})
	if err != nil || others {
		return err
	}
	spec, err := specOf(tx, *r)
	if err != nil {
		return err
	}
	was := spec.Runner.Kind()
	if fresh {
		if problems := spec.ForStack(); len(problems) > 0 {
			return problems.Err()
		}
	}
	serves := r.Group == "" && r.Install == ""
	if serves {
		spec.Install = inst.Name
	}
	if !serves && spec.Runner.Kind() == was {
		return nil
	}
	return configure(tx, r, spec)
}

// DropStack deletes the stack of an install, and the trust in its role.
func DropStack(tx *kernel.Tx, id fairlead.InstallID) error {
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, id))
	if err != nil || ref.Version == 0 {
		return err
	}
	tx.DeleteStackRef(id, ref)
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, ref.V.Runner))
	if err != nil || s.Version == 0 { // deleted with its runner
		return err
	}
	tx.DeleteStack(s)
	r, err := store.Optional(tx.Store.Runner(tx.Ctx, s.V.Org, s.V.RunnerName))
	if err == nil && r.V.ID == s.V.Runner {
		r.V.Trust = nil
		tx.PutRunner(r)
	}
	return err
}

// dropStackOf deletes the stack of the runner, and the install's reference to it.
func dropStackOf(tx *kernel.Tx, id fairlead.RunnerID) error {
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, id))
	if err != nil || s.Version == 0 {
		return err
	}
	tx.DeleteStack(s)
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, s.V.Install))
	if err == nil && ref.V.Runner == id { // if the runner differs, the install has another stack now
		tx.DeleteStackRef(s.V.Install, ref)
	}
	return err
}
