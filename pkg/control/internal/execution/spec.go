package execution

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/control/internal/state"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// spec builds the spec of the job's step. fields lists optional fields of a
// spec that the step understands; an older step understands fewer. Plain values are resolved
// here. The spec only names sensitive ones, and the step fetches them with the lease token.
func spec(tx *kernel.Tx, j store.Job, leaseToken string, fields []string) (events.JobSpec, error) {
	now, terms := tx.Kernel.Now(), j.Terms.OrDefault()
	s := events.JobSpec{
		Runner: j.Runner, Install: j.Install, InstallName: j.InstallName, Deployment: j.Deployment,
		Job: j.ID, Epoch: j.Lease.Epoch, Component: j.Component, Plugin: j.Plugin, Operation: string(j.Operation),
		IssuedAt: now, ExpiresAt: now.Add(terms.StartTimeout + terms.LeaseTTL),
		Timeout: events.Seconds(max(1, j.Timeout().Seconds())), Grace: events.Seconds(max(1, terms.Grace.Seconds())),
	}
	if j.Operation == job.OpBuild {
		return buildSpec(tx, s, j)
	}
	if j.Operation.OfRunner() {
		return s, nil
	}
	if j.Operation == job.OpMigrateState {
		return migration(tx, s, j, leaseToken)
	}
	inst, err := tx.Store.Install(tx.Ctx, j.Org, j.InstallName)
	if err != nil {
		return s, err
	}
	inst.V = inst.V.Of(j.Runner)
	runner, err := tx.Store.Runner(tx.Ctx, j.RunnerOrg(), j.RunnerName)
	if err != nil {
		return s, err
	}
	t, _ := component.Of(j.Plugin)
	if t.SavesPlans() {
		storage, err := heldState(inst.V, runner.V)
		if err != nil {
			return s, err
		}
		s.State = state.Ref(storage, j.Install, j.Component)
	}
	if t.NeedsRegistry {
		if s.Registry, err = catalog.RegistryRef(runner.V, inst.V, j.Component, j.Plugin); err != nil {
			return s, err
		}
	}
	v, err := catalog.ReadVersion(tx, j.Version)
	if err != nil {
		return s, err
	}
	if v.Org != inst.V.Org || v.App != inst.V.App {
		tx.Logger.Error("a job was altered in the table; no spec is issued", "job", j.ID, "install", inst.V.Name, "version", v.ID, "app", v.App)
		return s, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeJobAltered,
			Message: fmt.Sprintf("job %s of install %s was altered in the table: version %s is of app %s, the install of %s", j.ID, inst.V.Name, v.ID, v.App, inst.V.App),
			Hint:    "Deploy the install again with {install.deploy}. Also find out who can write the control plane's table.",
			Args:    fairlead.Args{Install: inst.V.Name},
			Details: map[string]string{"job": string(j.ID), "version": string(v.ID)}}
	}
	if s.Registry == nil {
		if s.Registry, err = catalog.MirrorRef(runner.V, inst.V, v.Spec, j.Component, j.Plugin); err != nil {
			return s, err
		}
	}
	if err := setSource(tx, &s, v, fields); err != nil {
		return s, err
	}
	if s.Env, s.SecretEnv, err = catalog.Environment(tx, inst.V, runner.V, j); err != nil {
		return s, err
	}
	if j.Operation.Mutates() {
		s.Plan = &events.PlanRef{Job: j.PlanJob, Digest: j.PlanDigest}
		if len(j.Signature) > 0 && slices.Contains(fields, events.FieldApprovals) {
			s.Approvals = [][]byte{j.Signature}
		}
	}
	if err := setVars(tx, &s, inst.V, runner.V, v, j, leaseToken, fields); err != nil {
		return s, err
	}
	if s.Applied, err = applied(tx, inst.V, v, t, j); err != nil {
		return s, err
	}
	if s.Audit, err = auditHead(tx, j, fields); err != nil {
		return s, err
	}
	return s, nil
}

// auditHead returns the newest entry of the audit of the job's install, or nil. The runner keeps it on the customer's side.
func auditHead(tx *kernel.Tx, j store.Job, fields []string) (*events.AuditHead, error) {
	if !slices.Contains(fields, events.FieldAudit) {
		return nil, nil
	}
	p, err := tx.Store.AuditEntries(tx.Ctx, j.Org, string(j.Install), fairlead.PageQuery{Limit: 1})
	if err != nil || len(p.Items) == 0 {
		return nil, err
	}
	hash, err := audit.Hash(p.Items[0].V)
	return &events.AuditHead{N: p.Items[0].V.N, Hash: hash}, err
}

