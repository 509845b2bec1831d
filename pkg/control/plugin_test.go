package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// A plugin keeps no state, and its saved plan needs a place: the storage of the install's states. Its plan sees what exists, so a
// plan without changes completes a lost apply.
func TestPluginHasAStorageForItsPlansAndNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(strings.Replace(seeded, "type: script\n", "type: plugin\n", 1))
		p.install("acme")
		var specs []events.JobSpec
		lost := false
		p.stepFault = func(s events.JobSpec) stepFault {
			specs = append(specs, s)
			if s.Component == "seed" && s.Operation == "apply" && !lost {
				lost = true
				return diesAfter
			}
			return none
		}
		p.expect(p.deployed(), deployment.Succeeded, "database=applied seed=applied web=applied")
		for _, s := range specs {
			if s.Component != "seed" {
				continue
			}
			if s.Plugin != "plugin" || s.State == nil || s.State.Key != string(s.Install)+"/seed" || s.Applied != nil {
				t.Errorf("%s has the plugin %s, the storage %+v and the inputs %v", s.Operation, s.Plugin, s.State, s.Applied)
			}
		}
		_, err := p.PushState(p.ctx, org, "acme", "seed", []byte(`{"version":4,"serial":1,"lineage":"l"}`))
		expectCode(t, "a push of its state", err, fairlead.CodeNoState)
	})
}
