package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// queueAtOnce is the number of concurrent steps, and of concurrent bare runs.
const queueAtOnce = 2

// measureQueue deploys many installs at once on one runner. It compares the time with the
// time of the same number of runs of the bare tool.
func measureQueue(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "queue")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", queueAtOnce, b.tool); err != nil {
		return err
	}
	if err := p.publish(ctx, b.path("examples/hello")); err != nil {
		return err
	}
	if _, err := deployRun(ctx, p, "first", "local"); err != nil {
		return err // this deployment only loads the tool
	}
	var bare, ours, ratio []float64
	for round := range b.counts.queueRounds {
		one, err := queueBare(ctx, b, round)
		if err != nil {
			return err
		}
		other, err := queueOurs(ctx, p, round)
		if err != nil {
			return err
		}
		b.note("%d deployments %.2f s, as many bare runs %.2f s", b.counts.queueInstalls, other.Seconds(), one.Seconds())
		bare, ours = append(bare, one.Seconds()), append(ours, other.Seconds())
		ratio = append(ratio, other.Seconds()/one.Seconds())
	}
	b.set("queue20_s", median(ours))
	b.set("queue20_bare_s", median(bare))
	b.set("queue20_ratio", median(ratio))
	return nil
}

func queueBare(ctx context.Context, b *bench, round int) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(queueAtOnce)
	began := time.Now()
	for i := range b.counts.queueInstalls {
		g.Go(func() error {
			_, _, err := bareRun(ctx, b, fmt.Sprintf("queue-%d-%d", round, i))
			return err
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

func queueOurs(ctx context.Context, p *plane, round int) (time.Duration, error) {
	var installs []string
	for i := range p.b.counts.queueInstalls {
		name := fmt.Sprintf("queue-%d-%d", round, i)
		if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: name, App: "hello"}); err != nil {
			return 0, err
		}
		installs = append(installs, name)
	}
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for _, name := range installs {
		g.Go(func() error { return deployAPI(ctx, p.Client, name) })
	}
	err := g.Wait()
	return time.Since(began), err
}

// deployAPI deploys an install through the API and waits until the deployment has ended.
// It returns an error unless the deployment succeeded.
func deployAPI(ctx context.Context, cl *client.Client, install string) error {
	d, err := cl.CreateDeployment(ctx, install, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	for err == nil && !d.Done() {
		d, err = cl.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
	}
	if err == nil && d.State != "succeeded" {
		err = fmt.Errorf("deployment %s of install %s %s: %s", d.ID, install, d.State, d.Message)
	}
	return err
}
