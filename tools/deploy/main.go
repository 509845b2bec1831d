// Command deploy deploys the control plane to the AWS account of the credentials,
// publishes the image and the template for customers, and logs the CLI in. It prints
// the steps first. With -dry-run it prints the steps and exits. `make deploy` runs it.
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
	flag.StringVar(&o.Stage, "stage", "prod", "part of every name, so that one account can have several stages")
	flag.StringVar(&region, "region", "", "AWS region; default: the region of the credentials' profile")
	flag.StringVar(&o.Account, "account", "", "deploy only to this account")
	flag.StringVar(&customers, "customers", "", "accounts to add to those that may read the runner's image and template, separated by commas; any: every AWS account")
	flag.StringVar(&without, "without", "", "accounts to remove from them, separated by commas")
	flag.StringVar(&o.Operator, "operator", "operator", "name of the token that the CLI logs in with")
	flag.StringVar(&o.BuildRunner, "build-runner", "", `name of your own runner beside the control plane; "none" removes it; default: keep the current one`)
	flag.StringVar(&o.DirectLaunch, "direct-launch", "", "on: run agents beside the control plane that start jobs in customers' clusters; off: remove them; default: keep as it is")
	flag.StringVar(&o.AlarmEmail, "alarm-email", "", `mail address that gets alarms; "none" removes it; default: keep the current one`)
	flag.StringVar(&o.Budget, "monthly-budget", "", `US dollars a month that the account may cost before an alarm; "none" removes the alarm; default: keep the current amount`)
	flag.StringVar(&o.SignsWith, "signs-with", "", "key that signs job specs: First, Spare if the first is lost, or the ARN of a key in KMS after a rotation; default: keep the current one")
	flag.StringVar(&o.Table, "table", "", "restored table that `fairlead ops restore` has prepared; \"none\": the stack's own; default: keep the current one")
	flag.StringVar(&o.SpareRegion, "spare-region", "", `region that gets copies for the loss of this one; "none" ends the copies; default: keep the current one`)
	flag.StringVar(&o.Version, "version", "dev", "version that the runner reports")
	flag.BoolVar(&o.NoShell, "no-shell", false, "do not publish the runner's image with a shell and git beside the one without")
	flag.BoolVar(&o.AllAtOnce, "all-at-once", false, "give all invocations to the new functions at once, without a canary: for a fix while the alarm APIErrors is on")
	flag.BoolVar(&o.IgnorePolicies, "ignore-policies", false, "deploy although IAM's simulation finds actions that a service control policy forbids")
	flag.BoolVar(&o.DryRun, "dry-run", false, "print the steps and do nothing")
	flag.BoolVar(&o.Yes, "yes", false, "do not ask before permissions are added")
	flag.Parse()
	o.Customers, o.Without = list(customers), list(without)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, region, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

// list splits a list at commas and spaces.
func list(s string) []string {
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

// start runs a program and returns its standard output. Its standard error goes to the
// terminal.
func start(ctx context.Context, c deployment.Command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Folder, append(os.Environ(), c.Env...)
	// On a cancel, interrupt the program and kill it after 30 s. In this time the CDK prints
	// what it leaves unfinished. At a terminal the program also gets Ctrl-C directly.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 30*time.Second
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.Stdin), &out, os.Stderr
	if c.Interactive {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	}
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) && c.Args[0] == "npx" {
		return nil, fmt.Errorf("the CDK needs npx of Node, which is not on the PATH: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", strings.Join(c.Args, " "), err)
	}
	return out.Bytes(), nil
}
