package catalog

import (
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// switchedOff returns the names of the version's components that the install's inputs switch off. It reads only the inputs
// that switch a component, which are not sensitive, so that a listing of installs opens no sealed value.
func switchedOff(spec *appspec.App, in store.Install) map[string]bool {
	return spec.Off(func(input string) any {
		var value any
		if err := json.Unmarshal(in.Inputs[input].Value, &value); err == nil && value != nil {
			return value
		}
		decl, _ := spec.Input(input)
		return decl.Default
	})
}
