//go:build !race

package simtest

// raced: the test was built with the race detector.
const raced = false
