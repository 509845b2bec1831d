package appspec_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/fairlead/fairlead/pkg/appspec"
)

// hostile returns files that would cost a careless parser much time or memory.
func hostile() map[string]string {
	const n = appspec.MaxFileSize
	var keys strings.Builder
	for i := 0; keys.Len() < n-20; i++ {
		fmt.Fprintf(&keys, "k%d: 1\n", i)
	}
	deepMap := strings.Builder{}
	for i := 0; i < 1000; i++ {
		deepMap.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return map[string]string{
		"brackets":            strings.Repeat("[", n),
		"braces":              strings.Repeat("{", n),
		"closed brackets":     strings.Repeat("]", n),
		"dashes":              strings.Repeat("- ", n/2),
		"question marks":      strings.Repeat("? ", n/2),
		"colons":              strings.Repeat(": ", n/2),
		"commas":              "[" + strings.Repeat(",", n-1),
		"a million keys":      keys.String(),
		"one key repeated":    strings.Repeat("a: 1\n", n/5),
		"a deep map":          deepMap.String(),
		"documents":           strings.Repeat("---\n", n/4),
		"anchors":             strings.Repeat("&a ", n/3),
		"a billion laughs":    "a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n",
		"references":          wrap("components:\n  a:\n    type: terraform\n    source: a\n    vars:\n      a: \"" + strings.Repeat("${", n/2-100) + "\"\n"),
		"escaped references":  wrap("components:\n  a:\n    type: terraform\n    source: a\n    vars:\n      a: \"" + strings.Repeat(`\x24{`, n/5-100) + "\"\n"),
		"a long name":         "fairlead: v1\nname: " + strings.Repeat("a", n-100) + "\n",
		"a long field":        "fairlead: v1\n" + strings.Repeat("a", n-100) + ": 1\n",
		"a long number":       "fairlead: " + strings.Repeat("9", n-100) + "\n",
		"empty lines":         strings.Repeat("\n", n),
		"a block text":        "description: |\n" + strings.Repeat("  x\n", n/4-10),
		"a long block header": "a: |" + strings.Repeat("x", 5000) + "\n", // formerly the parser's message repeated the whole header
		"a million problems":  "fairlead: v1\ninputs:\n" + strings.Repeat("  A: 1\n", 3000),
	}
}

func TestHostileFilesAreRefusedWithFewProblems(t *testing.T) {
	for name, src := range hostile() {
		t.Run(name, func(t *testing.T) {
			app, problems := appspec.Parse("app.yaml", []byte(src))
			if app != nil || len(problems) == 0 || len(problems) > appspec.MaxProblems+1 {
				t.Errorf("got %d problems", len(problems))
			}
			checkProblems(t, src, problems)
		})
	}
}

func checkProblems(t *testing.T, src string, problems appspec.Problems) {
	t.Helper()
	lines := 1 + strings.Count(src, "\n")
	for _, p := range problems {
		if p.File != "app.yaml" || p.Line < 1 || p.Line > lines || p.Column < 1 || p.Code == "" || p.Message == "" {
			t.Fatalf("%+v is incomplete, or its place is outside the %d lines", p, lines)
		}
		if len(p.String()) > 2000 {
			t.Fatalf("a problem of %d bytes: %.200s", len(p.String()), p)
		}
		if strings.ContainsFunc(p.String(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q holds unprintable characters", p.String())
		}
	}
}

// FuzzParse checks the guarantees in Parse's comment for any bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte(shopCanonical))
	for _, s := range []string{
		"", "a", "- a", "{", "a: b: c", "a: &x 1\nb: *x", "? a\n: b", "a: |\n  ${x}", "%YAML 1.2\n---\na", "!!map {a: 1}", "\ufeff", "a: \"\\u202e\"",
		"fairlead: v1\nname: a\ncomponents:\n  a: {type: terraform, source: a, vars: {x: '${inputs.a[0][\"b\"]}'}}\n",
		"fairlead: v1\nname: a\ninputs: {a: {type: list(list(any)), default: [[1e5, 0x1F, .5]]}}\ncomponents: {a: {type: terraform, source: .}}\n",
		"inputs:\n  a:\n    default: {a: [1, {b: c}]}\n", "components:\n  a:\n    depends_on: [a, b]\n", "a:\n - b\n - - c\n   - d\n",
	} {
		f.Add([]byte(s))
	}
	for _, s := range hostile() {
		f.Add([]byte(s[:min(len(s), 300)]))
	}
	schema := compiledSchema(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		app, problems := appspec.Parse("app.yaml", src)
		if (app == nil) == (len(problems) == 0) {
			t.Fatalf("want either an app or problems, got %v, %v", app, problems)
		}
		checkProblems(t, strings.ReplaceAll(string(src), "\r\n", "\n"), problems)
		if app == nil {
			return
		}
		value, _ := instance(string(src))
		if err := schema.Validate(value); err != nil {
			t.Fatalf("the schema refuses a valid app: %v", err)
		}
		stored, err := app.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		again, err := appspec.FromCanonical(stored)
		if err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		if got := canonical(t, again); got != string(stored) {
			t.Fatalf("%s became %s", stored, got)
		}
	})
}
