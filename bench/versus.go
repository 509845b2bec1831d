package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/tools/pinned"
)

// clientPrograms returns the clients with which components are compared. The module tools/clients pins them.
func clientPrograms() pinned.Programs {
	return pinned.Programs{
		Folder: "clients-helm-v4.3.1-kubectl-v1.37.1-regctl-v0.11.7", Module: "clients",
		Packages: map[string]string{
			"helm":    "helm.sh/helm/v4/cmd/helm",
			"kubectl": "k8s.io/kubernetes/cmd/kubectl",
			"regctl":  "github.com/regclient/regclient/cmd/regctl",
		},
	}
}

// allowedMS is the time that a deployment of a chart or of objects may take beyond its client, also if it is more than a fifth of
// the client's time.
const allowedMS = 150

// versus compares the deployments of an app that has one component with a client.
type versus struct {
	figure  string            // the app's name, and the first part of the figures' names
	files   map[string]string // of the app
	client  string            // path of the client
	env     []string          // of the client
	prepare func(namespace string) error
	args    func(folder, namespace string) (preview, change []string) // of the client
}

// measure deploys the app to new installs, and lets the client do the same in new namespaces, in turn. The client also previews the
// change, because a deployment plans before it applies.
func (v versus) measure(ctx context.Context, p *plane) error {
	b := p.b
	folder, err := b.writeApp(v.figure, v.files)
	if err != nil {
		return err
	}
	if err := p.publish(ctx, folder); err != nil {
		return err
	}
	var ours, bare, alone, ratio []float64
	for i := range 1 + b.counts.clusterRounds {
		preview, change, err := v.bareRun(ctx, b, folder, fmt.Sprintf("%s-bare-%d", v.figure, i))
		if err != nil {
			return err
		}
		install := fmt.Sprintf("%s-ours-%d", v.figure, i)
		if err := v.prepare(install); err != nil {
			return err
		}
		d, err := deployApp(ctx, p, v.figure, install, "local")
		if err != nil {
			return err
		}
		if i == 0 {
			continue // the first round loads the programs from disk, and fills the caches of the clients
		}
		both := ms(preview + change)
		ours, bare, alone = append(ours, ms(d.took())), append(bare, both), append(alone, ms(change))
		ratio = append(ratio, ms(d.took())/max(1.2*both, both+allowedMS))
	}
	b.set(v.figure+"_ms", median(ours))
	b.set(v.figure+"_bare_ms", median(bare))
	b.set(v.figure+"_alone_ms", median(alone))
	b.set(v.figure+"_limit_ratio", median(ratio))
	return nil
}

// bareRun runs the client in a new namespace, and returns the times of the preview and of the change.
func (v versus) bareRun(ctx context.Context, b *bench, folder, namespace string) (preview, change time.Duration, err error) {
	if err := v.prepare(namespace); err != nil {
		return 0, 0, err
	}
	first, second := v.args(folder, namespace)
	if preview, err = b.clientRun(ctx, v.client, v.env, first...); err != nil {
		return 0, 0, err
	}
	change, err = b.clientRun(ctx, v.client, v.env, second...)
	return preview, change, err
}

// clientRun runs a client and returns the time that it took.
func (b *bench) clientRun(ctx context.Context, path string, env []string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(environ(), "HOME="+b.work), env...)
	began := time.Now()
	err := runCommand(cmd)
	return time.Since(began), err
}

// writeApp writes the files of an app, and returns its folder.
func (b *bench) writeApp(name string, files map[string]string) (string, error) {
	folder := filepath.Join(b.work, "app-"+name)
	for file, text := range files {
		path := filepath.Join(folder, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return "", err
		}
	}
	return folder, nil
}
