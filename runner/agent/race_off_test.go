//go:build !race

package agent

// raced: the test was built with the race detector.
const raced = false
