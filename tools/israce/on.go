//go:build race

package israce

// On reports whether this program was built with the race detector.
const On = true
