package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestTutorialsRun follows each page of docs/tutorial on one machine. It writes the files
// that the page shows, runs each command, and compares the output with the page.
//
// A block that begins with "# FILE" has the text of FILE. A line of output may
// differ in identifiers, digests, fingerprints of keys, times and the width of columns. "…" stands for any
// number of lines. If a command prints another identifier than the page shows, the test
// uses the printed identifier in later commands. If the page shows a line that begins
// with "Error:", the command must fail. Otherwise, it must succeed.
func TestTutorialsRun(t *testing.T) {
	found, err := filepath.Glob("../../docs/tutorial/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if tutorials[filepath.Base(name)] == 0 {
			t.Errorf("no test follows %s", name)
		}
	}
	tool := toolOrSkip(t)
	for name, least := range tutorials {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("../../docs/tutorial/" + name)
			if err != nil {
				t.Fatal(err)
			}
			p := params("")
			p.Dir, p.UpdateScripts = t.TempDir(), false
			flags := "" // the flags of `fairlead dev` in the page
			if m := regexp.MustCompile(`(?m)^\$ fairlead dev (.*)$`).FindSubmatch(text); m != nil {
				flags = string(m[1])
			}
			script := "exec fairlead dev --quiet --listen 127.0.0.1:0 --ready-file ready.json " + flags + " &dev&\nready ready.json\npage\nkill -INT dev\nwait dev\n"
			if err := os.WriteFile(filepath.Join(p.Dir, "page.txtar"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			p.Cmds["ready"] = ready
			p.Cmds["page"] = func(ts *testscript.TestScript, _ bool, _ []string) {
				if ran := follow(ts, string(text)); ran < least {
					ts.Fatalf("the page has %d commands, want %d", ran, least)
				}
			}
			setup := p.Setup
			p.Setup = func(env *testscript.Env) error {
				env.Setenv("FAIRLEAD_TOFU", tool)
				if err := os.CopyFS(filepath.Join(env.WorkDir, "examples"), os.DirFS("../../examples")); err != nil {
					return err
				}
				err := setup(env)
				env.Setenv("FAIRLEAD_SHARED_PROCESS", "false") // as a newcomer has it
				return err
			}
			testscript.Run(t, p)
		})
	}
}

// tutorials has the pages that the test follows, with the minimum number of commands.
var tutorials = map[string]int{"1-first-deployment.md": 10, "2-your-own-app.md": 14, "3-first-customer-on-aws.md": 4, "4-runner-in-kubernetes.md": 3}

var (
	fence      = regexp.MustCompile("(?sm)^```(\\w+)\n(.*?)^```$")
	fileName   = regexp.MustCompile(`^# (\S+\.\w+)\n`)
	prepares   = regexp.MustCompile(`^(git clone .*|cd fairlead|make (demo|dev)|export (PATH|FAIRLEAD_TOFU)=.*|fairlead dev .*)$`)
	sets       = regexp.MustCompile(`^export (\w+)=(\S+)$`)
	identifier = regexp.MustCompile(`\b(dep|job|ver|ins|run)_[0-9a-z]+`)
	// varies matches text of a line that differs between two runs.
	varies = regexp.MustCompile(`\b(dep|job|ver|ins|run)_[0-9a-z]+|\b20\d\d-\d\d-\d\dT[0-9:]+Z|\bSHA256:[0-9A-Za-z+/]{43}|[0-9.]+ s\b| +`)
)

// follow runs the page and returns the number of commands that ran.
func follow(ts *testscript.TestScript, page string) (ran int) {
	actual := map[string]string{} // identifier of the page → identifier of this run
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if m := fileName.FindStringSubmatch(block[2]); m != nil {
			file := ts.MkAbs(m[1])
			ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
			ts.Check(os.WriteFile(file, []byte(strings.TrimPrefix(block[2], m[0])), 0o600))
			continue
		}
		if block[1] != "console" {
			continue
		}
		for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
			command, shown, _ := strings.Cut(part, "\n")
			command, _, _ = strings.Cut(command, "  # ")
			if command = strings.TrimSpace(command); prepares.MatchString(command) {
				continue
			}
			ran++
			if m := sets.FindStringSubmatch(command); m != nil {
				ts.Setenv(m[1], m[2])
				continue
			}
			command = identifier.ReplaceAllStringFunc(command, func(id string) string {
				if known := actual[id]; known != "" {
					return known
				}
				return id
			})
			err := ts.Exec("sh", "-c", command+" 2>&1")
			got := ts.ReadFile("stdout")
			fails := strings.HasPrefix(shown, "Error:") || strings.Contains(shown, "\nError:")
			if (err != nil) != fails {
				ts.Fatalf("%s: the error is %v, and the page shows an error: %t\n%s", command, err, fails, got)
			}
			if err := shows(got, shown, actual); err != nil {
				ts.Fatalf("%s: %v\n%s", command, err, got)
			}
		}
	}
	return ran
}

// shows returns an error if got does not have the lines of shown, in the same order. For
// each identifier in shown, it adds the printed identifier to the map actual.
func shows(got, shown string, actual map[string]string) error {
	lines := strings.Split(strings.TrimSpace(got), "\n")
	gap, any := false, false
	at := 0
	for _, want := range strings.Split(strings.TrimSpace(shown), "\n") {
		if want == "" {
			continue
		}
		any = true
		if strings.HasSuffix(want, "…") && strings.Trim(want, "… │") == "" {
			gap = true
			continue
		}
		var ids []string
		pattern, last := "^", 0
		for _, m := range varies.FindAllStringIndex(want, -1) {
			pattern += literal(want[last:m[0]])
			token := want[m[0]:m[1]]
			last = m[1]
			switch {
			case strings.TrimSpace(token) == "":
				pattern += " +"
			case identifier.MatchString(token):
				ids = append(ids, token)
				pattern += `(` + identifier.String() + `)`
			case strings.HasSuffix(token, " s"):
				pattern += `[0-9.]+ s`
			case strings.HasPrefix(token, "SHA256:"):
				pattern += `SHA256:[0-9A-Za-z+/]{43}`
			default:
				pattern += `20\S+Z`
			}
		}
		line := regexp.MustCompile(pattern + literal(want[last:]) + " *$")
		for found := false; !found; at++ {
			if at == len(lines) {
				return fmt.Errorf("the page shows %q, which was not printed there", want)
			}
			m := line.FindStringSubmatch(lines[at])
			if found = m != nil; found {
				for i, id := range ids {
					actual[id] = m[1+2*i]
				}
			} else if !gap && strings.TrimSpace(lines[at]) != "" {
				return fmt.Errorf("the page shows %q, and %q was printed", want, lines[at])
			}
		}
		gap = false
	}
	if any && !gap && at < len(lines) {
		return fmt.Errorf("the page does not show %q", lines[at])
	}
	return nil
}

// literal returns a regular expression for the text. A "…" in the text matches any text.
func literal(text string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*")
}
