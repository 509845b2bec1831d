package catalog

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
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
			if encrypt, err := mustEncrypt(tx, *inst, v.Spec); err != nil {
				return err
			} else if encrypt {
				return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeInputNotGenerated,
					Message: fmt.Sprintf("the app generates the secret input %q, which install %s does not have yet", in.Name, inst.Name),
					Hint:    "Deploy with {install.deploy} of this release: the command makes the value and encrypts it with the key of the install, so that the control plane does not know it.",
					Args:    fairlead.Args{Install: inst.Name}}
			}
			return sealInputs(tx, &appspec.App{Inputs: v.Spec.Inputs}, inst, nil, nil)
		}
	}
	return nil
}
