package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// `fairlead runner import … | fairlead runner create NAME -f -` sends nothing if
// the import fails.
func TestEmptyRunnerConfigurationIsRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []configFlags{{file: "-"}, {yaml: "-"}, {file: empty}, {yaml: "@" + empty}, {file: "-", set: []string{"runner_configuration.concurrency=2"}}} {
		c := &cli{env: Env{Stdin: strings.NewReader("")}}
		if in, err := c.readConfig(f); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%+v sends %+v, %v", f, in, err)
		}
	}
	for _, args := range [][]string{{"--set-yaml", ""}, {"--file="}, {"--set-yaml", "\n"}} {
		c, cmd, f := &cli{}, &cobra.Command{}, configFlags{}
		f.register(c, cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if in, err := c.readConfig(f); !f.any() || err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%q sends %+v, %v", args, in, err)
		}
	}
	c := &cli{env: Env{Stdin: strings.NewReader("")}}
	if in, err := c.readConfig(configFlags{}); err != nil || in.File != "" || in.Text != "" {
		t.Errorf("without a configuration: %+v, %v", in, err)
	}
}
