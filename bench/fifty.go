package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// fiftyComponents is how many components each of the large installs has.
const fiftyComponents = 10

// measureFifty deploys many installs at once on one runner, and one of a single component after them. It compares the times at which
// they end.
func measureFifty(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "fifty")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", graphWidth, b.tool); err != nil {
		return err
	}
	for name, components := range map[string]int{"fifty": fiftyComponents, "small": 1} {
		app, err := writeScripts(b, name, components)
		if err == nil {
			err = p.publish(ctx, app)
		}
		if err != nil {
			return err
		}
	}
	installs := map[string]string{"small": "small"} // the app of each install
	for i := range b.counts.fiftyInstalls {
		installs[fmt.Sprintf("fifty-%d", i)] = "fifty"
	}
	for name, app := range installs {
		if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: name, App: app}); err != nil {
			return err
		}
	}
	began := time.Now()
	var mu sync.Mutex
	var ends []float64
	g, waiting := errgroup.WithContext(ctx)
	deploy := func(name string, ended func(time.Duration)) error {
		d, err := p.CreateDeployment(ctx, name, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
		if err != nil {
			return err
		}
		asked := time.Now()
		g.Go(func() error {
			for err == nil && !d.Done() {
				d, err = p.WaitDeployment(waiting, d.ID, d.Revision, 20*time.Second)
			}
			if err == nil && d.State != "succeeded" {
				err = fmt.Errorf("deployment %s of install %s %s: %s", d.ID, name, d.State, d.Message)
			}
			ended(time.Since(asked))
			return err
		})
		return nil
	}
	for i := range b.counts.fiftyInstalls {
		if err := deploy(fmt.Sprintf("fifty-%d", i), func(time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, time.Since(began).Seconds())
		}); err != nil {
			return errors.Join(err, g.Wait())
		}
	}
	var small time.Duration
	err = deploy("small", func(took time.Duration) { small = took })
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	last := slices.Max(ends)
	b.note("%d deployments of %d components: the median ends after %.2f s, the last after %.2f s; one of one component %.2f s", len(ends), fiftyComponents, median(ends), last, small.Seconds())
	b.set("fifty_s", last)
	b.set("fifty_median_ratio", median(ends)/last)
	b.set("fifty_small_s", small.Seconds())
	return nil
}

// writeScripts writes an app of scripts that do nothing, and returns its folder.
func writeScripts(b *bench, name string, components int) (string, error) {
	var app strings.Builder
	fmt.Fprintf(&app, "fairlead: v1\nname: %s\ncomponents:\n", name)
	for i := range components {
		fmt.Fprintf(&app, "  s%02d: {type: script, source: ./script}\n", i)
	}
	return writeScriptApp(b, name, app.String(), "")
}
