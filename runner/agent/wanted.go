package agent

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// want records which version the control plane wants for this agent, and logs once if that differs
// from the running one. If the runner's configuration pins the version, the control plane gives this
// agent no jobs; it waits and keeps its running jobs. The agent does not replace itself: its operator
// decides which version runs.
func (a *Agent) want(w *wire.WantedVersion) {
	wanted, image := "", ""
	if w != nil {
		wanted, image = w.Version, w.Image
	}
	a.mu.Lock()
	before := a.wanted
	a.wanted = wanted
	a.mu.Unlock()
	if wanted == before {
		return
	}
	if wanted != "" && strings.TrimPrefix(wanted, "v") != strings.TrimPrefix(a.options.Version, "v") {
		if w.Channel == "" {
			a.log.Warn("this agent gets no jobs: the runner's configuration pins another version; replacing the agent ends no job", "runs", a.options.Version, "pinned", wanted, "image", image)
			return
		}
		a.log.Warn("the control plane wants another version of the runner; replacing the agent ends no job", "runs", a.options.Version, "wanted", wanted, "image", image)
	}
}