// setSource sets the artifact of the spec's component, and from where it comes.
func setSource(tx *kernel.Tx, s *events.JobSpec, v catalog.Version, fields []string) error {
	repository, err := catalog.RepositoryOf(tx, v, s.Component)
	if err != nil {
		return err
	}
	s.Artifact = &events.ArtifactRef{Repository: repository, Digest: v.Artifacts[s.Component]}
	if c, ok := v.Spec.Component(s.Component); ok && c.Built() && slices.Contains(fields, events.FieldProvenance) {
		if s.Built, err = catalog.BuiltRef(tx, v, c); err != nil {
			return err
		}
	}
	if slices.Contains(fields, events.FieldVersion) {
		config, err := v.Spec.Canonical() // the form that was hashed; the table may store other escapes
		if err != nil {
			return fmt.Errorf("canonical configuration of version %s: %w", v.ID, err)
		}
		s.Version = &events.VersionRef{ID: v.ID, Org: v.Org, Config: config, Artifacts: v.Artifacts}
	}
	return nil
}

// jobVars returns the variables and options of a job. Only a plan resolves them. An apply gets
// what its plan resolved, which the commit that created the job has stored, so that the step
// can mask the sensitive ones. A destroy gets those of the last apply.
func jobVars(tx *kernel.Tx, inst store.Install, v catalog.Version, j store.Job) (out catalog.JobVars, err error) {
	switch {
	case j.Run != nil: // resolved again for the run: if a value has changed since the plan, the plan's digest differs
		var d store.Stored[store.Deployment]
		if d, err = tx.Store.Deployment(tx.Ctx, j.Deployment); err == nil {
			out, err = catalog.RunJobVars(tx, inst, v, d.V, *j.Run)
		}
	case j.Operation == job.OpPlan:
		out, err = catalog.PlanJobVars(tx, inst, v, j.Component)
	default:
		out, err = catalog.LastJobVars(tx, j.Install, j.Component)
	}
	if err != nil {
		return out, fmt.Errorf("resolve variables of component %s: %w", j.Component, err)
	}
	return out, nil
}

// JobValues returns the sensitive values that the holder's job fetches under a name of its spec. A name that its spec
// does not have is not found.
func (ex *Execution) JobValues(ctx context.Context, h kernel.Holder, name string) ([]byte, error) {
	r, err := ex.Held(ctx, h)
	if err != nil {
		return nil, err
	}
	none := &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeValuesNotFound,
		Message: fmt.Sprintf("the spec of job %s names no values %q", h.Job, fairlead.Clip(name, 100))}
	if r.V.Operation.OfRunner() || r.V.Operation == job.OpMigrateState && name != events.ValuesEnv {
		return nil, none
	}
	tx := ex.Reading(ctx)
	inst, err := tx.Store.Install(ctx, r.V.Org, r.V.InstallName)
	if err != nil {
		return nil, err
	}
	values, err := valuesOf(tx, inst.V.Of(r.V.Runner), r.V, name)
	if err != nil {
		return nil, err
	}
	packed, ok, err := values.Pack(name)
	if err == nil && !ok {
		err = none
	}
	return packed, err
}

// valuesOf returns at least the values of a job that have the name.
func valuesOf(tx *kernel.Tx, inst store.Install, j store.Job, name string) (jobvalues.Values, error) {
	if name == events.ValuesEnv {
		values := jobvalues.Values{}
		runner, err := tx.Store.Runner(tx.Ctx, j.RunnerOrg(), j.RunnerName)
		if err == nil {
			err = catalog.EncryptedEnvironment(tx, inst, runner.V, values)
		}
		return values, err
	}
	if name == events.ValuesMove {
		values := jobvalues.Values{}
		runner, err := tx.Store.Runner(tx.Ctx, j.RunnerOrg(), j.RunnerName)
		if err == nil {
			err = catalog.Moving(tx, inst, runner.V, values)
		}
		return values, err
	}
	v, err := catalog.ReadVersion(tx, j.Version)
	if err != nil {
		return nil, err
	}
	vars, err := jobVars(tx, inst, v, j)
	return vars.Values, err
}

