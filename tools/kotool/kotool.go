// Package kotool gives tests the pinned program ko, which `make buildkit` built.
package kotool

import (
	"testing"

	"github.com/fairlead/fairlead/tools/pinned"
	"github.com/fairlead/fairlead/tools/testserver"
)

// RequireEnv is "1" if a test must fail where it would skip.
const RequireEnv = "FAIRLEAD_REQUIRE_BUILDKIT"

// version is the version of ko in tools/ko/go.mod.
const version = "v0.19.1"

// Programs returns the program ko.
func Programs() pinned.Programs {
	return pinned.Programs{Folder: "ko-" + version, Module: "ko", Packages: map[string]string{"ko": "github.com/google/ko"}}
}

// Bin returns the folder of the program ko. Without it, Bin skips the test, or fails it if RequireEnv is "1".
func Bin(t testing.TB) string {
	t.Helper()
	bin, err := Programs().Built()
	if err != nil {
		testserver.Missing(t, "CODE THAT BUILDS IMAGES OF GO PROGRAMS IS NOT TESTED", RequireEnv, "Run `make test-tools`", err)
	}
	return bin
}
