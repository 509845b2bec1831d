// Command infra synthesizes Fairlead's two CloudFormation stacks: the
// vendor's control plane, and the runner stack that customers install.
//
// `cdk deploy` runs it; so does `make synth`, which needs Node and nothing of
// AWS. What may differ between deployments is in the context of cdk.json.
package main

import (
	"fmt"
	"os"
	"path/filepath"

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
	if _, err := control.New(app, props); err != nil {
		return err
	}
	if _, err := runnerstack.New(app); err != nil {
		return fmt.Errorf("runner stack: %w", err)
	}
	out := *app.Synth(nil).Directory()
	synthesized, err := os.ReadFile(filepath.Join(out, runnerstack.ID+".template.json"))
	if err != nil {
		return err
	}
	published, err := runnerstack.Publish(synthesized)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, runnerstack.ID+".json"), published, 0o644)
}
