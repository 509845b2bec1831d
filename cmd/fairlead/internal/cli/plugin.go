package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/conformance"
)

func (c *cli) plugin() *cobra.Command {
	return noun("plugin", "Test and publish plugins", "A plugin is a program that plans, applies and destroys the components of a type. A\ncomponent of type plugin has its plugin in its folder, or in an OCI registry.",
		c.pluginTest(), c.pluginPush())
}

// exitPluginFailed is the exit code of a plugin that does not conform.
const exitPluginFailed = exitUnexpected

func (c *cli) pluginTest() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "test PROGRAM", Short: "Check that a program keeps the protocol of plugins",
		Long: `Runs the conformance suite of plugins with PROGRAM, on this machine. The suite plans,
applies and destroys what the spec describes, also halfway and twice: use a spec of
something that nothing else uses. It calls no control plane. Exit code 1: a check failed.

The spec is a YAML or JSON file with the fields type, source, vars, secrets (sensitive
variables), options, pass_env (names of environment variables), grace_seconds and
timeout_seconds. In values, ${folder} is an empty folder that the suite removes.`,
		Example: `  fairlead plugin test greeting/plugin --spec test.yaml
  fairlead plugin test ./plugin --json | jq '.checks[] | select(.result == "failed")'`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := c.pluginSpec(file)
			if err != nil {
				return err
			}
			report, err := conformance.Run(cmd.Context(), args[0], spec, os.Environ())
			if bad, ok := errors.AsType[*conformance.StartError](err); ok {
				return usage("Name an executable file that runs on this machine.", "%v", bad)
			}
			if err != nil {
				return err
			}
			if err := c.print(view.PluginReport(report)); err != nil {
				return err
			}
			if !report.Passed {
				return &failure{code: exitPluginFailed} // the printed report has the failed checks
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "spec", "", "read what the suite deploys from this YAML or JSON `FILE`; - means the standard input")
	return cmd
}

// pluginSpec reads the spec of the suite.
func (c *cli) pluginSpec(file string) (spec conformance.Spec, err error) {
	if file == "" {
		return spec, nil
	}
	data, err := c.readFile(file, "spec", maxInputFile)
	if err != nil {
		return spec, err
	}
	values, err := parseInputs(data)
	var encoded []byte
	if err == nil {
		encoded, err = json.Marshal(values)
	}
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(encoded))
		dec.DisallowUnknownFields()
		err = dec.Decode(&spec)
	}
	if err != nil {
		return spec, usage("Its fields are: type, source, vars, secrets, options, pass_env, grace_seconds, timeout_seconds.", "the spec %s is not valid: %v", file, err)
	}
	if len(spec.Options) > 0 && !bytes.HasPrefix(spec.Options, []byte("{")) {
		return spec, usage("", "the spec %s is not valid: options must be a map", file)
	}
	return spec, nil
}
