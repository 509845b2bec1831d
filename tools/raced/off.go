//go:build !race

// Package raced tells a test whether the race detector watches it, which makes it
// ten times as slow.
package raced

// On says whether the race detector watches this program.
const On = false
