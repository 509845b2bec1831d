package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/diagnosis/diagnosistest"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// parse returns the reason why the command line refuses the arguments after `fairlead`,
// or nil if it accepts them. It runs no command.
func parse(args []string) error {
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	root := c.root()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd.Name() == "help" {
		if topic, _, err := root.Find(rest); err != nil || topic == root {
			return fmt.Errorf("there is no help on %q", rest)
		}
		return nil
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%q is not a command", args)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// The real command line accepts the command of each verb, with all arguments and without
// arguments.
func TestEveryVerbHasACommand(t *testing.T) {
	all := fairlead.Args{Install: "acme", Component: "web", Components: []string{"db", "web"}, Deployment: "dep_1", Job: "job_1",
		Runner: "local", Rule: "rule_1", Group: "customers/acme", Lock: "1-2-3", File: "salvage/errored.tfstate"}
	verbs := commandline.Verbs()
	for _, v := range verbs {
		for _, args := range []fairlead.Args{all, {}} {
			line := commandline.Of(fairlead.Action{Verb: v, Args: args})
			typed := strings.Fields(line)[1:]
			if err := parse(typed); err != nil && !(v == fairlead.VerbLogin && named(typed)) {
				t.Errorf("%s: `%s` is refused: %v", v, line, err)
			}
		}
	}
	field, _ := reflect.TypeFor[wire.Action]().FieldByName("Verb")
	var names []string
	for _, v := range verbs {
		names = append(names, string(v))
	}
	slices.Sort(names)
	if api := strings.Split(field.Tag.Get("enum"), ","); !slices.Equal(names, api) {
		t.Errorf("the API has the verbs %q, the command line %q", api, names)
	}
}

// Each verb of a diagnosis has a command.
func TestEveryVerbOfAdviceHasACommand(t *testing.T) {
	known := commandline.Verbs()
	met := map[fairlead.Verb]bool{}
	for _, c := range diagnosistest.Cases() {
		for _, s := range c.Situations {
			for _, n := range s.Next {
				if v := n.Action.Verb; v != "" && !slices.Contains(known, v) {
					t.Errorf("%s: %q has no command", c.Name, v)
				} else {
					met[v] = true
				}
			}
		}
	}
	// The cases contain each action that package diagnosis can advise.
	source, err := os.ReadFile("../../../../pkg/diagnosis/steps.go")
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`fairlead\.(Verb[A-Z]\w+)`).FindAllStringSubmatch(string(source), -1)
	if len(made) < 10 || len(met) < len(made) {
		t.Errorf("the cases advise %d verbs, package diagnosis can advise %d", len(met), len(made))
	}
}

// The messages of the control plane's packages name actions, by existing verbs, and not
// command lines: the client renders an action as a command.
func TestControlPlaneNamesActionsNotCommands(t *testing.T) {
	verb, mentioned := regexp.MustCompile(`(?:^|[^$])\{([a-z]+\.[a-z-]+)\}`), 0
	root := (&cli{env: Env{Getenv: func(string) string { return "" }}}).root()
	names := make([]string, 0, len(root.Commands()))
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	command := regexp.MustCompile(`\bfairlead (` + strings.Join(names, "|") + `)\b|(?:^|[ (\x60])--[a-z][a-z-]+`)
	ofOthers := []string{"--reuse-values", "--enrolment-token-file", "--limit"} // of Helm, of the agent, and of the start of a server
	for _, folder := range []string{"control", "api", "diagnosis", "placement", "fairlead", "identity", "appspec"} {
		literals(t, "../../../../pkg/"+folder, func(path, text string) {
			if m := command.FindString(text); m != "" && !slices.Contains(ofOthers, strings.Trim(m, " (`")) {
				t.Errorf("%s has the command line or flag `%s`: name the action", path, m)
			}
			for _, m := range verb.FindAllStringSubmatch(text, -1) {
				mentioned++
				if !slices.Contains(commandline.Verbs(), fairlead.Verb(m[1])) {
					t.Errorf("%s names %s, which is not a verb", path, m[0])
				}
			}
		})
	}
	if mentioned < 50 {
		t.Errorf("only %d actions are named", mentioned)
	}
}

// literals calls visit with each string of the sources below a folder.
func literals(t *testing.T, root string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "e2e") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				visit(path, text)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// quoted finds commands within a text.
var quoted = regexp.MustCompile("`fairlead ([a-z%][^`]*)`")

// Each command that a message in the source names exists, and accepts the arguments in
// the message. A message may also name a command without its arguments.
func TestCommandsInMessagesExist(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	seen := 0
	for _, root := range []string{"../../../../pkg", "../..", "../../../../runner"} {
		literals(t, root, func(path, text string) {
			for _, m := range quoted.FindAllStringSubmatch(text, -1) {
				if strings.HasPrefix(m[1], "%") {
					continue // the name of the command is an argument of the format
				}
				seen++
				typed := strings.Fields(verbs.ReplaceAllString(m[1], "x"))
				if err := parse(typed); err != nil && !named(typed) {
					t.Errorf("%s names `fairlead %s`: %v", path, m[1], err)
				}
			}
		})
	}
	if seen < 30 {
		t.Fatalf("only %d commands were found", seen)
	}
}

// named reports whether args are only the name of a command.
func named(args []string) bool {
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	cmd, rest, err := c.root().Find(args)
	return err == nil && len(rest) == 0 && cmd.HasParent()
}

// No flag of a command has the name of a global flag. Otherwise a command's own flag
// --url would hide the global flag --url, and the command would call another control
// plane.
func TestFlagsDoNotHideGlobalFlags(t *testing.T) {
	root := (&cli{env: Env{Getenv: func(string) string { return "" }}}).root()
	of := root.PersistentFlags()
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if g := of.Lookup(f.Name); g != nil && g != f {
				t.Errorf("--%s of `%s` hides the global flag", f.Name, cmd.CommandPath())
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(root)
}
