package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/moto"
)

// providerQueues is the number of queues in the module of a cloud provider.
const providerQueues = 10

// measureProvider compares a deployment that plans an unchanged module of the provider hashicorp/aws again with the bare tool, which
// plans the same module on the same state. The provider's calls go to a server that is compatible with AWS.
func measureProvider(ctx context.Context, b *bench) (err error) {
	mirror, err := awsProvider(ctx, b)
	if err != nil {
		return err
	}
	server, err := moto.Program().Launch(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.Ready(); err != nil {
		return err
	}
	settings := filepath.Join(b.work, "provider.tofurc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		return err
	}
	p, err := startPlane(ctx, b, "provider")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startWith(ctx, "local", agentOptions{tool: b.tool, readable: []string{mirror}, env: []string{"FAIRLEAD_TF_CLI_CONFIG_FILE=" + settings}}); err != nil {
		return err
	}
	folder, err := b.writeApp("provider", map[string]string{
		"app.yaml":       "fairlead: v1\nname: provider\ncomponents:\n  queues: {type: terraform, source: ./queues, vars: {prefix: ours}}\n",
		"queues/main.tf": queuesModule(server.URL),
	})
	if err != nil {
		return err
	}
	if err := p.publish(ctx, folder); err != nil {
		return err
	}
	if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: "acme", App: "provider", Runner: "local"}); err != nil {
		return err
	}
	if err := runCommand(p.cli(ctx, "install", "deploy", "acme", "--auto-approve")); err != nil {
		return err
	}
	bare := bareModule{tool: b.tool, source: filepath.Join(folder, "queues"), env: append(environ(), "TF_CLI_CONFIG_FILE="+settings, "TF_VAR_prefix=bare")}
	first := filepath.Join(b.work, "provider-first")
	if err := bare.run(ctx, first, []string{"init", "-input=false"}, []string{"apply", "-input=false", "-auto-approve"}); err != nil {
		return err
	}
	var ours, alone, ratio []float64
	for i := range 1 + b.counts.providerRounds {
		began := time.Now()
		if err := runCommand(p.cli(ctx, "install", "deploy", "acme", "--refresh", "--auto-approve")); err != nil {
			return err
		}
		one := ms(time.Since(began))
		dir := filepath.Join(b.work, fmt.Sprintf("provider-%d", i))
		if err := bare.copyState(first, dir); err != nil {
			return err
		}
		began = time.Now()
		if err := bare.run(ctx, dir, []string{"init", "-input=false"}, []string{"plan", "-input=false", "-out=plan", "-detailed-exitcode"}); err != nil {
			return err
		}
		if i == 0 {
			continue // the first round loads the programs from disk
		}
		other := ms(time.Since(began))
		ours, alone, ratio = append(ours, one), append(alone, other), append(ratio, one/other)
	}
	b.set("refresh_ms", median(ours))
	b.set("refresh_bare_ms", median(alone))
	b.set("refresh_ratio", median(ratio))
	return nil
}

// awsProvider returns the mirror with the provider hashicorp/aws. It builds the provider if this machine does not have it.
func awsProvider(ctx context.Context, b *bench) (string, error) {
	if mirror := os.Getenv("FAIRLEAD_AWS_PROVIDER"); mirror != "" {
		return mirror, nil
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./tools/awsprovider")
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.root, &out, b.notes
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the provider hashicorp/aws: %w", err)
	}
	mirror := strings.TrimSpace(out.String())
	if mirror == "" {
		return "", errors.New("the source of the provider hashicorp/aws cannot be downloaded")
	}
	return mirror, nil
}

// queuesModule returns a module of queues on a server.
func queuesModule(server string) string {
	return fmt.Sprintf(`terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}
provider "aws" {
  region                      = "eu-central-1"
  access_key                  = "bench"
  secret_key                  = "bench"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  endpoints {
    sqs = %q
  }
}
variable "prefix" {
  type = string
}
resource "aws_sqs_queue" "q" {
  count = %d
  name  = "${var.prefix}-${count.index}"
}
`, server, providerQueues)
}

// bareModule is a module that the bare tool plans and applies.
type bareModule struct {
	tool, source string
	env          []string
}

// run runs commands of the tool in a folder with the module.
func (m bareModule) run(ctx context.Context, dir string, commands ...[]string) error {
	if err := os.CopyFS(dir, os.DirFS(m.source)); err != nil {
		return err
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, m.tool, append(args, "-no-color")...)
		cmd.Dir, cmd.Env = dir, m.env
		if err := runCommand(cmd); err != nil {
			return err
		}
	}
	return nil
}

// copyState creates a folder with the state of another one.
func (m bareModule) copyState(from, to string) error {
	const name = "terraform.tfstate"
	state, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(to, 0o755), os.WriteFile(filepath.Join(to, name), state, 0o600))
}
