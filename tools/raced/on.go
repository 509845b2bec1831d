//go:build race

package raced

// On says whether the race detector watches this program.
const On = true
