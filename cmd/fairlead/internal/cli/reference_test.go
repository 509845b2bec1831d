package cli

import (
	"bytes"
	"strings"
	"testing"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/tools/page"
)

// commandPage is the text of docs/reference/cli.md.
var commandPage = template.Must(template.New("").Funcs(template.FuncMap{"cell": cell}).Parse(`# Commands

This page is generated from the help of each command. ` + "`fairlead COMMAND --help`" + ` prints the same texts.
[json.md](json.md) describes what ` + "`--json`" + ` prints.

## Flags of every command
{{template "flags" .Global}}
{{- range .Commands}}
## {{.Path}}

{{.Short}}.
{{if .Long}}
` + "```text" + `
{{.Long}}
` + "```" + `
{{end}}{{if .Use}}
` + "```text" + `
{{.Use}}
` + "```" + `
{{end}}{{if .Example}}
` + "```sh" + `
{{.Example}}
` + "```" + `
{{end}}{{if .Sub}}
| command | |
|---|---|
{{range .Sub}}| [` + "`{{.Path}}`" + `](#{{.Anchor}}) | {{cell .Short}} |
{{end}}{{end}}{{template "flags" .Flags}}
{{- end}}
{{- define "flags"}}{{if .}}
| flag | default | |
|---|---|---|
{{range .}}| ` + "`{{.Name}}`" + ` | {{if .Default}}` + "`{{.Default}}`" + `{{end}} | {{cell .Usage}} |
{{end}}{{end}}{{end}}`))

// cell returns a text that can stand in a cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(s)
}

type commandEntry struct {
	Path, Anchor, Short, Long, Use, Example string
	Sub                                     []commandEntry
	Flags                                   []flagEntry
}

type flagEntry struct{ Name, Default, Usage string }

func flagEntries(set *pflag.FlagSet) (entries []flagEntry) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		placeholder, usage := pflag.UnquoteUsage(f)
		e := flagEntry{Name: strings.TrimSpace("--" + f.Name + " " + placeholder), Default: f.DefValue, Usage: usage}
		if f.Shorthand != "" {
			e.Name = "-" + f.Shorthand + ", " + e.Name
		}
		if e.Default == "false" || e.Default == "[]" {
			e.Default = ""
		}
		entries = append(entries, e)
	})
	return entries
}

func entryOf(cmd *cobra.Command) commandEntry {
	e := commandEntry{Path: cmd.CommandPath(), Anchor: strings.ReplaceAll(cmd.CommandPath(), " ", "-"), Short: cmd.Short, Long: cmd.Long}
	if !cmd.HasSubCommands() && cmd.Runnable() {
		e.Use = cmd.UseLine()
	}
	for i, line := range strings.Split(cmd.Example, "\n") {
		if i > 0 {
			e.Example += "\n"
		}
		e.Example += strings.TrimPrefix(line, "  ")
	}
	return e
}

// TestCommandPageIsWhatTheHelpShows generates docs/reference/cli.md.
func TestCommandPageIsWhatTheHelpShows(t *testing.T) {
	c := &cli{env: Env{Getenv: func(string) string { return "" }}}
	root := c.root()
	c.finish(root)
	data := struct {
		Global   []flagEntry
		Commands []commandEntry
	}{Global: flagEntries(root.PersistentFlags())}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		e := entryOf(cmd)
		if cmd != root {
			e.Flags = flagEntries(cmd.LocalNonPersistentFlags())
		}
		for _, sub := range cmd.Commands() {
			e.Sub = append(e.Sub, entryOf(sub))
		}
		data.Commands = append(data.Commands, e)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	var out bytes.Buffer
	if err := commandPage.Execute(&out, data); err != nil {
		t.Fatal(err)
	}
	page.HoldFile(t, "docs/reference/cli.md", append(bytes.TrimRight(out.Bytes(), "\n"), '\n'))
}
