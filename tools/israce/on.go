//go:build race

package israce

// On says whether the race detector watches this program.
const On = true
