//go:build !race

// Package israce reports whether a test runs with the race detector, which makes it ten
// times slower.
package israce

// On reports whether this program was built with the race detector.
const On = false
