//go:build !unix

package local

// maxFiles returns how many files this process may have open; 0: unknown.
func maxFiles() int { return 0 }
