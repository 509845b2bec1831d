package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands calls f for every command, parents first.
func commands(f func(*cobra.Command)) {
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		f(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(c.root())
}

func TestUsageLinesNameFlagsOfTheCommand(t *testing.T) {
	commands(func(cmd *cobra.Command) {
		for _, arg := range strings.Fields(cmd.Use)[1:] {
			name, isFlag := strings.CutPrefix(strings.Trim(arg, "[]"), "--")
			if isFlag && cmd.LocalNonPersistentFlags().Lookup(name) == nil {
				t.Errorf("%s: the command has no flag --%s", cmd.CommandPath(), name)
			}
		}
	})
}

func TestFlagPlaceholdersHaveNoSpaces(t *testing.T) {
	commands(func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			placeholder, usage := pflag.UnquoteUsage(f)
			if strings.Contains(placeholder, " ") || (f.Value.Type() == "bool" && placeholder != "") {
				t.Errorf("%s: the placeholder of --%s is %q: %s", cmd.CommandPath(), f.Name, placeholder, usage)
			}
		})
	})
}

func TestHelpListsTheAgent(t *testing.T) {
	var out bytes.Buffer
	code := Main(t.Context(), Env{Args: []string{"runner", "--help"}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
	if code != 0 || !strings.Contains(out.String(), "\n  agent ") {
		t.Errorf("code %d:\n%s", code, out.String())
	}
}

func TestWelcomeNamesTheToolsProduct(t *testing.T) {
	for path, want := range map[string]string{"/opt/tofu": "OpenTofu, /opt/tofu", "/usr/bin/terraform": "Terraform, /usr/bin/terraform", "/x/y": "/x/y"} {
		if got := toolName(path); got != want || !strings.Contains(welcome("http://x", "data", "login", path), "Its runner deploys with "+want+"\n") {
			t.Errorf("%s: %s", path, got)
		}
	}
}
