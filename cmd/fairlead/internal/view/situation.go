package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Warning holds the situations that a person must know before they approve.
type Warning []wire.Situation

// Lines returns each situation with its facts and next steps.
func (w Warning) Lines(style Style) []string {
	page := &Page{Style: style}
	situations(page, w)
	return strings.Split(strings.Trim(page.buf.String(), "\n"), "\n")
}

// situations writes each situation with its facts and next steps.
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
