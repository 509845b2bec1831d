package agent

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// want notes which version the control plane wants of this agent, and says once
// that it is another. The agent does not replace itself: whoever runs it
// decides what runs.
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
		a.log.Warn("another version of the runner is wanted; replacing it ends no job", "runs", a.options.Version, "wanted", wanted, "image", image)
	}
}
