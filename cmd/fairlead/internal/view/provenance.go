package view

import (
	"cmp"
	"fmt"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Provenance is what a build did.
type Provenance wire.Provenance

// JSON returns the wire.Provenance.
func (v Provenance) JSON() any { return wire.Provenance(v) }

// Human writes what was built from what, by which runner and when.
func (v Provenance) Human(p *Page) {
	source := fmt.Sprintf("%s of %s", v.Ref, v.URL)
	if v.URL == "" {
		source = "the app's folder"
	}
	if v.Chart != "" {
		source = fmt.Sprintf("%s %s of %s", v.Chart, v.Ref, v.URL)
	}
	p.Fields([2]string{"Component", fmt.Sprintf("%s (%s) of app %s", v.Component, v.Type, v.App)}, [2]string{"Version", short(v.Version)},
		[2]string{"Artifact", v.Artifact}, [2]string{"Built from", source}, [2]string{"Revision", v.Revision}, [2]string{"Folder", v.Source},
		[2]string{"Built by", fmt.Sprintf("runner %s, version %s, job %s", v.Runner, cmp.Or(v.RunnerVersion, "unknown"), v.BuildJob)},
		[2]string{"Built at", fmt.Sprintf("%s, in %s", Time(v.FinishedAt), v.FinishedAt.Sub(v.StartedAt))})
}
