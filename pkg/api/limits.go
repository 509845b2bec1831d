package api

import (
	"context"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

func (s *server) limitRoutes(c *control.Control) {
	register(s, op{Route: wire.GetLimits, auth: apiToken, may: onOrg(access.View), tag: "Limits", summary: "Show the limits of the org and of this token, with what is used",
		doc: "A control plane on AWS shows the quotas and the requests a second of the org: its gateway limits the rates of routes."},
		func(ctx context.Context, _ *struct{}) (*body[wire.Limits], error) {
			by := callerOf(ctx)
			quotas, err := c.Limits(ctx, by.org)
			out := wire.Limits{Limits: []wire.Limit{}}
			for _, q := range quotas {
				out.Limits = append(out.Limits, wire.Limit{Name: string(q.Name), Of: wire.LimitOfOrg, Used: new(q.Used), Limit: q.Limit})
			}
			out.Limits = append(out.Limits, s.OrgRates.usage(by.org)...)
			out.Limits = append(out.Limits, s.Callers.usage(by.asker(by.token))...)
			return answer(out, err)
		})
}
