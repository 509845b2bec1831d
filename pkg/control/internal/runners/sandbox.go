package runners

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// trustInSandbox is the name of the trust of a runner in a sandbox.
const trustInSandbox = "sandbox"

// SandboxRunner describes the runner in the sandbox of an install.
type SandboxRunner struct {
	Component string    // that deploys it
	File      []byte    // the runner's file, as JSON
	Trust     TokenRule // whose tokens open its sessions
}

// KeepSandboxRunner makes the runner in the sandbox of an install, or changes it to what in describes, and binds the install to
// it. The runner serves only this install, and only the components in the sandbox. inst is put into the commit if it changes.
func KeepSandboxRunner(tx *kernel.Tx, inst *store.Stored[store.Install], in SandboxRunner) error {
	name := inst.V.Name + "-" + in.Component
	r, err := sandboxRunnerRecord(tx, inst.V, name)
	if err != nil {
		return err
	}
	parsed := runnerspec.Parse("sandbox.runner.configuration", in.File, "install="+inst.V.Name)
	if parsed.Spec == nil {
		return parsed.Problems.Err()
	}
	parsed.Spec.ID = r.V.Name
	if err := New(tx.Kernel).serves(parsed.Spec); err != nil {
		return err
	}
	before := r.V
	masked, err := json.Marshal(parsed.Spec.Masked())
	if err != nil {
		return fmt.Errorf("encode the configuration of runner %s: %w", r.V.Name, err)
	}
	if !bytes.Equal(masked, r.V.Config) {
		if err := configure(tx, &r.V, parsed.Spec); err != nil {
			return err
		}
	}
	if err := sandboxStorage(tx, inst.V, before, r.V); err != nil {
		return err
	}
	changed, err := keepSandboxTrust(tx, &r, in.Trust)
	if err != nil {
		return err
	}
	if changed || r.Version == 0 || !bytes.Equal(before.Config, r.V.Config) {
		tx.PutRunner(r)
	}
	return bindSandbox(tx, inst, r.V)
}

// sandboxRunnerRecord returns the runner in the install's sandbox, or a new record with the name.
func sandboxRunnerRecord(tx *kernel.Tx, in store.Install, name string) (store.Stored[store.Runner], error) {
	if b := in.SandboxRunner; b != nil {
		r, err := tx.Store.Runner(tx.Ctx, b.Org, b.Name)
		if fairlead.KindOf(err) != fairlead.KindNotFound && (err != nil || r.V.ID == b.Runner) {
			return r, err
		}
	}
	if err := fairlead.CheckName("runner", name); err != nil {
		return store.Stored[store.Runner]{}, err
	}
	_, err := FindRunner(tx, in.Org, name)
	if err == nil {
		return store.Stored[store.Runner]{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerExists,
			Message: fmt.Sprintf("the runner in the sandbox of install %s would have the name %s, which another runner has", in.Name, name),
			Hint:    "Delete that runner, or give the install or the component another name."}
	}
	if fairlead.KindOf(err) != fairlead.KindNotFound {
		return store.Stored[store.Runner]{}, err
	}
	id := fairlead.RunnerID(tx.IDs(fairlead.PrefixRunner))
	return store.Stored[store.Runner]{V: store.Runner{ID: id, Org: in.Org, Name: name, InSandbox: true, Created: tx.Now}}, nil
}

// sandboxStorage refuses another state storage for a runner whose components have states in the old one.
func sandboxStorage(tx *kernel.Tx, in store.Install, before, after store.Runner) error {
	from, to := StorageOf(before), StorageOf(after)
	if in.SandboxRunner == nil || from == to {
		return nil
	}
	names, err := StatefulComponents(tx, in.In(true))
	if err != nil || len(names) == 0 {
		return err
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStateStorageChanged,
		Message: fmt.Sprintf("the states of install %s in its sandbox are in %s, and the app's version keeps them in %s", in.Name, from, to),
		Hint:    "Keep sandbox.runner.configuration.state_storage_configuration as it was. To change it, first tear the install down.",
		Args:    fairlead.Args{Install: in.Name}}
}

// keepSandboxTrust makes the rule the only trust of the runner. changed reports whether the runner's record changed.
func keepSandboxTrust(tx *kernel.Tx, r *store.Stored[store.Runner], rule TokenRule) (changed bool, err error) {
	if err := New(tx.Kernel).CheckTokenRule(rule); err != nil {
		return false, err
	}
	t, err := store.Optional(tx.Store.Trust(tx.Ctx, r.V.ID, trustInSandbox))
	if err != nil || t.Version != 0 && SameTokenRule(t.V.Rule, rule) {
		return false, err
	}
	if t.Version == 0 {
		t.V = store.Trust{Runner: r.V.ID, Name: trustInSandbox, Created: tx.Now}
	}
	t.V.Rule, t.V.Rev, t.V.Changed = rule, tx.IDs(PrefixAccountRev), tx.Now
	tx.PutTrust(t)
	changed = !slices.Contains(r.V.Trusts, trustInSandbox)
	r.V.Trusts = []string{trustInSandbox}
	return changed, nil
}

// bindSandbox binds the components in the install's sandbox to the runner.
func bindSandbox(tx *kernel.Tx, inst *store.Stored[store.Install], r store.Runner) error {
	binding := placement.Binding{Runner: r.ID, Storage: StorageOf(r), Level: placement.LevelOwn}
	if b := inst.V.SandboxRunner; b != nil && b.Binding == binding {
		return nil
	}
	config, err := StorageJSON(r)
	if err != nil {
		return err
	}
	inst.V.SandboxRunner = &store.Binding{Binding: binding, Org: r.Org, Name: r.Name, At: tx.Now, State: config}
	tx.PutInstall(*inst)
	tx.PutRunnerUse(r.ID, inst.V, tx.Now)
	tx.OnCommit(func(ctx context.Context) {
		if err := New(tx.Kernel).makeQueue(ctx, r.ID, r.Name); err != nil {
			tx.Logger.Warn("cannot create the queue of a new runner; the first wake-up creates it", "error", err)
		}
	})
	return nil
}

// DropSandboxRunner deletes the runner in the sandbox of an install that is forgotten.
func DropSandboxRunner(tx *kernel.Tx, in store.Install) error {
	b := in.SandboxRunner
	if b == nil {
		return nil
	}
	tx.DropRunnerUse(b.Runner, in.ID)
	r, err := store.Optional(tx.Store.Runner(tx.Ctx, b.Org, b.Name))
	if err != nil || r.V.ID != b.Runner {
		return err
	}
	if err := dropRunner(tx, r); err != nil {
		return err
	}
	queue := kernel.QueueName(b.Runner)
	tx.OnCommit(func(ctx context.Context) {
		if err := tx.Queue.Drop(ctx, queue); err != nil {
			tx.Logger.Warn("cannot delete the queue of a deleted runner", "queue", queue, "error", err)
		}
	})
	return nil
}

// ParseTrust reads a trust of a runner from JSON. audience is the audience if it names none.
func ParseTrust(raw []byte, audience string) (TokenRule, error) {
	var rule oidc.Trust
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rule); err != nil {
		return rule, fairlead.Invalid(fairlead.CodeInvalidOIDCTrust, "sandbox.runner.trust is not a trust of a runner: %v", fairlead.JSONError(err))
	}
	if rule.Audience == "" {
		rule.Audience = audience
	}
	return rule, nil
}