// setVars sets the spec's variables, and names the sensitive values that the step fetches.
func setVars(tx *kernel.Tx, s *events.JobSpec, inst store.Install, runner store.Runner, v catalog.Version, j store.Job, leaseToken string, fields []string) error {
	vars, err := jobVars(tx, inst, v, j)
	if err == nil {
		err = catalog.EncryptedEnvironment(tx, inst, runner, vars.Values)
	}
	if err == nil && slices.Contains(fields, events.FieldMove) {
		err = catalog.Moving(tx, inst, runner, vars.Values)
	}
	if err != nil {
		return err
	}
	s.SetInputs(vars.Vars)
	return refer(s, vars.Values, leaseToken)
}

// refer names the sensitive values that the step fetches with the lease token.
func refer(s *events.JobSpec, values jobvalues.Values, leaseToken string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		packed, _, err := values.Pack(name)
		if err != nil {
			return fmt.Errorf("encode the values %s of job %s: %w", name, s.Job, err)
		}
		s.Values = append(s.Values, events.ValuesRef{Name: name, Digest: events.ValuesDigest(leaseToken, name, packed), Encrypted: values.Encrypted(name)})
	}
	return nil
}

// applied returns the version of the component's last apply and which of its variables have the same values now, for a plan
// that reads no state. It compares fingerprints, and opens no secret. It returns nil if the component is absent, if its last
// apply did not complete, or if it was recorded by a release that stored no fingerprints.
func applied(tx *kernel.Tx, inst store.Install, now catalog.Version, t component.Type, j store.Job) (*events.Inputs, error) {
	if !t.Blind || j.Operation != job.OpPlan {
		return nil, nil
	}
	k, err := tx.Component(j.Install, j.Component)
	if err != nil || k.V.State != store.Present || k.V.Doubtful() || k.V.EnvDigest == "" {
		return nil, err
	}
	v, err := catalog.ReadVersion(tx, k.V.Version)
	if fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
		return nil, nil // continue with the next version
	}
	if err != nil {
		return nil, err
	}
	same, err := catalog.SameVars(tx, inst, now, k.V)
	return &events.Inputs{Source: v.Artifacts[j.Component], Same: same}, err
}

// heldState returns the storage that holds the install's state. It refuses a runner
// whose configuration now has another storage, because the runner's tools would find no
// state and create all resources again.
func heldState(in store.Install, r store.Runner) (runnerspec.Storage, error) {
	if in.Bound == nil || in.Bound.Storage == runners.StorageOf(r) {
		return runners.StorageConfig(r)
	}
	return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateStorageChanged,
		Message: fmt.Sprintf("the state of install %s is in %s, and runner %s now keeps states in %s", in.Name, in.Bound.Storage, r.Name, runners.StorageOf(r)),
		Hint:    "{install.migrate-state} moves the state. Or restore the runner's old state storage.",
		Args:    fairlead.Args{Install: in.Name}}
}

// migration completes the spec of a job that copies states.
func migration(tx *kernel.Tx, s events.JobSpec, j store.Job, leaseToken string) (events.JobSpec, error) {
	inst, err := tx.Store.Install(tx.Ctx, j.Org, j.InstallName)
	if err != nil {
		return s, err
	}
	m := inst.V.Moving
	if inst.V.ID != j.Install || m == nil || m.Job != j.ID || inst.V.Bound == nil {
		return s, fairlead.Conflict(fairlead.CodeStateMoved, "job %s has no state left to move", j.ID)
	}
	from, err := runners.BoundStorage(*inst.V.Bound)
	if err != nil {
		return s, err
	}
	to, err := runners.BoundStorage(m.To)
	if err != nil {
		return s, err
	}
	runner, err := tx.Store.Runner(tx.Ctx, j.RunnerOrg(), j.RunnerName)
	if err != nil {
		return s, err
	}
	if s.Env, s.SecretEnv, err = catalog.Environment(tx, inst.V, runner.V, j); err != nil {
		return s, err
	}
	values := jobvalues.Values{}
	if err = catalog.EncryptedEnvironment(tx, inst.V, runner.V, values); err == nil {
		err = refer(&s, values, leaseToken)
	}
	if err != nil {
		return s, err
	}
	for _, name := range m.Components {
		s.Move = append(s.Move, events.MovedState{Component: name, From: *state.Ref(from, j.Install, name), To: *state.Ref(to, j.Install, name)})
	}
	return s, nil
}
