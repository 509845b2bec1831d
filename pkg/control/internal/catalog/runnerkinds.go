package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// CheckRunnerKind refuses, with the code "runner-kind-refused", a runner of the install that is not of a kind that the version
// requires. An install without a runner passes: its first deployment binds one. A new install also passes with a local runner if
// the version can use aws-ecs, because a stack for the install gives its runner this kind.
func CheckRunnerKind(tx *kernel.Tx, in store.Install, v Version, isNew bool) error {
	kinds := v.Spec.RunnerKinds()
	if len(kinds) == 0 {
		return nil
	}
	r, err := runners.ServingRunner(tx, in)
	if fairlead.CodeOf(err) == fairlead.CodeNoRunner {
		return nil
	}
	if err != nil {
		return err
	}
	kind := cmp.Or(r.V.Kind, string(runnerspec.Local))
	stack := isNew && kind == string(runnerspec.Local) && slices.Contains(kinds, string(runnerspec.AWSECS))
	if stack || slices.Contains(kinds, kind) {
		return nil
	}
	hint := "Name another runner with {install.set-runner}; {runner.list} shows the kind of each. An install that is bound to a runner also needs {install.refresh}."
	if isNew {
		hint = "Name a runner of such a kind; {runner.list} shows the kind of each."
	}
	why := ""
	if part := v.Spec.OwnImage(); part != "" && !runnerspec.Kind(kind).OwnImages() {
		why = fmt.Sprintf(", which cannot start the jobs of %s in their image", strings.TrimPrefix(part, fairlead.ActionPrefix))
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerKindRefused,
		Message: fmt.Sprintf("version %s of app %s needs a runner of kind %s; runner %s of install %s is of kind %s%s", v.ID, v.App, strings.Join(kinds, " or "), r.V.Name, in.Name, kind, why),
		Hint:    hint,
		Args:    fairlead.Args{Install: in.Name},
		Details: map[string]string{"app": v.App, "version": string(v.ID), "kinds": strings.Join(kinds, ","), "runner": r.V.Name, "kind": kind}}
}
