//go:build unix && !linux

package process_test

import "testing"

// places are none: this system has but one.
var places map[string]func(*testing.T)
