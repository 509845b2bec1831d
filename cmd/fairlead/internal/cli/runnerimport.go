package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/importer"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/safefile"
)

func (c *cli) runnerImport() *cobra.Command {
	var from, out string
	var settings []string
	sources := importer.Sources()
	names := slices.Sorted(maps.Keys(sources))
	cmd := &cobra.Command{
		Use: "import FILE --from PRODUCT", Short: "Convert another product's runner configuration",
		Long: `Converts the runner configuration of another product. Prints a configuration that
'fairlead runner create' accepts. The command does not call the control plane.

The standard error has a line for each setting of the file: whether the setting was
mapped, changed or dropped, and what to do next. A mapped setting has the same meaning
in Fairlead. If the file has an unknown setting, the command fails.

  humanitec   a runner of the Platform Orchestrator, as YAML or JSON: the file, the
              answer of the API, or the attributes of the Terraform resources
  tharsis     the environment file of a runner, as for docker run --env-file

If FILE is -, the command reads the standard input. The result contains the secrets of
the file. With --out the command writes the result to a file that only you can read.`,
		Example: `  fairlead runner import --from humanitec gke.yaml --out acme-gke.yaml
  fairlead runner import --from tharsis runner.env | fairlead runner create acme-eu -f -`,
		RunE: func(_ *cobra.Command, args []string) error {
			read, ok := sources[from]
			if !ok {
				return usage("The products are: "+strings.Join(names, ", ")+".", "--from %q is not supported", from)
			}
			src, err := c.readFile(args[0], "file", runnerspec.MaxFileSize)
			if err != nil {
				return err
			}
			r := read(args[0], src, settings)
			if r.Spec == nil {
				return invalidImport(r.Problems)
			}
			return c.printImport(args[0], out, r)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `PRODUCT`: "+strings.Join(names, " or ")+" (required)")
	cmd.Flags().StringVarP(&out, "out", "o", "", "write the configuration to this `FILE`")
	cmd.Flags().StringArrayVar(&settings, "set", nil, "set one field of the result: `path=value`; the value is YAML; can be repeated")
	c.must(cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func (c *cli) printImport(file, out string, r importer.Result) error {
	config, err := json.Marshal(r.Spec)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	for _, w := range r.Warnings {
		c.say("Warning: %s", w)
	}
	for _, n := range r.Notes {
		c.say("%s:%d: %s", file, n.Line, n)
	}
	if out == "" {
		return c.print(view.Configuration(config))
	}
	if err := safefile.Write(out, view.YAML(config), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	c.say("The configuration is in %s. `fairlead runner create %s -f %s` creates the runner.", out, cmp.Or(r.Spec.ID, "NAME"), out)
	return nil
}

// invalidImport returns the failure of a file that cannot be converted completely.
func invalidImport(problems runnerspec.Problems) error {
	p := local("invalid-import", "Invalid", "the file cannot be imported", "Nothing was written. Remove the settings below or set them with --set: an unknown setting cannot be dropped silently.")
	for _, pr := range problems {
		p.Errors = append(p.Errors, wire.FieldError{Location: fmt.Sprintf("%s:%d:%d", pr.File, pr.Line, pr.Column), Message: strings.TrimSpace(pr.Message + ". " + pr.Hint)})
	}
	return &failure{code: exitOfKind(fairlead.KindInvalid), problem: p}
}
