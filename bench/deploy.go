package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// clocked is the name of the runner whose tool is the tool clock.
const clocked = "clocked"

// deployParts returns the figures of the parts of deploy_added_ms.
func deployParts() []string {
	var names []string
	for _, part := range []string{"cli", "claim", "launch", "prepare", "between", "report", "end"} {
		names = append(names, partFigure(part))
	}
	return names
}

func partFigure(part string) string { return "deploy_part_" + part + "_ms" }

// measureDeploy compares two ways to apply a small module: init, plan and apply of the
// bare tool in a new folder, and `fairlead install deploy --auto-approve` on a new
// install.
func measureDeploy(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "deploy")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	clock, err := makeToolClock(ctx, b)
	if err != nil {
		return err
	}
	agent, err := p.startAgent(ctx, "local", 0, b.tool)
	if err != nil {
		return err
	}
	if _, err := p.startAgent(ctx, clocked, 0, clock.program, b.tool); err != nil {
		return err
	}
	if err := p.publish(ctx, b.path("examples/hello")); err != nil {
		return err
	}
	var bare, ours, tool []float64
	var before, bareCPU time.Duration
	parts := map[string][]float64{}
	for i := range 1 + b.counts.deployRounds {
		if i == 1 {
			if before, err = stepsTime(ctx, agent); err != nil {
				return err
			}
		}
		one, cpu, err := bareRun(ctx, b, fmt.Sprintf("bare-%d", i))
		if err != nil {
			return err
		}
		whole, err := deployRun(ctx, p, fmt.Sprintf("plain-%d", i), "local")
		if err != nil {
			return err
		}
		timed, err := clock.deployRun(ctx, p, fmt.Sprintf("clocked-%d", i))
		if err != nil {
			return err
		}
		if i == 0 {
			continue // the first round loads the tool from disk and creates its launcher
		}
		bareCPU += cpu
		bare, ours, tool = append(bare, ms(one)), append(ours, ms(whole.took())), append(tool, ms(timed.tool))
		for name, d := range timed.parts {
			parts[name] = append(parts[name], ms(d))
		}
	}
	after, err := stepsTime(ctx, agent)
	if err != nil {
		return err
	}
	b.set("deploy_steps_cpu_ms", ms(after-before)/float64(b.counts.deployRounds))
	b.set("deploy_bare_cpu_ms", ms(bareCPU)/float64(b.counts.deployRounds))
	b.set("deploy_ms", median(ours))
	b.set("deploy_bare_ms", median(bare))
	b.set("deploy_ratio", median(ours)/median(bare))
	b.set("deploy_tool_ms", median(tool))
	b.set("deploy_added_ms", median(ours)-median(tool))
	for name, samples := range parts {
		b.set(partFigure(name), median(samples))
	}
	return nil
}

