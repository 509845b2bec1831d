// Package oldtool gives tests the oldest tools that the terraform plugin supports.
package oldtool

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/tools/pinned"
	"github.com/fairlead/fairlead/tools/testserver"
)

// RequireEnv names the environment variable that, if "1", makes a test fail if a tool is
// missing.
const RequireEnv = "FAIRLEAD_REQUIRE_OLD_TOOLS"

// The versions in tools/oldterraform/go.mod and tools/oldtofu/go.mod.
const (
	terraformVersion = "1.5.7" // the last version under the Mozilla Public License
	tofuVersion      = "1.8.0" // the first version that accepts variables where the plugin uses them
)

// Tool is one of the oldest supported tools.
type Tool struct {
	Name    string // name of the program
	Version string
	pinned.Programs
}

// All returns both tools.
func All() []Tool {
	return []Tool{
		{"terraform", terraformVersion, pinned.Programs{
			Folder: "terraform-" + terraformVersion, Module: "oldterraform",
			Packages: map[string]string{"terraform": "github.com/hashicorp/terraform"},
		}},
		{"tofu", tofuVersion, pinned.Programs{
			Folder: "opentofu-" + tofuVersion, Module: "oldtofu",
			LDFlags:  "-X github.com/opentofu/opentofu/version.dev=no", // without it the program reports another version
			Packages: map[string]string{"tofu": "github.com/opentofu/opentofu/cmd/tofu"},
		}},
	}
}

// Find returns the paths of the tools by name and version ("tofu-1.8.0"). If `make
// old-tools` has not built them, it skips the test, or fails it if RequireEnv is "1". In
// a short run it always skips the test.
func Find(t testing.TB) map[string]string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: the oldest tools are not tested in a short run")
	}
	paths := map[string]string{}
	var missing error
	for _, p := range All() {
		dir, err := p.Built()
		missing = errors.Join(missing, err)
		paths[p.Name+"-"+p.Version] = filepath.Join(dir, p.Name)
	}
	if missing != nil {
		testserver.Missing(t, "THE OLDEST TOOLS ARE NOT TESTED", RequireEnv, "Run `make old-tools` once", missing)
	}
	return paths
}
