package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The graph: scripts that each take scriptTime, in chains of which graphWidth run at the same time.
const (
	graphScripts = 30
	graphWidth   = 8
	scriptTime   = 2 * time.Second
)

// measureGraph deploys an app of many scripts and compares the time with that of the longest chain of scripts. Then it deploys
// the app again, of which nothing has changed.
func measureGraph(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "graph")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", graphWidth, b.tool); err != nil {
		return err
	}
	app, err := writeGraph(b)
	if err != nil {
		return err
	}
	if err := p.publish(ctx, app); err != nil {
		return err
	}
	longest := time.Duration((graphScripts+graphWidth-1)/graphWidth) * scriptTime
	var ratio, unchanged []float64
	for round := range b.counts.graphRounds {
		name := fmt.Sprintf("graph-%d", round)
		if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: name, App: "graph"}); err != nil {
			return err
		}
		began := time.Now()
		if err := deployAPI(ctx, p.Client, name); err != nil {
			return err
		}
		took := time.Since(began)
		again, err := deployUnchanged(ctx, p, name)
		if err != nil {
			return err
		}
		b.note("%d scripts %.2f s, the longest chain %.0f s; again without changes %.0f ms", graphScripts, took.Seconds(), longest.Seconds(), again.Seconds()*1000)
		ratio, unchanged = append(ratio, took.Seconds()/longest.Seconds()), append(unchanged, again.Seconds()*1000)
	}
	b.set("graph30_ratio", median(ratio))
	b.set("unchanged30_ms", median(unchanged))
	return nil
}

// deployUnchanged deploys an install of which nothing has changed. It returns an error if a component has a job.
func deployUnchanged(ctx context.Context, p *plane, install string) (time.Duration, error) {
	began := time.Now()
	d, err := p.CreateDeployment(ctx, install, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
	for err == nil && !d.Done() {
		d, err = p.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
	}
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if d.State != "succeeded" || len(d.Components) != graphScripts {
		return 0, fmt.Errorf("deployment %s is %s with %d components, want succeeded with %d: %s", d.ID, d.State, len(d.Components), graphScripts, d.Message)
	}
	for _, c := range d.Components {
		if c.State != "unchanged" || c.PlanJob != "" || c.Job != "" {
			return 0, fmt.Errorf("component %s of deployment %s is %s with the jobs %q and %q, want unchanged without a job", c.Name, d.ID, c.State, c.PlanJob, c.Job)
		}
	}
	return took, nil
}

// writeGraph writes the app, and returns its folder.
func writeGraph(b *bench) (string, error) {
	var app strings.Builder
	app.WriteString("fairlead: v1\nname: graph\ncomponents:\n")
	for i := range graphScripts {
		fmt.Fprintf(&app, "  s%02d: {type: script, source: ./script", i)
		if i >= graphWidth {
			fmt.Fprintf(&app, ", depends_on: [s%02d]", i-graphWidth)
		}
		app.WriteString("}\n")
	}
	return writeScriptApp(b, "graph", app.String(), fmt.Sprintf("exec sleep %d\n", int(scriptTime.Seconds())))
}

// writeScriptApp writes an app whose components all run one shell script, the source ./script, and returns its folder.
func writeScriptApp(b *bench, name, app, script string) (string, error) {
	folder := filepath.Join(b.work, name)
	if err := os.MkdirAll(filepath.Join(folder, "script"), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "script", "run"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, "app.yaml"), []byte(app), 0o644)
}
