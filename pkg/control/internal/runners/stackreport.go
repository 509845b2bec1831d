package runners

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// SessionStack is a runner's report about the stack that contains it.
type SessionStack struct {
	Install    fairlead.InstallID // the parameter that the customer entered
	ExternalID string
	Report     StackReport
}

// maxStackChanges bounds the stored history of a stack.
const maxStackChanges = 20

// recordStack stores a runner's report about its stack, if the report changed. If the
// report cannot be true, recordStack returns an error, so that the session is refused. A
// runner with the parameters of another install would fail at its first job, and another
// person's runner could report false facts.
func recordStack(tx *kernel.Tx, r store.Runner, w SessionStack) (store.Stack, error) {
	s, err := tx.Store.Stack(tx.Ctx, r.ID)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return store.Stack{}, stackRefused("no stack was prepared for runner %s", r.Name)
	}
	if err != nil {
		return store.Stack{}, err
	}
	switch {
	case w.Install != s.V.Install:
		return store.Stack{}, stackRefused("the stack has the install id %.60q, and its runner serves %s", w.Install, s.V.Install)
	case w.ExternalID != s.V.ExternalID:
		return store.Stack{}, stackRefused("the external id of the stack is not the one of install %s", s.V.InstallName)
	}
	report := store.StackReport(w.Report)
	if err := checkReport(s.V, report); err != nil {
		return store.Stack{}, err
	}
	if s.V.Report != nil {
		what := changesOf(*s.V.Report, report)
		if len(what) == 0 {
			return s.V, nil // the usual case: nothing is written
		}
		s.V.Changes = append([]store.StackChange{{At: tx.Now, What: what}}, s.V.Changes...)
		s.V.Changes = s.V.Changes[:min(len(s.V.Changes), maxStackChanges)]
		if s.V.Report.ID != report.ID {
			retire(&s.V)
			s.V.Adopted = false
		}
	}
	s.V.Report, s.V.Reported = &report, tx.Now
	tx.PutStack(s)
	return s.V, nil
}

// adoptBucket configures the runner in a customer's stack to keep states in the bucket
// that the stack created. It does so once, at the stack's first report, before anything
// is deployed. By default the states stay with the customer. The vendor can update the
// runner to store them elsewhere. If an earlier stack left no states of the install in its
// bucket, which may have been deleted, the runner changes to the bucket of the new stack.
func (f *Fleet) adoptBucket(ctx context.Context, r store.Runner) error {
	return f.Transact(ctx, "keep the states of runner "+r.Name+" in its stack", func(tx *kernel.Tx) error {
		s, err := store.Optional(f.Store.Stack(ctx, r.ID))
		if err != nil || s.V.Report == nil || s.V.Adopted {
			return err
		}
		runner, err := f.Store.Runner(ctx, r.Org, r.Name)
		if err != nil || runner.V.ID != r.ID {
			return err
		}
		inst, err := f.Store.Install(ctx, s.V.Org, s.V.InstallName)
		if err != nil {
			return err
		}
		tx.CheckInstall(inst) // fails the commit if a deployment starts meanwhile
		left, err := leavesBucket(tx, inst.V, runner.V, s.V)
		if err != nil || left && inst.V.Active != "" {
			return err // jobs use the earlier bucket; a later session tries again
		}
		s.V.Adopted = true
		tx.PutStack(s)
		fresh := runner.V.Storage == string(runnerspec.HTTPState) && inst.V.Bound == nil
		if !fresh && !left || runner.V.Install != inst.V.ID || inst.V.ID != s.V.Install {
			return nil
		}
		spec, err := specOf(tx, runner.V)
		if err != nil {
			return err
		}
		storage, err := json.Marshal(&runnerspec.S3Storage{StorageCommon: runnerspec.StorageCommon{Type: runnerspec.S3State},
			Bucket: s.V.Report.StateBucket, Region: s.V.Report.Region, KMSKeyID: s.V.Report.StateKey})
		if err != nil {
			return err
		}
		next := runnerspec.Update(spec, "stack", nil, "state_storage_configuration="+string(storage))
		if next.Spec == nil { // a stack that was not created from our template
			f.Logger.Warn("the bucket that a stack reports is not a valid state storage", "runner", r.Name, "problems", next.Problems.Err())
			return nil
		}
		if err := configure(tx, &runner.V, next.Spec); err != nil {
			return err
		}
		tx.PutRunner(runner)
		return nil
	})
}

// leavesBucket reports whether the runner keeps states in the bucket of an earlier stack, and
// the install has none there.
func leavesBucket(tx *kernel.Tx, inst store.Install, r store.Runner, s store.Stack) (bool, error) {
	storage, err := StorageConfig(r)
	if err != nil {
		return false, err
	}
	in, ok := storage.(*runnerspec.S3Storage)
	if !ok || in.Bucket == s.Report.StateBucket || !slices.ContainsFunc(s.Earlier, func(e store.StackReport) bool { return e.StateBucket == in.Bucket }) {
		return false, nil
	}
	names, err := StatefulComponents(tx, inst)
	return len(names) == 0, err
}

func stackRefused(format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeStackRefused, Message: "the report of the stack is refused: " + fmt.Sprintf(format, args...),
		Hint: "{install.stack} prints the parameters that the customer's stack must have."}
}

// maxReported is the longest value in a report. AWS allows names of up to 2,048
// characters.
const maxReported = 2048

// checkReport refuses values that a stack in the customer's account cannot have
// created.
func checkReport(s store.Stack, r store.StackReport) error {
	if err := awsiam.CheckStack(s.Account, r.Region, r.ID, r.Roles); err != nil {
		return stackRefused("%s", err)
	}
	for name, value := range fieldsOf(r) {
		if len(value) > maxReported || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return stackRefused("its %s is too long, or contains control characters", name)
		}
	}
	return nil
}

// fieldsOf returns the values of a report by name.
func fieldsOf(r store.StackReport) map[string]string {
	all := map[string]string{"stack": r.ID, "template version": r.Version, "region": r.Region, "image": r.Image, "state bucket": r.StateBucket, "state key": r.StateKey,
		"image repository": r.Images, "artifact repository": r.Artifacts, "boundary": r.Boundary, "app actions": strings.Join(r.AppActions, ","),
		"made by the stack": strings.Join(r.Made, ",")}
	for operation, role := range r.Roles {
		all["role "+operation] = role
	}
	for operation, actions := range r.OperationActions {
		all["actions of "+operation] = strings.Join(actions, ",")
	}
	return all
}

// changesOf lists the differences between two reports, sorted by name.
func changesOf(before, after store.StackReport) (what []string) {
	a, b := fieldsOf(before), fieldsOf(after)
	names := map[string]bool{}
	for n := range a {
		names[n] = true
	}
	for n := range b {
		names[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		switch {
		case a[n] == b[n]:
		case a[n] == "":
			what = append(what, fmt.Sprintf("%s: %s is new", n, b[n]))
		case b[n] == "":
			what = append(what, fmt.Sprintf("%s: %s was removed", n, a[n]))
		default:
			what = append(what, fmt.Sprintf("%s: %s, was %s", n, b[n], a[n]))
		}
	}
	return what
}

// StackOf returns the customer's stack whose runner serves the install; zero if there is none.
func StackOf(tx *kernel.Tx, inst store.Install) (store.Stack, error) {
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, inst.ID))
	if err != nil || ref.Version == 0 || inst.Bound != nil && inst.Bound.Runner != ref.V.Runner {
		return store.Stack{}, err
	}
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, ref.V.Runner))
	return s.V, err
}
