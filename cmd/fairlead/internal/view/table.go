package view

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const (
	columnGap = 2  // blanks between two columns
	minText   = 12 // smallest width of a wrapped text, in columns
)

// Table writes rows under a header, with aligned columns. Without rows it writes
// nothing. On a narrow screen it wraps the widest texts between words. If that is
// not enough, it writes each row as fields, one below the other. It never breaks
// a single word, such as an identifier, so that a person can copy it.
func (p *Page) Table(header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	cells := make([][]string, 0, len(rows)+1)
	for _, row := range append([][]string{header}, rows...) {
		clean := make([]string, len(row))
		for i, c := range row {
			clean[i] = Cell(c)
		}
		cells = append(cells, clean)
	}
	widths, fit := p.columns(cells)
	if !fit {
		p.records(cells)
		return
	}
	for _, row := range cells {
		p.tableRow(row, widths)
	}
}

// table writes a table with one row for each item.
func table[T any](p *Page, header []string, items []T, row func(T) []string) {
	rows := make([][]string, len(items))
	for i, item := range items {
		rows[i] = row(item)
	}
	p.Table(header, rows)
}

// columns returns the width of each column. While the table is wider than the screen,
// columns narrows the widest column. A column is never narrower than its longest word
// or minText. If the table cannot be narrowed enough, fit is false.
func (p *Page) columns(cells [][]string) (widths []int, fit bool) {
	widths = make([]int, len(cells[0]))
	for _, row := range cells {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	over := columnGap*(len(widths)-1) - p.screen.Width
	for _, w := range widths {
		over += w
	}
	if p.screen.Width <= 0 || over <= 0 {
		return widths, true
	}
	least := make([]int, len(widths))
	for _, row := range cells {
		for i, c := range row {
			for w := range strings.FieldsSeq(c) {
				least[i] = max(least[i], utf8.RuneCountInString(w))
			}
		}
	}
	for over > 0 {
		widest := -1
		for i, w := range widths {
			if w > max(least[i], minText) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths, false
		}
		widths[widest]--
		over--
	}
	return widths, true
}

// tableRow writes one row. It uses as many lines as the longest cell needs.
func (p *Page) tableRow(row []string, widths []int) {
	lines := make([][]string, len(row))
	height := 1
	for i, c := range row {
		if lines[i] = row[i : i+1]; utf8.RuneCountInString(c) > widths[i] {
			lines[i] = wrap(c, widths[i])
			height = max(height, len(lines[i]))
		}
	}
	for n := range height {
		start := p.buf.Len()
		for i, cell := range lines {
			text := ""
			if n < len(cell) {
				text = cell[n]
			}
			p.buf.WriteString(text)
			p.buf.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+columnGap))
		}
		line := bytes.TrimRight(p.buf.Bytes()[start:], " ") // if the last cells are empty, the line ends with blanks
		p.buf.Truncate(start + len(line))
		p.buf.WriteByte('\n')
	}
}

// records writes each row as its fields, and an empty line between two rows.
func (p *Page) records(cells [][]string) {
	name := 0
	for _, h := range cells[0] {
		name = max(name, utf8.RuneCountInString(h))
	}
	for i, row := range cells[1:] {
		if i > 0 {
			p.Gap()
		}
		for j, c := range row {
			if c == "" {
				continue
			}
			for n, line := range wrap(c, max(minText, p.screen.Width-name-columnGap)) {
				head := ""
				if n == 0 {
					head = cells[0][j]
				}
				p.buf.WriteString(head + strings.Repeat(" ", name-utf8.RuneCountInString(head)+columnGap) + line + "\n")
			}
		}
	}
}

// wrap breaks text between words into lines of at most width columns. A word that is
// longer than width gets its own line. If the text fits, wrap returns it unchanged.
func wrap(text string, width int) []string {
	if utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}
