package view

import "github.com/fairlead/fairlead/pkg/api/wire"

// Orgs is a listing of orgs.
type Orgs []wire.Org

// JSON returns an array of wire.Org.
func (os Orgs) JSON() any { return array(os) }

// Human writes a table.
func (os Orgs) Human(p *Page) {
	table(p, []string{"NAME", "CREATED", "BY"}, os, func(o wire.Org) []string {
		return []string{o.Name, orgCreated(p, o), orDash(actor(o.CreatedBy))}
	})
}

func orgCreated(p *Page, o wire.Org) string {
	if o.CreatedAt == nil {
		return "at the first start"
	}
	return p.Ago(*o.CreatedAt)
}

// Org is one org.
type Org wire.Org

// JSON returns the wire.Org.
func (o Org) JSON() any { return wire.Org(o) }

// Human writes the org's fields.
func (o Org) Human(p *Page) {
	p.Fields([2]string{"Org", o.Name}, [2]string{"Created", orgCreated(p, wire.Org(o))}, [2]string{"By", actor(o.CreatedBy)})
}

// NewOrg is a new org with the token of its first owner.
type NewOrg wire.Org

// JSON returns the wire.Org.
func (o NewOrg) JSON() any { return wire.Org(o) }

// Human writes only the token, so that it can be piped.
func (o NewOrg) Human(p *Page) { p.Line("%s", o.Token) }