// stepsTime waits until an agent has no step, and returns the CPU time that its steps and their tools have used.
func stepsTime(ctx context.Context, agent *process) (time.Duration, error) {
	err := eventually(ctx, func() error {
		steps, err := descendants(agent.pid())
		if err == nil && len(steps) > 0 {
			err = fmt.Errorf("the agent still has %v", steps)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	u, err := useOf(agent.pid())
	return u.children, err
}

// bareRun runs the tool without Fairlead and returns the time and the CPU time that it took.
func bareRun(ctx context.Context, b *bench, name string) (took, cpu time.Duration, err error) {
	dir := filepath.Join(b.work, name)
	if err := os.CopyFS(dir, os.DirFS(b.path("examples/hello/greeting"))); err != nil {
		return 0, 0, err
	}
	vars := fmt.Sprintf(`{"text": "Hello, world, from %s!"}`, name)
	if err := os.WriteFile(filepath.Join(dir, "vars.json"), []byte(vars), 0o600); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for _, args := range [][]string{
		{"init", "-input=false", "-no-color"},
		{"plan", "-input=false", "-no-color", "-out=plan", "-var-file=vars.json"},
		{"apply", "-input=false", "-no-color", "plan"},
	} {
		cmd := exec.CommandContext(ctx, b.tool, args...)
		cmd.Dir, cmd.Env = dir, environ()
		if err := runCommand(cmd); err != nil {
			return 0, 0, err
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return time.Since(began), cpu, nil
}

// deployed is one run of the CLI.
type deployed struct {
	began, ended time.Time
	deployment   wire.Deployment
}

func (d deployed) took() time.Duration { return d.ended.Sub(d.began) }

// deployRun deploys the app "hello" to a new install through the CLI.
func deployRun(ctx context.Context, p *plane, install, runner string) (deployed, error) {
	return deployApp(ctx, p, "hello", install, runner)
}

// deployApp deploys an app to a new install through the CLI.
func deployApp(ctx context.Context, p *plane, app, install, runner string) (deployed, error) {
	_, err := p.CreateInstall(ctx, wire.CreateInstallRequest{Name: install, App: app, Runner: runner})
	if err != nil {
		return deployed{}, err
	}
	cmd := p.cli(ctx, "install", "deploy", install, "--auto-approve")
	d := deployed{began: time.Now()}
	err = runCommand(cmd)
	d.ended = time.Now()
	if err != nil {
		return d, err
	}
	page, err := p.ListDeployments(ctx, client.DeploymentFilter{Install: install}, client.ListOptions{})
	if err == nil && (len(page.Items) != 1 || page.Items[0].State != "succeeded") {
		err = fmt.Errorf("install %s does not have exactly one succeeded deployment: %+v", install, page.Items)
	}
	if err == nil {
		d.deployment = page.Items[0]
	}
	return d, err
}

// toolClock is the program bench/toolclock: it runs the tool and records its start and
// end in the file times.
type toolClock struct{ program, times string }

func makeToolClock(ctx context.Context, b *bench) (toolClock, error) {
	dir := filepath.Join(b.work, "clock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return toolClock{}, err
	}
	c := toolClock{program: filepath.Join(dir, "tofu"), times: filepath.Join(dir, "times")}
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte(b.tool), 0o600); err != nil {
		return toolClock{}, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", c.program, "./bench/toolclock")
	build.Dir = b.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	return c, runCommand(build)
}

// toolRun is one run of the tool.
type toolRun struct {
	command    string
	began, end time.Time
}

// take returns the recorded runs and removes their file.
func (c toolClock) take() ([]toolRun, error) {
	text, err := os.ReadFile(c.times)
	if err != nil {
		return nil, err
	}
	var runs []toolRun
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: unexpected line %q", c.times, line)
		}
		began, err1 := strconv.ParseInt(f[1], 10, 64)
		end, err2 := strconv.ParseInt(f[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		runs = append(runs, toolRun{f[0], time.Unix(0, began), time.Unix(0, end)})
	}
	return runs, os.Remove(c.times)
}

// timeline is the time of a deployment, in parts.
type timeline struct {
	tool  time.Duration            // all runs of the tool
	parts map[string]time.Duration // the rest, by part
}

func (c toolClock) deployRun(ctx context.Context, p *plane, install string) (timeline, error) {
	d, err := deployRun(ctx, p, install, clocked)
	if err != nil {
		return timeline{}, err
	}
	runs, err := c.take()
	if err != nil {
		return timeline{}, err
	}
	k := d.deployment.Components[0]
	plan, err := p.GetJob(ctx, k.PlanJob)
	if err != nil {
		return timeline{}, err
	}
	apply, err := p.GetJob(ctx, k.Job)
	if err != nil {
		return timeline{}, err
	}
	return dissect(d, plan, apply, runs)
}

// dissect divides the time from the CLI's start to its end into the tool's runs and the
// parts between them. All times are from this machine's clock.
func dissect(d deployed, plan, apply wire.Job, runs []toolRun) (timeline, error) {
	t := timeline{parts: map[string]time.Duration{}}
	jobs := []wire.Job{plan, apply}
	at := d.began
	step := func(part string, to time.Time) {
		t.parts[part] += to.Sub(at)
		at = to
	}
	part := "cli"
	for _, j := range jobs {
		step(part, j.CreatedAt)
		step("claim", *j.ClaimedAt)
		step("launch", *j.StartedAt)
		before := "prepare"
		for len(runs) > 0 && runs[0].end.Before(*j.FinishedAt) {
			if runs[0].command != "version" { // the command version runs once for each tool, not for each job
				step(before, runs[0].began)
				t.tool += runs[0].end.Sub(runs[0].began)
				at, before = runs[0].end, "between"
			}
			runs = runs[1:]
		}
		if before == "prepare" {
			return t, fmt.Errorf("job %s ran no tool", j.ID)
		}
		step("report", *j.FinishedAt)
		part = "claim" // the commit that ends this job creates the next job
	}
	step("end", d.ended)
	return t, nil
}
