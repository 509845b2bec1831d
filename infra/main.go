// Command infra synthesizes Fairlead's CloudFormation stacks: the vendor's control plane,
// and the runner stack that customers install. With the context spare=true it synthesizes
// instead the stack that keeps copies of the control plane in another Region.
//
// `cdk deploy` and `make synth` run it. `make synth` needs Node but no AWS account.
// The context in cdk.json has the settings of a deployment.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/runnerstack"
)

func main() {
	code := 0
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "infra:", err)
		code = 1
	}
	jsii.Close()
	os.Exit(code)
}

func run() error {
	app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false)})
	props, err := control.FromContext(func(key string) string {
		value, _ := app.Node().TryGetContext(jsii.String(key)).(string)
		return value
	})
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	if props.Spare {
		// It is an app of its own. A plain `cdk deploy` deploys the only stack of its app: the control plane's.
		if _, err := control.NewSpare(app, props); err != nil {
			return err
		}
		app.Synth(nil)
		return nil
	}
	if err := buildFunctions(props.Functions); err != nil {
		return err
	}
	template, err := publishable()
	if err != nil {
		return fmt.Errorf("runner stack: %w", err)
	}
	if _, err := control.New(app, props); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*app.Synth(nil).Directory(), runnerstack.ID+".yaml"), template, 0o644)
}

// buildFunctions builds the functions if the folder lacks one of them, so that a CDK
// command works in a fresh clone. It does not replace builds: `make functions` does.
func buildFunctions(folder string) error {
	if !slices.ContainsFunc(control.Functions, func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name, "bootstrap"))
		return errors.Is(err, fs.ErrNotExist)
	}) {
		return nil
	}
	fmt.Fprintf(os.Stderr, "infra: %s lacks functions; building them, which takes minutes the first time\n", folder)
	build := exec.Command("go", "run", "./tools/functions", "-out", folder)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr // standard output belongs to the CDK
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the functions: %w", err)
	}
	return nil
}

// publishable returns the runner stack's template as customers get it. The template
// has its own CDK app for two reasons: the control plane's stack contains the
// template's digest, and this command does not deploy the template.
func publishable() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fairlead-runner-stack-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the folder is small
	app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), Outdir: jsii.String(dir), AutoSynth: jsii.Bool(false)})
	if _, err := runnerstack.New(app); err != nil {
		return nil, err
	}
	app.Synth(nil)
	synthesized, err := os.ReadFile(filepath.Join(dir, runnerstack.ID+".template.json"))
	if err != nil {
		return nil, err
	}
	return runnerstack.Publish(synthesized)
}
