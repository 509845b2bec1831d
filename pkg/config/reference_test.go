package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/tools/page"
)

func TestPagesListEveryVariable(t *testing.T) {
	for _, table := range []struct {
		file, name string
		config     any
	}{
		{"docs/reference/agent.md", "agent", &config.Runner{}},
		{"docs/reference/agent.md", "oidc", &config.OIDC{}},
	} {
		var rows strings.Builder
		rows.WriteString("| variable | default | |\n|---|---|---|\n")
		for _, v := range config.Variables(table.config) {
			value := ""
			if v.Default != "" {
				value = "`" + v.Default + "`"
			}
			fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", v.Name, value, v.Doc)
		}
		page.Hold(t, table.file, table.name, rows.String())
	}
}
