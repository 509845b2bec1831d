package placement

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Binding is the runner that an install was given, and where its state is
// since. It is kept with the install.
type Binding struct {
	Runner  fairlead.RunnerID `json:"runner"`
	Storage Storage           `json:"storage"`
	Level   Level             `json:"level"` // by what it was decided, when it was
	Rule    RuleID            `json:"rule,omitempty"`
}

func (d Decision) binding() Binding {
	return Binding{Runner: d.Runner, Storage: d.Storage, Level: d.Level, Rule: d.Rule}
}

// Bind returns the binding that a deployment of the install uses: the one that
// it has, else what Decide says; the caller stores it with the deployment. A
// bound runner that is disabled or draining is used all the same: the jobs
// wait in its queue.
//
// The error is Decide's, or of fairlead.KindConflict with the code
// "bound-runner-gone" (it was deleted, or no longer serves the install's
// group) or "state-storage-changed" (the runner keeps states elsewhere than
// those of this install are; deploying would make everything again).
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
		Message: fmt.Sprintf("install %s is bound to runner %s, which is gone or no longer serves group %s", in.Name, in.Bound.Runner, in.Group),
		Hint:    "{install.try-refresh} shows which runner would take over.",
		Args:    fairlead.Args{Install: in.Name},
	}
}

// RefreshOptions say how to refresh.
type RefreshOptions struct {
	DryRun     bool
	Deployment fairlead.DeploymentID // the one that is not over; empty if there is none
	Migrate    bool                  // move the state to the new storage
	AcceptLoss bool                  // leave the state where it is, and begin with none
}

// Refreshed is the answer to a refresh. It is filled in also where the refresh
// is refused, so that a dry run tells what there would be and what is in the
// way.
type Refreshed struct {
	// Runner is the one that serves the install by the rules of now; where
	// there is none, the one that it is bound to.
	Runner fairlead.RunnerID `json:"runner"`
	// Changed is whether Runner is another than the install was bound to. An
	// install that is not bound yet has nothing to change: it is bound by its
	// first deployment.
	Changed bool `json:"changed"`
	// StorageChanged is whether the state of the install is elsewhere than
	// Runner keeps it.
	StorageChanged bool `json:"storage_changed"`
	// Write is what the caller must store on the install, after the state was
	// moved if Move says so; nil if nothing changes, is refused, or in a dry run.
	Write *Binding `json:"-"`
	// Move is whether the state has to be moved from the old storage first.
	Move bool `json:"-"`
}

// Refresh decides anew which runner serves the install. A dry run gives the
// same answer and the same error as the same call without, and nothing to
// store.
//
// Beside Decide's, the errors are of fairlead.KindConflict, with the codes
// "deployment-runs" and "state-storage-changes" (there is a state, and neither
// Migrate nor AcceptLoss says what to do with it), and of fairlead.KindInvalid
// with the code "migrate-or-lose" if both say so.
func Refresh(in Install, rules []Rule, runners []Runner, o RefreshOptions) (Refreshed, error) {
	var out Refreshed
	if in.Bound != nil {
		out.Runner = in.Bound.Runner
	}
	if o.Migrate && o.AcceptLoss {
		return out, fairlead.Invalid(fairlead.CodeMigrateOrLose, "the state of install %s cannot be both moved and given up", in.Name)
	}
	d, err := Decide(in, rules, runners)
	if err != nil {
		// To stay with a runner that takes no work is no new binding.
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
			Message: fmt.Sprintf("deployment %s of install %s is not over", o.Deployment, in.Name),
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
	if code == fairlead.CodeStateStorageChanged { // it is the runner that it is bound to
		move = fairlead.VerbInstallMigrateState
	}
	return &fairlead.Error{
		Kind: fairlead.KindConflict, Code: code,
		Message: fmt.Sprintf("the state of install %s is in %s, and runner %s keeps states in %s", in.Name, from, runner, to),
		Hint: move.Mention() + " moves it there. With {install.lose-state} it stays where it is, " +
			"and what was deployed is neither changed nor removed any more.",
		Args: fairlead.Args{Install: in.Name},
	}
}

// String returns the place, with its kind before it.
func (s Storage) String() string {
	if s.Place == "" {
		return s.Kind
	}
	return s.Kind + " " + s.Place
}
