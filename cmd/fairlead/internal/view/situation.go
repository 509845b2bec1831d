package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Warning is what a person has to know before they approve.
type Warning []wire.Situation

// Lines returns each situation with what is known and what can be done.
func (w Warning) Lines(style Style) []string {
	page := &Page{Style: style}
	situations(page, w)
	return strings.Split(strings.Trim(page.buf.String(), "\n"), "\n")
}

// situations writes what there is to know or to decide, each with what is
// known and what can be done.
func situations(p *Page, all []wire.Situation) {
	for _, s := range all {
		p.Gap()
		head := ""
		if s.Component != "" {
			head = p.Style.Bold(Cell(s.Component)) + ": "
		}
		p.Line("%s%s", Styled(head), s.What)
		for _, known := range s.Known {
			p.Line("  - %s", known)
		}
		for _, n := range s.Next {
			if n.Action == nil {
				p.Line("  > %s", Hint(n.Effect, nil))
			} else {
				p.Line("  > `%s` %s", Styled(p.Style.Bold(Cell(Command(*n.Action)))), n.Effect)
			}
		}
	}
}
