// Command deploy brings the control plane into the AWS account of the
// credentials, with all that customers install from, and logs the CLI in. It says
// first what it is about to do; with -dry-run it does no more. `make deploy` runs
// it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/tools/deployment"
)

func main() {
	var o deployment.Options
	var region, customers, without string
	flag.StringVar(&o.Stage, "stage", "prod", "part of every name: two stages share an account")
	flag.StringVar(&region, "region", "", "default: that of the credentials' profile")
	flag.StringVar(&o.Account, "account", "", "deploy to this account and to no other")
	flag.StringVar(&customers, "customers", "", "accounts, separated by commas, that may read the runner's image and template, beside those that may already")
	flag.StringVar(&without, "without", "", "accounts, separated by commas, that may no longer")
	flag.StringVar(&o.Operator, "operator", "operator", "name of the token that the CLI logs in with")
	flag.StringVar(&o.BuildRunner, "build-runner", "", "name of a runner of your own beside the control plane; none takes it away; default: as it is")
	flag.StringVar(&o.Version, "version", "dev", "version that the runner reports")
	flag.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	flag.BoolVar(&o.Yes, "yes", false, "do not ask before permissions grow")
	flag.Parse()
	o.Customers, o.Without = words(customers), words(without)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, region, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func run(ctx context.Context, region string, o deployment.Options) error {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	d := deployment.Deployment{Options: o, Config: cfg, Root: root, Run: start, Out: os.Stdout}
	return d.Do(ctx)
}

// start runs a program. What it says besides its result goes to the terminal.
func start(ctx context.Context, c deployment.Command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Folder, append(os.Environ(), c.Env...)
	// The terminal has interrupted it, too; the CDK says what it leaves behind.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 30*time.Second
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.Stdin), &out, os.Stderr
	if c.Interactive {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	}
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) && c.Args[0] == "npx" {
		return nil, fmt.Errorf("the CDK needs Node, whose npx is not on the PATH: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", strings.Join(c.Args, " "), err)
	}
	return out.Bytes(), nil
}
