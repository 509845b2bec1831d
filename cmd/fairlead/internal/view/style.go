package view

// Style colours text, or does not: the zero Style leaves it as it is.
type Style struct{ Colour bool }

// StyleFor returns the Style of a stream: coloured on a terminal, unless the
// environment asks for none (https://no-color.org) or the terminal has none.
func StyleFor(isTerminal bool, getenv func(string) string) Style {
	return Style{Colour: isTerminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

func (s Style) sgr(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold makes text stand out.
func (s Style) Bold(text string) string { return s.sgr("1", text) }

// Dim makes text step back.
func (s Style) Dim(text string) string { return s.sgr("2", text) }

// Good is the colour of what went well.
func (s Style) Good(text string) string { return s.sgr("32", text) }

// Bad is the colour of what failed.
func (s Style) Bad(text string) string { return s.sgr("31", text) }

// Warn is the colour of what wants attention.
func (s Style) Warn(text string) string { return s.sgr("33", text) }

// Nth colours text by a number, such as that of a component. Neighbours
// differ; red and green are left to outcomes.
func (s Style) Nth(n int, text string) string {
	codes := [...]string{"36", "35", "34", "33", "96", "95", "94", "93"}
	return s.sgr(codes[n%len(codes)], text)
}

// State colours the name of a state by what it means.
func (s Style) State(state string) string {
	switch state {
	case "succeeded", "deployed", "applied", "unchanged", "planned", "online", "present":
		return s.Good(state)
	case "failed", "lost", "unknown":
		return s.Bad(state)
	case "awaiting-approval", "canceling", "canceled", "partial", "reconciling", "skipped":
		return s.Warn(state)
	}
	return state
}
