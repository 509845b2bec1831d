package appspec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
)

// One file and several files are the same app.
func TestIncludesLeaveNoTrace(t *testing.T) {
	const inputs = "inputs:\n  size: {type: number, default: 2}\n"
	const web = "  web: {type: script, source: web, vars: {size: \"${inputs.size}\", url: \"${components.db.outputs.url}\"}}\n"
	const db = "  db: {type: script, source: web}\n"
	whole := wrap(inputs + "components:\n" + web + db)
	split := map[string]string{
		"app.yaml":         wrap("include: [./inputs.yaml, ./parts/*.yaml, ./*.yaml]\ncomponents:\n" + web),
		"inputs.yaml":      inputs,
		"parts/db.yaml":    "components:\n" + db,
		"parts/empty.yaml": "# nothing yet\n",
		"parts/notes.txt":  "not YAML: [",
	}
	load := func(files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		write(t, dir, files)
		write(t, dir, map[string]string{"web/run": "#!/bin/sh\n"})
		if err := os.Chmod(filepath.Join(dir, "web/run"), 0o755); err != nil {
			t.Fatal(err)
		}
		stored := ""
		for name, fsys := range both(t, dir) {
			app, problems := appspec.Load(fsys)
			if problems != nil {
				t.Fatalf("%s: %v", name, problems)
			}
			stored = canonical(t, app)
		}
		return stored
	}
	want := load(map[string]string{"app.yaml": whole})
	if got := load(split); got != want {
		t.Errorf("the files make %s, one file makes %s", got, want)
	}
	if _, err := appspec.FromCanonical([]byte(strings.Replace(want, `"name":`, `"include":["./inputs.yaml"],"name":`, 1))); err == nil {
		t.Error("a stored app may name an included file")
	}
}

func TestProblemsOfIncludedFilesHaveTheirPlace(t *testing.T) {
	for consequence, test := range map[string]struct {
		include string
		files   map[string]string
		link    [2]string // name and target of a symbolic link
		want    []string  // file:line:column code: a part of message or hint
	}{
		"a problem is in the included file": {include: "./a.yaml", files: map[string]string{"a.yaml": "components:\n  db:\n    type: scrpt\n    source: web\n    vars: {x: '${inputs.no}'}\n"},
			want: []string{"a.yaml:3:11 unknown-type: script", "a.yaml:4:13 missing-source", "a.yaml:5:16 unknown-reference"}},
		"a missing field is at its component":      {include: "./a.yaml", files: map[string]string{"a.yaml": "components:\n  db: {type: script}\n"}, want: []string{"a.yaml:2:3 missing-field: source"}},
		"a missing folder is in the included file": {include: "./a.yaml", files: map[string]string{"a.yaml": "components:\n  db: {type: script, source: nowhere}\n"}, want: []string{"a.yaml:2:30 missing-source"}},
		"a name twice has both places": {include: "./a.yaml, ./b.yaml", files: map[string]string{"a.yaml": "inputs: {size: {}}\n", "b.yaml": "\ninputs: {size: {}}\ncomponents:\n  web: {type: script, source: web}\n"},
			want: []string{"b.yaml:2:10 duplicate-name: first in line 1 of a.yaml", "b.yaml:4:3 duplicate-name: first in line 5 of app.yaml"}},
		"an included file cannot include":      {include: "./a.yaml", files: map[string]string{"a.yaml": "include: [./b.yaml]\n", "b.yaml": ""}, want: []string{"a.yaml:1:1 nested-include"}},
		"the rest of the app is in app.yaml":   {include: "./a.yaml", files: map[string]string{"a.yaml": "name: other\naws: {services: [s3]}\n"}, want: []string{"a.yaml:1:1 unknown-field: input_groups, components", "a.yaml:2:1 unknown-field"}},
		"a file that is no YAML":               {include: "./a.yaml", files: map[string]string{"a.yaml": "a: [1, 2\nb: 3\n"}, want: []string{"a.yaml:2:1 malformed-yaml"}},
		"a list in place of a map":             {include: "./a.yaml, ./b.yaml", files: map[string]string{"a.yaml": "- a\n", "b.yaml": "inputs: [a]\n"}, want: []string{"a.yaml:1:1 wrong-type: inputs", "b.yaml:1:9 wrong-type"}},
		"a control character":                  {include: "./a.yaml", files: map[string]string{"a.yaml": "inputs:\n  a: {description: \"x\\ey\"}\n"}, want: []string{"a.yaml:2:20 control-character"}},
		"a missing file, an empty pattern":     {include: "./a.yaml, ./parts/*.yaml", want: []string{"app.yaml:3:11 missing-include", "app.yaml:3:21 missing-include"}},
		"no file out of the folder":            {include: "../a.yaml, /etc/passwd, 'https://x/y', ./app.yaml, '[', 3", want: []string{"app.yaml:3:11 invalid-include: leaves", "app.yaml:3:22 invalid-include", "app.yaml:3:35 invalid-include: a local file", "app.yaml:3:50 invalid-include: itself", "app.yaml:3:62 invalid-include: pattern", "app.yaml:3:67 wrong-type"}},
		"no link out of the folder":            {include: "./a.yaml", link: [2]string{"a.yaml", "/etc/passwd"}, want: []string{"app.yaml:3:11 missing-include: leaves the app's folder"}},
		"files that are larger than the limit": {include: "./a.yaml, ./b.yaml", files: map[string]string{"a.yaml": strings.Repeat("#", appspec.MaxFileSize/2), "b.yaml": strings.Repeat("#", appspec.MaxFileSize/2)}, want: []string{"app.yaml:3:21 file-too-large"}},
	} {
		t.Run(consequence, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, test.files)
			write(t, dir, map[string]string{"web/run": "#!/bin/sh\n", "app.yaml": wrap("include: [" + test.include + "]\ncomponents:\n  web: {type: script, source: web}\n")})
			if err := os.Chmod(filepath.Join(dir, "web/run"), 0o755); err != nil {
				t.Fatal(err)
			}
			if test.link[0] != "" {
				if err := os.Symlink(test.link[1], filepath.Join(dir, test.link[0])); err != nil {
					t.Fatal(err)
				}
			}
			for name, fsys := range both(t, dir) {
				_, problems := appspec.Load(fsys)
				for i, p := range problems {
					if i < len(test.want) {
						where, text, _ := strings.Cut(test.want[i], ": ")
						if got := fmt.Sprintf("%s:%d:%d %s", p.File, p.Line, p.Column, p.Code); got == where && strings.Contains(p.Message+" "+p.Hint, text) {
							continue
						}
					}
					t.Errorf("%s: problem %d: %v", name, i, p)
				}
				if len(problems) != len(test.want) {
					t.Errorf("%s: got %d problems, want %q", name, len(problems), test.want)
				}
			}
		})
	}
}
