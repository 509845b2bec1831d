package placement

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Binding is the runner of an install, and the storage that holds the install's state.
// It is stored with the install.
type Binding struct {
	Runner  fairlead.RunnerID `json:"runner"`
	Storage Storage           `json:"storage"`
	Level   Level             `json:"level"` // the level that decided, at the time of the decision
	Rule    RuleID            `json:"rule,omitempty"`
}

func (d Decision) binding() Binding {
	return Binding{Runner: d.Runner, Storage: d.Storage, Level: d.Level, Rule: d.Rule}
}

// Bind returns the binding for a deployment of the install: its existing binding,
// otherwise the result of Decide. The caller stores it with the deployment. A bound
// runner stays bound when it is disabled or draining: the jobs wait in its queue.
//
// The error is an error of Decide, or an error of fairlead.KindConflict with one of
// these codes:
//   - "bound-runner-gone": the runner was deleted, or no longer serves the group of
//     the install;
//   - "state-storage-changed": the runner's storage is not the storage that holds the
//     install's state. A deployment would create all resources again.
func Bind(in Install, rules []Rule, runners []Runner) (Binding, error) {
	if in.Bound == nil {
		d, err := Decide(in, rules, runners)
		if err != nil {
			return Binding{}, err
		}
		return d.binding(), nil
	}
	for i := range runners {
		r := &runners[i]
		if r.ID != in.Bound.Runner || !r.serves(&in) {
			continue
		}
		if r.Storage == in.Bound.Storage {
			return *in.Bound, nil
		}
		if !in.HasState {
			b := *in.Bound
			b.Storage = r.Storage
			return b, nil
		}
		return Binding{}, storageError(fairlead.CodeStateStorageChanged, in, r.Name, in.Bound.Storage, r.Storage)
	}
	return Binding{}, &fairlead.Error{
		Kind: fairlead.KindConflict, Code: fairlead.CodeBoundRunnerGone,
		Message: fmt.Sprintf("install %s is bound to runner %s, which was deleted or no longer serves group %s", in.Name, in.Bound.Runner, in.Group),
		Hint:    "{install.try-refresh} shows which runner the install would get.",
		Args:    fairlead.Args{Install: in.Name},
	}
}

// RefreshOptions are the options of Refresh.
type RefreshOptions struct {
	DryRun     bool
	Deployment fairlead.DeploymentID // the install's unfinished deployment; "": none
	Migrate    bool                  // move the state to the new storage
	AcceptLoss bool                  // leave the state in the old storage, and start without a state
}

// Refreshed is the result of a refresh. It is also filled in if the refresh is
// refused, so that a dry run reports both the result and the obstacle.
type Refreshed struct {
	// Runner is the runner that the current rules choose. If the rules choose no runner,
	// it is the bound runner.
	Runner fairlead.RunnerID `json:"runner"`
	// Changed reports whether Runner differs from the bound runner. It is false for an
	// install that is not bound: its first deployment binds it.
	Changed bool `json:"changed"`
	// StorageChanged reports whether the storage of Runner is another storage than the
	// storage that holds the install's state.
	StorageChanged bool `json:"storage_changed"`
	// Write is the binding that the caller must store on the install, after it has
	// moved the state if Move is set. It is nil if nothing changes, if the refresh is
	// refused, and in a dry run.
	Write *Binding `json:"-"`
	// Move reports whether the state must first be moved from the old storage.
	Move bool `json:"-"`
}

// Refresh decides again which runner serves the install. A dry run returns the same
// result and error as the real call, but without Write and Move.
//
// The error is an error of Decide, or an error with one of these codes:
//   - "deployment-runs", of fairlead.KindConflict;
//   - "state-storage-changes", of fairlead.KindConflict: there is a state, and neither
//     Migrate nor AcceptLoss is set;
//   - "migrate-or-lose", of fairlead.KindInvalid: Migrate and AcceptLoss are both set.
func Refresh(in Install, rules []Rule, runners []Runner, o RefreshOptions) (Refreshed, error) {
	var out Refreshed
	if in.Bound != nil {
		out.Runner = in.Bound.Runner
	}
	if o.Migrate && o.AcceptLoss {
		return out, fairlead.Invalid(fairlead.CodeMigrateOrLose, "the state of install %s can be either moved or given up, not both", in.Name)
	}
	d, err := Decide(in, rules, runners)
	if err != nil {
		// A disabled or draining runner gets no new bindings, but the install may stay
		// bound to it.
		if in.Bound == nil || fairlead.CodeOf(err) != fairlead.CodeRunnerUnavailable || d.Runner != in.Bound.Runner {
			return out, err
		}
	}
	out.Runner = d.Runner
	if in.Bound == nil {
		return out, nil
	}
	out.Changed = d.Runner != in.Bound.Runner
	out.StorageChanged = d.Storage != in.Bound.Storage
	if o.Deployment != "" {
		return out, &fairlead.Error{
			Kind: fairlead.KindConflict, Code: fairlead.CodeDeploymentRuns,
			Message: fmt.Sprintf("deployment %s of install %s has not ended", o.Deployment, in.Name),
			Hint:    "Wait for it ({deployment.show}) or cancel it ({deployment.cancel}).",
			Args:    fairlead.Args{Deployment: string(o.Deployment)},
		}
	}
	if out.StorageChanged && in.HasState && !o.Migrate && !o.AcceptLoss {
		return out, storageError(fairlead.CodeStateStorageChanges, in, d.Name, in.Bound.Storage, d.Storage)
	}
	if !o.DryRun && d.binding() != *in.Bound {
		b := d.binding()
		out.Write = &b
		out.Move = out.StorageChanged && in.HasState && o.Migrate
	}
	return out, nil
}

func storageError(code fairlead.Code, in Install, runner string, from, to Storage) error {
	move := fairlead.VerbInstallMove
	if code == fairlead.CodeStateStorageChanged { // the storage of the bound runner changed
		move = fairlead.VerbInstallMigrateState
	}
	return &fairlead.Error{
		Kind: fairlead.KindConflict, Code: code,
		Message: fmt.Sprintf("the state of install %s is in %s, but runner %s keeps states in %s", in.Name, from, runner, to),
		Hint: move.Mention() + " moves it there. With {install.lose-state} it stays in the old storage, " +
			"and Fairlead no longer changes or removes the deployed resources.",
		Args: fairlead.Args{Install: in.Name},
	}
}

// String returns the kind and the place of the storage.
func (s Storage) String() string {
	if s.Place == "" {
		return s.Kind
	}
	return s.Kind + " " + s.Place
}
