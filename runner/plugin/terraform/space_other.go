//go:build unix && !linux

package terraform

import "errors"

// allocate is not supported on this system.
func allocate(string, int64) error { return errors.ErrUnsupported }
