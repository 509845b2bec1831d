package appspec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestControlCharactersAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, with, want string }{
		"a NUL in a description": {"description: A shop with a database behind it.", `description: "a\0b"`,
			"app.yaml:3:14: the text holds the control character U+0000 [control-character]. Remove it."},
		"an escape sequence":        {"description: A shop with a database behind it.", `description: "\e]52;c;eA==\a"`, "app.yaml:3:14: the text holds the control character U+001B"},
		"a carriage return":         {"description: A shop with a database behind it.", `description: "a\rb"`, "app.yaml:3:14: the text holds the control character U+000D"},
		"an item of a default":      {"default: [a, b]", `default: [a, "\e[2J"]`, "app.yaml:14:18: the text holds the control character U+001B"},
		"a part of a value":         {"literal]", `"x\x9b2J"]`, "app.yaml:28:36: the text holds the control character U+009B"},
		"a key of a value":          {"template: $", `"te\x7fmplate": $`, "app.yaml:29:9: the key holds the control character U+007F"},
		"a text beside a reference": {"${install.name}-web", `"${install.name}\b"`, "app.yaml:24:13: the text holds the control character U+0008"},
		"a source":                  {"./modules/web", `"./modules/\0web"`, `app.yaml:21:13: the source "./modules/\x00web" holds a control character [invalid-source]`},
	} {
		t.Run(name, func(t *testing.T) {
			app, problems := appspec.Parse("app.yaml", []byte(strings.Replace(shop, c.old, c.with, 1)))
			if app != nil || len(problems) != 1 || !strings.HasPrefix(problems.Error(), c.want) {
				t.Errorf("got %v, want %s", problems, c.want)
			}
		})
	}
}

func TestTextMayHaveLinesAndTabs(t *testing.T) {
	src := strings.Replace(shop, "literal]", `"one\n\ttwo\n"]`, 1)
	if _, problems := appspec.Parse("app.yaml", []byte(src)); problems != nil {
		t.Error(problems)
	}
}

func TestFromCanonicalRefusesControlCharacters(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	data, err := app.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"A shop", "literal", `"template`} {
		with := old[:1] + `\u001b` + old[1:]
		_, err := appspec.FromCanonical([]byte(strings.Replace(string(data), old, with, 1)))
		var ps appspec.Problems
		if fairlead.KindOf(err) != fairlead.KindInvalid || !errors.As(err, &ps) || ps[0].Code != "control-character" {
			t.Errorf("with a control character in %q: %v", old, err)
		}
	}
}
