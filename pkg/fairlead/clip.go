package fairlead

import "strings"

// Clip cuts s after n bytes, between two characters, and marks that with an
// ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
