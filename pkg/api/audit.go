package api

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// ChainPath names a chain of the audit.
type ChainPath struct {
	Chain string `path:"chain" maxLength:"30" pattern:"^(org|ins_[0-9a-z]+)$" doc:"Identifier of an install, or org"`
}

func (s *server) auditRoutes(c *control.Control) {
	register(s, op{Route: wire.GetAudit, auth: apiToken, may: onOrg(access.View), tag: "Audit", summary: "Show the keys that verify the audit"},
		func(ctx context.Context, _ *struct{}) (*body[wire.Audit], error) {
			signing, err := c.Signing(ctx)
			return answer(wire.Audit{Org: string(callerOf(ctx).org), KeptDays: int(control.AuditKept / (24 * time.Hour)), Keys: verificationKeys(signing.Ever())}, err)
		})
	register(s, op{Route: wire.ListAuditChains, auth: apiToken, may: onOrg(access.View), tag: "Audit", summary: "List the chains of the audit",
		doc: "Each install has a chain, also after it is forgotten. The chain `org` has what belongs to no install.", problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.AuditChain], error) {
			return list(in, all[control.AuditChain](), renderAuditChain, func(q fairlead.PageQuery) ([]control.AuditChain, string, error) {
				return c.AuditChains(ctx, callerOf(ctx).org, q)
			})
		})
	type entries struct {
		ChainPath
		ListInput
	}
	register(s, op{Route: wire.ListAuditEntries, auth: apiToken, may: onOrg(access.View), tag: "Audit", summary: "List the entries of a chain, newest first",
		doc: "Each change by a person or a program has an entry, in the same commit, and so have the end of each job that may have changed something and the enrolment of an agent. The entry joins its chain within about a minute. A chain without entries is empty.", problems: listing},
		func(ctx context.Context, in *entries) (*paged[wire.AuditEntry], error) {
			return list(&in.ListInput, all[audit.Entry](), renderAuditEntry, func(q fairlead.PageQuery) ([]audit.Entry, string, error) {
				return c.AuditEntries(ctx, callerOf(ctx).org, in.Chain, q)
			})
		})
	register(s, op{Route: wire.ListAuditCheckpoints, auth: apiToken, may: onOrg(access.View), tag: "Audit", summary: "List the signed checkpoints of the audit, newest first",
		doc: "A checkpoint is signed about a minute after the first entry that no checkpoint has.", problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.AuditCheckpoint], error) {
			return list(in, all[audit.Signed](), renderCheckpoint, func(q fairlead.PageQuery) ([]audit.Signed, string, error) {
				return c.AuditCheckpoints(ctx, callerOf(ctx).org, q)
			})
		})
}

func renderAuditChain(r control.AuditChain) wire.AuditChain {
	return wire.AuditChain{Chain: r.Chain, Install: r.Install, CreatedAt: r.Created}
}

// renderAuditEntry keeps each field: clients hash what they get.
func renderAuditEntry(e audit.Entry) wire.AuditEntry {
	out := wire.AuditEntry{V: e.V, Org: e.Org, Chain: e.Chain, N: e.N, Prev: e.Prev, ID: e.ID, At: e.At, Recorded: e.Recorded, Actor: wire.AuditActor(e.Actor),
		Action: e.Action, Object: wire.AuditObject(e.Object), Also: e.Also, Request: e.Request, Decision: e.Decision, Rights: e.Rights, Omitted: (*wire.AuditOmitted)(e.Omitted)}
	for _, c := range e.Changes {
		out.Changes = append(out.Changes, wire.AuditChange(c))
	}
	return out
}

func renderCheckpoint(c audit.Signed) wire.AuditCheckpoint {
	out := wire.AuditCheckpoint{V: c.V, Org: c.Org, N: c.N, Prev: c.Prev, At: c.At, Heads: []wire.AuditHead{}, Key: c.Key, Signature: c.Signature}
	for _, h := range c.Heads {
		out.Heads = append(out.Heads, wire.AuditHead(h))
	}
	return out
}
