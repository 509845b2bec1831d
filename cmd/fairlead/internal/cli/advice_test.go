package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/pkg/diagnosis/diagnosistest"
)

// parse reports why the command line would refuse the words behind `fairlead`,
// before it does anything.
func parse(words []string) error {
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	root := c.root()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(words)
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
		return fmt.Errorf("%q is no command", words)
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

// TestEveryAdvisedCommandExists holds what a person is told to type, in any
// situation, against the real command line.
func TestEveryAdvisedCommandExists(t *testing.T) {
	met := map[string]bool{}
	for _, c := range diagnosistest.Cases() {
		for _, s := range c.Said {
			texts := append([]string{s.What}, s.Known...)
			for _, n := range s.Next {
				texts = append(texts, n.Effect)
				if n.Command == "" {
					continue
				}
				words := strings.Fields(n.Command)
				if words[0] != "fairlead" {
					t.Errorf("%s: %q is none of our commands", c.Name, n.Command)
					continue
				}
				if err := parse(words[1:]); err != nil {
					t.Errorf("%s: `%s` is advised, and is refused: %v", c.Name, n.Command, err)
				}
				met[strings.Join(words[1:3], " ")] = true
			}
			for _, text := range texts {
				for _, m := range quoted.FindAllStringSubmatch(text, -1) {
					if err := parse(strings.Fields(m[1])); err != nil {
						t.Errorf("%s: `fairlead %s` is advised, and is refused: %v", c.Name, m[1], err)
					}
				}
			}
		}
	}
	// Each command that package diagnosis can advise is met by a case.
	for _, words := range madeIn(t, "../../../../pkg/diagnosis/commands.go") {
		if !met[words] {
			t.Errorf("no case advises `fairlead %s`", words)
		}
	}
}

// quoted finds commands within a text.
var quoted = regexp.MustCompile("`fairlead ([a-z%][^`]*)`")

// madeIn returns the first two words of each command that a file makes.
func madeIn(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, ok := call.Fun.(*ast.Ident)
		if !ok || name.Name != "command" {
			return true
		}
		args := call.Args
		if inner, ok := args[0].(*ast.CallExpr); ok { // append([]string{…}, …)
			args = inner.Args[0].(*ast.CompositeLit).Elts
		}
		var words []string
		for _, a := range args[:2] {
			word, err := strconv.Unquote(a.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			words = append(words, word)
		}
		out = append(out, strings.Join(words, " "))
		return true
	})
	if len(out) < 10 {
		t.Fatalf("%s makes %q only", path, out)
	}
	return out
}

// TestEveryCommandThatAMessageNamesExists reads the source of all that speaks
// to people: a hint that names a command which is not there is worse than none.
// Where a command is only spoken of, without arguments, its name must be right.
func TestEveryCommandThatAMessageNamesExists(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	seen := 0
	for _, root := range []string{"../../../../pkg", "../..", "../../../../runner"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "e2e") || strings.Contains(path, "pkg/placement/") {
				return err // what pkg/placement advises is said to nobody until it is wired
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range quoted.FindAllStringSubmatch(text, -1) {
					if strings.HasPrefix(m[1], "%") {
						continue // the command itself is put in
					}
					seen++
					words := strings.Fields(verbs.ReplaceAllString(m[1], "x"))
					if err := parse(words); err != nil && !named(words) {
						t.Errorf("%s names `fairlead %s`: %v", path, m[1], err)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 50 {
		t.Fatalf("only %d commands were found", seen)
	}
}

// named reports whether the words are a command's name and no more.
func named(words []string) bool {
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	cmd, rest, err := c.root().Find(words)
	return err == nil && len(rest) == 0 && cmd.HasParent()
}

// TestAFlagOfACommandHidTheOneOfAll: `webhook create --url` took the word for the
// control plane's URL, and the webhook was made where nobody had asked for it.
func TestAFlagOfACommandHidTheOneOfAll(t *testing.T) {
	root := (&cli{env: Env{Getenv: func(string) string { return "" }}}).root()
	of := root.PersistentFlags()
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if g := of.Lookup(f.Name); g != nil && g != f {
				t.Errorf("--%s of `%s` hides the one that all commands have", f.Name, cmd.CommandPath())
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(root)
}
