//go:build unix && !linux

package process_test

import "testing"

// places is empty: this system has only one environment.
var places map[string]func(*testing.T)
