package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// tick is the text before the time in a line of the app "ticker".
const tick = "tick="

// measureLog measures the time from the write of a log line, by a child process of the
// tool, until a reader that long-polls the log API receives it.
func measureLog(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "log")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", 0, b.tool); err != nil {
		return err
	}
	if err := p.publish(ctx, b.path("bench/apps/ticker")); err != nil {
		return err
	}
	var took []float64
	for i := range b.counts.logRuns {
		some, err := followTicks(ctx, p, fmt.Sprintf("ticker-%d", i))
		if err != nil {
			return err
		}
		took = append(took, some...)
	}
	if len(took) < 30*b.counts.logRuns {
		return fmt.Errorf("only %d lines arrived, want at least %d", len(took), 30*b.counts.logRuns)
	}
	b.set("log_ms_p50", quantile(took, 0.5))
	b.set("log_ms_p95", quantile(took, 0.95))
	return nil
}

// followTicks deploys an install of "ticker" and returns the age of each line at its
// arrival, in milliseconds.
func followTicks(ctx context.Context, p *plane, install string) ([]float64, error) {
	if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: install, App: "ticker"}); err != nil {
		return nil, err
	}
	job, err := p.apply(ctx, install)
	if err != nil {
		return nil, err
	}
	var took []float64
	var line []byte
	for epoch, offset := int64(0), int64(0); ; {
		chunk, err := p.ReadJobLog(ctx, job, epoch, offset, 20*time.Second)
		now := time.Now()
		if err != nil {
			return nil, err
		}
		if chunk.Done {
			return took, nil
		}
		epoch, offset = chunk.Epoch, chunk.Next
		line = append(line, chunk.Data...)
		for {
			whole, rest, ok := bytes.Cut(line, []byte("\n"))
			if !ok {
				break
			}
			line = rest
			if at, ok := tickOf(whole); ok {
				took = append(took, ms(now.Sub(at)))
			}
		}
	}
}

// apply deploys an install with one component. It returns the component's apply job as
// soon as the job exists.
func (p *plane) apply(ctx context.Context, install string) (job string, err error) {
	d, err := p.CreateDeployment(ctx, install, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	for err == nil && !d.Done() && d.Components[0].Job == "" {
		d, err = p.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
	}
	if err == nil && d.Components[0].Job == "" {
		err = fmt.Errorf("deployment %s %s without an apply job", d.ID, d.State)
	}
	if err != nil {
		return "", err
	}
	return d.Components[0].Job, nil
}

// tickOf returns the time in a line, or false for a line without a time. For example, the
// tool prints the text of the command, which has no time.
func tickOf(line []byte) (time.Time, bool) {
	_, after, ok := bytes.Cut(line, []byte(tick))
	if !ok {
		return time.Time{}, false
	}
	digits := after
	for i, c := range after {
		if c < '0' || c > '9' {
			digits = after[:i]
			break
		}
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, n), err == nil
}
