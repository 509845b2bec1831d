package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/audit"
)

// AuditEntries is a listing of entries of the audit.
type AuditEntries []wire.AuditEntry

// JSON returns an array of wire.AuditEntry.
func (es AuditEntries) JSON() any { return array(es) }

// Human writes a table.
func (es AuditEntries) Human(p *Page) {
	table(p, []string{"TIME", "ACTOR", "ACTION", "OBJECT", "CHANGES", "REQUEST"}, es, func(e wire.AuditEntry) []string {
		actor := e.Actor.Name
		if actor == "" {
			actor = e.Actor.ID
		}
		return []string{Time(e.At), actor, e.Action, auditObject(e.Object), auditChanges(e), e.Request}
	})
}

func auditObject(o wire.AuditObject) string {
	name := o.Name
	if name == "" {
		name = o.ID
	}
	return strings.TrimSpace(o.Kind + " " + name)
}

// shownChanges is the number of changes that a line shows.
const shownChanges = 3

func auditChanges(e wire.AuditEntry) string {
	var out []string
	for i, c := range e.Changes {
		if i == shownChanges {
			break
		}
		switch {
		case c.Before == nil:
			out = append(out, fmt.Sprintf("%s=%s", c.Field, c.After))
		case c.After == nil:
			out = append(out, "-"+c.Field)
		default:
			out = append(out, fmt.Sprintf("%s: %s→%s", c.Field, c.Before, c.After))
		}
	}
	more := len(e.Changes) - len(out)
	if e.Omitted != nil {
		more += e.Omitted.Count
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ", ")
}

// AuditReport is the result of the verification of an export.
type AuditReport struct{ audit.Report }

// JSON returns the report.
func (r AuditReport) JSON() any { return r.Report }

// shownNewer is the number of entries after the last checkpoint that a person sees.
const shownNewer = 10

// Human writes what is wrong, what no checkpoint protects yet, and the numbers.
func (r AuditReport) Human(p *Page) {
	for _, f := range r.Findings {
		p.Line("✗ %s: %s", f.Kind, f.Message)
	}
	for _, e := range r.Starts {
		p.Line("Chain %s begins with entry %d of %s: earlier ones are not in the file.", e.Chain, e.N, e.At.UTC().Format(time.DateTime))
	}
	if r.First > 1 {
		p.Line("The checkpoints begin with number %d: earlier ones are not in the file.", r.First)
	}
	if len(r.Newer) > 0 {
		p.Line("No checkpoint has these entries yet, so only their links were verified:")
	}
	for i, e := range r.Newer {
		if i == shownNewer {
			p.Line("  and %d more", len(r.Newer)-i)
			break
		}
		p.Line("  %s %d: %s by %s at %s", e.Chain, e.N, e.Action, e.Actor.Name, e.At.UTC().Format(time.DateTime))
	}
	p.Line("%d entries in %d chains, %d checkpoints, signed by %s", r.Entries, r.Chains, r.Checkpoints, orNone(r.SignedBy))
	if len(r.Findings) == 0 {
		p.Line("✓ Nothing was changed, dropped or reordered.")
	}
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "no key"
	}
	return strings.Join(list, ", ")
}
