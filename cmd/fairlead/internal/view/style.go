package view

// Style colours text. The zero Style returns text unchanged.
type Style struct{ Colour bool }

// StyleFor returns the Style of a stream. It uses colours on a terminal, unless
// NO_COLOR is set (https://no-color.org) or TERM is "dumb".
func StyleFor(isTerminal bool, getenv func(string) string) Style {
	return Style{Colour: isTerminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

func (s Style) sgr(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold returns text in bold.
func (s Style) Bold(text string) string { return s.sgr("1", text) }

// Dim returns text in a fainter colour.
func (s Style) Dim(text string) string { return s.sgr("2", text) }

// Good returns text in the colour of success.
func (s Style) Good(text string) string { return s.sgr("32", text) }

// Bad returns text in the colour of failure.
func (s Style) Bad(text string) string { return s.sgr("31", text) }

// Warn returns text in the colour of warnings.
func (s Style) Warn(text string) string { return s.sgr("33", text) }

// Nth colours text by the number n, such as the index of a component. Consecutive
// numbers have different colours. Nth does not use the red of failure and the green of
// success.
func (s Style) Nth(n int, text string) string {
	codes := [...]string{"36", "35", "34", "33", "96", "95", "94", "93"}
	return s.sgr(codes[n%len(codes)], text)
}

// State colours the name of a state as success, failure or warning.
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
