//go:build !linux

package confine

// Supported reports false: this system has no Landlock.
func Supported() bool { return false }

// Run runs f. It confines nothing on this system.
func Run(_ Reach, f func() error) error { return f() }
