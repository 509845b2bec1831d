//go:build !race

// Package israce tells a test whether the race detector watches it, which makes it
// ten times as slow.
package israce

// On says whether the race detector watches this program.
const On = false
