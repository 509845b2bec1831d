package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
)

// exitCodesTopic returns the topic of `fairlead help exit-codes`.
func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command exits with one of these codes:\n\n")
	for _, e := range exitCodes() {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	b.WriteString(`
With --json, a command that does not succeed writes a problem document (RFC 9457)
as the last line of the standard error. The "type" of this document is stable and
more specific than the exit code.`)
	return &cobra.Command{Use: "exit-codes", Short: "List the exit codes", Long: b.String()}
}

// environmentTopic returns the topic of `fairlead help environment`.
func environmentTopic() *cobra.Command {
	return &cobra.Command{Use: "environment", Short: "Explain how the CLI finds the control plane and the token", Long: fmt.Sprintf(`The control plane's URL comes from the first of these that is set:

  --url
  $%s
  the login: config.json in $%s, or in the folder "fairlead" of the
  user's configuration folder

The token comes from the first of these that is set:

  --token-file FILE
  $%s
  $%s, the path of a file
  the login, if 'fairlead login' stored it for this URL

'fairlead login' stores the login. 'fairlead dev' also stores a login, unless you are
logged in to another machine. A token is never an argument, because other users of a
machine can read arguments.

$%s is the default of --ca-file. $%s=true
has the effect of --allow-plain-http.

A non-empty $NO_COLOR disables colours.`,
		profile.EnvURL, profile.EnvConfigDir, profile.EnvToken, profile.EnvTokenFile, profile.EnvCAFile, profile.EnvPlainHTTP)}
}

// usageTemplate is the template of cobra with two changes: a command that only has
// subcommands has one usage line, and the global flags have their own section.
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
