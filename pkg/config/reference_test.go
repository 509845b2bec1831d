package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
)

// What the pages list is what is declared. UPDATE_GOLDEN=1 writes it.
func TestPagesListEveryVariable(t *testing.T) {
	pages := map[string]map[string]any{
		"EXECUTORS.md": {"docker": &config.Docker{}, "kubernetes": &config.Kubernetes{}, "ecs": &config.ECS{}},
		"RUNNERS.md":   {"agent": &config.Runner{}},
		"IDENTITY.md":  {"oidc": &config.OIDC{}},
	}
	for file, tables := range pages {
		path := "../../docs/" + file
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := string(b)
		for name, cfg := range tables {
			var table strings.Builder
			table.WriteString("\n| variable | default | |\n|---|---|---|\n")
			for _, v := range config.Variables(cfg) {
				value := ""
				if v.Default != "" {
					value = "`" + v.Default + "`"
				}
				fmt.Fprintf(&table, "| `%s` | %s | %s |\n", v.Name, value, v.Doc)
			}
			begin := "<!-- " + name + ": written by UPDATE_GOLDEN=1 go test ./pkg/config -->\n"
			before, rest, ok := strings.Cut(page, begin)
			_, after, end := strings.Cut(rest, "<!-- end -->")
			if !ok || !end {
				t.Fatalf("%s has no place for the variables of %s", file, name)
			}
			page = before + begin + table.String() + "<!-- end -->" + after
		}
		if page == string(b) {
			continue
		}
		if os.Getenv("UPDATE_GOLDEN") == "" {
			t.Errorf("docs/%s does not list what is declared: UPDATE_GOLDEN=1 writes it", file)
		} else if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
