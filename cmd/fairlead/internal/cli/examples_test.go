package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// longestShort is in characters: a longer line wraps in the list of commands on a
// terminal with 80 columns.
const longestShort = 60

func TestEachCommandIsDescribedInOneLine(t *testing.T) {
	commands(func(cmd *cobra.Command) {
		if n := len(cmd.Short); n == 0 || n > longestShort || strings.ContainsAny(cmd.Short, "\n") || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q must have 1 to %d characters (it has %d) and no full stop", cmd.CommandPath(), cmd.Short, longestShort, n)
		}
		if cmd.Runnable() && !cmd.HasSubCommands() && (cmd.Long == "" || cmd.Example == "") {
			t.Errorf("%s has no description or no example", cmd.CommandPath())
		}
	})
}

// commandLines returns the commands of a shell script as arguments, each with the
// program's name first. It fails the test if the script is not valid.
func commandLines(t *testing.T, script string) (lines [][]string) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		t.Errorf("%v in:\n%s", err, script)
		return nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			args, err := expand.Fields(nil, call.Args...)
			if err != nil {
				t.Errorf("%v in:\n%s", err, script)
			}
			lines = append(lines, args)
		}
		return true
	})
	return lines
}

// checkExample returns the reason why the CLI refuses a command line before the command
// runs, or nil if the CLI accepts it. It returns nil for a line of another program.
func checkExample(line []string) error {
	if line[0] != "fairlead" {
		return nil
	}
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	root := c.root()
	c.finish(root)
	root.InitDefaultHelpCmd()
	cmd, args, err := root.Find(line[1:])
	if err != nil {
		return err
	}
	if cmd.DisableFlagParsing {
		return nil
	}
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	if cmd.HasSubCommands() && len(cmd.Flags().Args()) > 0 {
		return unknown(cmd, cmd.Flags().Args())
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// The arguments and flags of each example exist. The scripts in testdata run the commands.
func TestExamplesOfHelpAreAccepted(t *testing.T) {
	checked := 0
	commands(func(cmd *cobra.Command) {
		own := false
		for _, line := range commandLines(t, cmd.Example) {
			if err := checkExample(line); err != nil {
				t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
			}
			own = own || strings.HasPrefix(strings.Join(line, " ")+" ", cmd.CommandPath()+" ")
			checked++
		}
		if cmd.Example != "" && !own {
			t.Errorf("%s: no example shows the command itself", cmd.CommandPath())
		}
	})
	if checked < 80 {
		t.Errorf("%d examples were checked", checked)
	}

	t.Run("planted", func(t *testing.T) {
		for _, script := range []string{
			"fairlead install deploi acme",
			"fairlead install deploy",
			"fairlead install deploy acme globex",
			"fairlead install deploy acme --aproved",
			"fairlead install create acme",
			"fairlead dev --quiet --verbose",
			"echo x | fairlead app apply",
		} {
			refused := false
			for _, line := range commandLines(t, script) {
				refused = refused || checkExample(line) != nil
			}
			if !refused {
				t.Errorf("accepted: %s", script)
			}
		}
	})
}
