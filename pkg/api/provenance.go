package api

import (
	"context"
	"slices"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func (s *server) provenanceRoute(c *control.Control) {
	type component struct {
		VersionPath
		Component string `path:"component" maxLength:"63" form:"name" doc:"Name of the component"`
	}
	register(s, op{Route: wire.GetProvenance, auth: apiToken, may: on(access.View), tag: "Apps", summary: "Get the signed provenance of a component that a build made",
		problems: slices.Concat(ofAVersion, codes{fairlead.CodeAppNotFound, fairlead.CodeVersionNotFound, fairlead.CodeVersionOfOtherApp, fairlead.CodeComponentNotFound,
			fairlead.CodeProvenanceNotFound, fairlead.CodeProvenanceInvalid})},
		func(ctx context.Context, in *component) (*body[wire.Provenance], error) {
			signing, err := c.Signing(ctx)
			if err != nil {
				return nil, err
			}
			p, err := c.Provenance(ctx, callerOf(ctx).org, in.App, in.Version, in.Component, signing.Set.Public())
			return answer(renderProvenance(p), err)
		})
}

func renderProvenance(p control.Provenance) wire.Provenance {
	return wire.Provenance{App: p.App, Version: string(p.Version), Component: p.Component, Type: p.Type, Source: p.Source, Artifact: p.Artifact,
		URL: p.From.URL, Chart: p.From.Chart, Ref: p.From.Ref, Revision: p.Revision, Runner: string(p.Runner), RunnerVersion: p.RunnerVersion,
		BuildJob: string(p.Job), StartedAt: p.Started.UTC(), FinishedAt: p.Finished.UTC(), KeyID: p.SignedBy, Envelope: p.Envelope}
}
