package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
)

// exitCodesTopic is `fairlead help exit-codes`.
func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command ends with one of these exit codes:\n\n")
	for _, e := range exitCodes() {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	b.WriteString(`
With --json, the last line of the standard error is the problem document
(RFC 9457) of a command that did not succeed; its "type" is stable, and finer
than the exit code.`)
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}

// environmentTopic is `fairlead help environment`.
func environmentTopic() *cobra.Command {
	return &cobra.Command{Use: "environment", Short: "How the CLI finds the control plane and the token", Long: fmt.Sprintf(`The control plane's URL comes from the first of these that is set:

  --url
  $%s
  the login: config.json in $%s, else in the folder "fairlead"
  of the user's configuration folder

The token comes from the first of these that is set:

  --token-file FILE
  $%s
  $%s, the path of a file
  the login, if it is for this URL

'fairlead login' writes the login, and so does 'fairlead dev' unless you are
logged in to another machine. Tokens are never arguments, because other users
of a machine can read those.

$%s names a file as --ca-file does, and $%s=true
allows what --allow-plain-http does.

$NO_COLOR, if not empty, switches colours off.`,
		profile.EnvURL, profile.EnvConfigDir, profile.EnvToken, profile.EnvTokenFile, profile.EnvCAFile, profile.EnvPlainHTTP)}
}

// usageTemplate is cobra's, without the line that repeats a command which only
// holds others, and with the flags of every command kept short.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{if eq (len .Groups) 0}}

Commands:{{range $cmds}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{else}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}

Also:{{range $cmds}}{{if (and (eq .GroupID "") .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

More help:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{$.CommandPath}} help {{rpad .Name .NamePadding}}  {{.Short}}{{end}}{{end}}{{end}}
`
