//go:build race

package control_test

// raced: the test was built with the race detector.
const raced = true
