package catalog

import (
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/store"
)

// generate adds a value for each input that the app generates and that has none.
func generate(tx *kernel.Tx, spec *appspec.App, values map[string]any) {
	for _, in := range spec.Inputs {
		if in.Generate > 0 && values[in.Name] == nil {
			values[in.Name] = in.Generated(tx.Pick)
		}
	}
}

// GenerateInputs gives the install a value for each input that the version generates and that the install does not have, such
// as an input that a newer version declares. The caller puts the install into the commit.
func GenerateInputs(tx *kernel.Tx, inst *store.Install, v Version) error {
	for _, in := range v.Spec.Inputs {
		if _, given := inst.Inputs[in.Name]; in.Generate > 0 && !given {
			return sealInputs(tx, &appspec.App{Inputs: v.Spec.Inputs}, inst, nil)
		}
	}
	return nil
}
