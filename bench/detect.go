package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// noticeFor is the longest time from the kill of a job's step until the job is lost. After
// this time the bench fails.
const noticeFor = 3 * time.Minute

// measureDetect kills steps and a whole host during an apply and measures the time until
// their jobs are lost.
func measureDetect(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "detect")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.publish(ctx, b.path("bench/apps/sleeper")); err != nil {
		return err
	}
	took, err := killSteps(ctx, b, p)
	if err != nil {
		return fmt.Errorf("dead step: %w", err)
	}
	b.set("dead_step_s_p50", quantile(took, 0.5))
	b.set("dead_step_s_max", quantile(took, 1))
	host, err := killHost(ctx, b, p)
	if err != nil {
		return fmt.Errorf("dead host: %w", err)
	}
	b.set("dead_host_s", host.Seconds())
	return nil
}

// killSteps kills steps with SIGKILL, one after the other. For each it returns the
// seconds until the API shows the job as lost.
func killSteps(ctx context.Context, b *bench, p *plane) ([]float64, error) {
	agent, err := p.startAgent(ctx, "local", 1, b.tool)
	if err != nil {
		return nil, err
	}
	var took []float64
	for i := range b.counts.deadSteps {
		job, err := p.applySleeper(ctx, "local", fmt.Sprintf("step-%d", i))
		if err != nil {
			return nil, err
		}
		if err := agent.sleeps(ctx, 1); err != nil {
			return nil, err
		}
		below, err := descendants(agent.pid())
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(below, func(d descendant) bool { return d.parent == agent.pid() })
		if n < 0 {
			return nil, fmt.Errorf("the agent has no step: %v", below)
		}
		if err := syscall.Kill(below[n].pid, syscall.SIGKILL); err != nil {
			return nil, fmt.Errorf("kill step: %w", err)
		}
		one, err := p.noticed(ctx, []string{job})
		if err != nil {
			return nil, err
		}
		took = append(took, one.Seconds())
	}
	return took, nil
}

// killHost kills an agent and all its descendants. It returns the time until the API shows
// the last of its jobs as lost.
func killHost(ctx context.Context, b *bench, p *plane) (time.Duration, error) {
	agent, err := p.startAgent(ctx, "host", b.counts.deadHostJobs, b.tool)
	if err != nil {
		return 0, err
	}
	var jobs []string
	for i := range b.counts.deadHostJobs {
		job, err := p.applySleeper(ctx, "host", fmt.Sprintf("host-%d", i))
		if err != nil {
			return 0, err
		}
		jobs = append(jobs, job)
	}
	if err := agent.sleeps(ctx, b.counts.deadHostJobs); err != nil {
		return 0, err
	}
	below, err := descendants(agent.pid())
	if err != nil {
		return 0, err
	}
	agent.kill() // first, because it must not report the death of its steps
	p.agents = slices.DeleteFunc(p.agents, func(a *process) bool { return a == agent })
	for _, d := range below {
		_ = syscall.Kill(d.pid, syscall.SIGKILL) // fails only if the descendant died with its parent
	}
	return p.noticed(ctx, jobs)
}

// applySleeper deploys an install of "sleeper" and returns its apply job.
func (p *plane) applySleeper(ctx context.Context, runner, install string) (string, error) {
	if _, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: install, App: "sleeper", Runner: runner}); err != nil {
		return "", err
	}
	return p.apply(ctx, install)
}

// noticed waits until the API shows all jobs as lost and returns the time that it took.
func (p *plane) noticed(ctx context.Context, jobs []string) (time.Duration, error) {
	began := time.Now()
	for _, id := range jobs {
		for {
			j, err := p.GetJob(ctx, id)
			if err != nil {
				return 0, err
			}
			if j.State == "lost" {
				break
			}
			if j.State != "running" {
				return 0, fmt.Errorf("job %s is %s: %s", id, j.State, j.Message)
			}
			if time.Since(began) > noticeFor {
				return 0, fmt.Errorf("job %s is still running after %s", id, noticeFor)
			}
			if err := sleep(ctx, 5*time.Millisecond); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(began), nil
}

// descendant is a child process of a process, or a child of a descendant.
type descendant struct {
	pid, parent int
	line        string // command line
}

// sleeps waits until exactly n descendants of the process run `sleep 600`.
func (p *process) sleeps(ctx context.Context, n int) error {
	return eventually(ctx, func() error {
		below, err := descendants(p.pid())
		found := 0
		for _, d := range below {
			if d.line == "sleep 600" {
				found++
			}
		}
		if err == nil && found != n {
			err = errors.Join(fmt.Errorf("%d applies are sleeping, want %d", found, n), p.failed())
		}
		return err
	})
}

// descendants returns all children of a process, their children and so on.
func descendants(pid int) ([]descendant, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]descendant{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err1 := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		line, err2 := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err1 != nil || err2 != nil {
			continue // the process has just exited
		}
		_, after, _ := strings.Cut(string(stat), ") ") // the name before it may contain spaces
		fields := strings.Fields(after)
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("parent of process %d: %w", id, err)
		}
		text := string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte(" ")))
		children[parent] = append(children[parent], descendant{id, parent, text})
	}
	below := slices.Clone(children[pid])
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i].pid]...)
	}
	return below, nil
}
