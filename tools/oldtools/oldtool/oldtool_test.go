package oldtool_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/fairlead/fairlead/tools/oldtools/oldtool"
)

// The versions in the code and in the modules must be equal. Otherwise an updated module
// would build a new version under the name of the old version.
func TestVersionsMatchTheModules(t *testing.T) {
	for _, tool := range oldtool.All() {
		content, err := os.ReadFile(filepath.Join("..", "..", tool.Module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse("go.mod", content, nil)
		if err != nil {
			t.Fatal(err)
		}
		required := map[string]string{}
		for _, r := range mod.Require {
			required[r.Mod.Path] = r.Mod.Version
		}
		path := map[string]string{"terraform": "github.com/hashicorp/terraform", "tofu": "github.com/opentofu/opentofu"}[tool.Name]
		if required[path] != "v"+tool.Version {
			t.Errorf("the module of %s builds %s, want v%s", tool.Name, required[path], tool.Version)
		}
	}
}
