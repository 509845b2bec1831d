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

// tick begins the time in a line of the app "ticker".
const tick = "tick="

// measureLog times lines that a tool's child writes until a reader has them
// that long-polls the log through the API.
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
		return fmt.Errorf("%d lines have arrived, which is too few", len(took))
	}
	b.set("log_ms_p50", quantile(took, 0.5))
	b.set("log_ms_p95", quantile(took, 0.95))
	return nil
}

// followTicks deploys an install of "ticker" and returns how old each line was
// when it arrived, in milliseconds.
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

// apply deploys an install of one component and returns its apply job as soon
// as there is one.
func (p *plane) apply(ctx context.Context, install string) (job string, err error) {
	d, err := p.CreateDeployment(ctx, install, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
	for err == nil && !d.Done() && d.Components[0].Job == "" {
		d, err = p.WaitDeployment(ctx, d.ID, d.Revision, 20*time.Second)
	}
	if err == nil && d.Components[0].Job == "" {
		err = fmt.Errorf("deployment %s %s without an apply", d.ID, d.State)
	}
	if err != nil {
		return "", err
	}
	return d.Components[0].Job, nil
}

// tickOf returns the time that a line holds. The tool also prints the command
// itself, which holds none.
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
