package oldtool_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/fairlead/fairlead/tools/oldtools/oldtool"
)

// If the versions differ, an updated module builds another version under the old name.
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
