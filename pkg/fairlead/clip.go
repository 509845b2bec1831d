package fairlead

import "strings"

// Clip returns s if it has at most n bytes. Otherwise it cuts s after at most n bytes, between two characters, and
// appends an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
