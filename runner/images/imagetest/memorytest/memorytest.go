// Package memorytest starts registries of several kinds in the process of a test. It is apart from package imagetest, because its library
// computes a password hash when a program starts, and some test binaries are started a thousand times.
package memorytest

import (
	"io"
	"log"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/olareg/olareg"
	"github.com/olareg/olareg/config"

	"github.com/fairlead/fairlead/runner/images/imagetest"
)

// Kind is an implementation of a registry.
type Kind string

// The kinds.
const (
	Whole     Kind = "with deletion and the referrers API"
	Plain     Kind = "without the referrers API"
	ReadWrite Kind = "without deletion"
)

// Start starts a registry, which ends with the test.
func Start(t testing.TB, kind Kind) *imagetest.Registry {
	t.Helper()
	if kind == Plain {
		return imagetest.Serve(t, registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	}
	deletes := kind == Whole
	s := olareg.New(config.Config{Storage: config.ConfigStorage{StoreType: config.StoreMem, GC: config.ConfigGC{Frequency: -1}}, API: config.ConfigAPI{DeleteEnabled: &deletes}})
	t.Cleanup(func() { s.Close() })
	return imagetest.Serve(t, s)
}
