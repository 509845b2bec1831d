package codebuildtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// running is one build.
type running struct {
	s             *Service
	group, stream string
	overrides     []Variable
	ctx           context.Context
	cancel        context.CancelFunc
	once          sync.Once

	mu  sync.Mutex
	now report
}

func newRunning(s *Service, id, group, stream string, overrides []Variable) *running {
	ctx, cancel := background()
	return &running{s: s, group: group, stream: stream, overrides: overrides, ctx: ctx, cancel: cancel,
		now: report{ID: id, ARN: "arn:aws:codebuild:" + s.region + ":" + s.account + ":build/" + id, ProjectName: s.project.Name, BuildStatus: "IN_PROGRESS",
			CurrentPhase: "QUEUED", StartTime: float64(time.Now().Unix()), Logs: logsReport{GroupName: group},
			Phases: []phaseReport{{PhaseType: "SUBMITTED", PhaseStatus: "SUCCEEDED"}, {PhaseType: "QUEUED"}}}}
}

func (b *running) report() report {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.now
	out.Phases = slices.Clone(out.Phases)
	return out
}

// run starts the build, if it has not started.
func (b *running) run() {
	b.once.Do(func() {
		b.s.ended.Go(b.work)
	})
}

// stop stops the build as StopBuild does.
func (b *running) stop() { b.end("STOPPED", "") }

// timeOut ends the build as a timeout in the phase does, if the build is in it.
func (b *running) timeOut(phase string) {
	if b.report().CurrentPhase == phase {
		b.end("TIMED_OUT", "BUILD_TIMED_OUT")
	}
}

// end ends the build with the status, unless it has ended. It kills the processes of the build.
func (b *running) end(status, code string) {
	b.once.Do(func() {}) // a build in the queue never runs
	b.mu.Lock()
	if !b.now.BuildComplete {
		b.close(status, code, "Build has ended as "+status)
		b.now.BuildStatus, b.now.BuildComplete, b.now.CurrentPhase = status, true, "COMPLETED"
	}
	b.mu.Unlock()
	b.cancel()
}

// close ends the current phase. The caller holds the lock.
func (b *running) close(status, code, message string) {
	p := &b.now.Phases[len(b.now.Phases)-1]
	if p.PhaseStatus != "" {
		return
	}
	p.PhaseStatus = status
	if code != "" {
		p.Contexts = []contextReport{{code, message}}
	}
}

// enter ends the current phase as succeeded and begins the next one. It reports whether the build goes on.
func (b *running) enter(phase string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.BuildComplete {
		return false
	}
	b.close("SUCCEEDED", "", "")
	b.now.CurrentPhase, b.now.Phases = phase, append(b.now.Phases, phaseReport{PhaseType: phase})
	if phase == "PRE_BUILD" {
		b.now.Logs.StreamName = b.stream
	}
	return true
}

// fail ends the current phase as failed.
func (b *running) fail(code, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.now.BuildComplete {
		b.close("FAILED", code, message)
	}
}

// complete ends the build.
func (b *running) complete(status string) {
	if !b.enter("COMPLETED") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Phases[len(b.now.Phases)-1].PhaseStatus = "SUCCEEDED"
	b.now.BuildStatus, b.now.BuildComplete = status, true
}

// work runs the phases of the build, as CodeBuild does: a phase that fails ends the build, but post_build follows build
// even then, unless build has on-failure: ABORT.
func (b *running) work() {
	defer b.cancel()
	if !b.enter("PROVISIONING") {
		return
	}
	if m := b.s.Provision; m != "" {
		b.fail("BUILD_CONTAINER_UNABLE_TO_PULL_IMAGE", m)
		b.complete("FAILED")
		return
	}
	spec, err := readBuildspec(b.s.project.Source.BuildSpec)
	if err != nil {
		b.s.t.Error(err)
		return
	}
	folder, err := os.MkdirTemp("", "codebuild-")
	if err != nil {
		b.s.t.Error(err)
		return
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			b.s.t.Error(err)
		}
	}()
	succeeding := true
	for _, name := range []string{"pre_build", "build", "post_build"} {
		p := spec.Phases[name]
		if !b.enter(strings.ToUpper(name)) {
			return
		}
		err := b.commands(folder, p.Commands, succeeding)
		if err == nil {
			continue
		}
		succeeding = false
		b.fail("COMMAND_EXECUTION_ERROR", "Error while "+err.Error())
		if name == "pre_build" || p.OnFailure == "ABORT" {
			break
		}
	}
	if !succeeding {
		b.complete("FAILED")
		return
	}
	b.complete("SUCCEEDED")
}

// environ returns the environment of a build.
func (b *running) environ(folder string, succeeding bool) []string {
	s, p := b.s, b.s.project
	ok := "0"
	if succeeding {
		ok = "1"
	}
	id := b.report().ID
	out := []string{"PATH=" + s.machine.Path + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + filepath.Join(folder, "home"), "AWS_DEFAULT_REGION=" + s.region, "AWS_REGION=" + s.region,
		"CODEBUILD_BUILD_ID=" + id, "CODEBUILD_BUILD_ARN=" + b.report().ARN, "CODEBUILD_BUILD_IMAGE=" + p.Environment.Image, "CODEBUILD_SRC_DIR=" + filepath.Join(folder, "src"),
		"CODEBUILD_BUILD_SUCCEEDING=" + ok, "CODEBUILD_LOG_PATH=" + b.stream, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/credentials/" + newUUID()}
	if s.machine.Credentials != nil {
		out = append(out, s.machine.Credentials(p.ServiceRole)...)
	}
	if p.Environment.PrivilegedMode {
		out = append(out, privilegedVariable+"=1")
	}
	for _, v := range slices.Concat(p.Environment.EnvironmentVariables, b.overrides) { // an override comes last, and wins
		if v.Type != "" && v.Type != "PLAINTEXT" {
			s.t.Errorf("the variable %s has the type %s, which this simulation does not have", v.Name, v.Type)
		}
		out = append(out, v.Name+"="+v.Value)
	}
	return append(out, s.machine.Environ...)
}

// commands runs the commands of a phase until one fails.
func (b *running) commands(folder string, commands []string, succeeding bool) error {
	environ := b.environ(folder, succeeding)
	for _, dir := range []string{"src", "home"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o700); err != nil {
			return err
		}
	}
	for _, text := range commands {
		if err := b.log("[Container] Running command " + text); err != nil {
			return err
		}
		if err := b.command(filepath.Join(folder, "src"), environ, text); err != nil {
			return err
		}
	}
	return nil
}

// command runs one command. When the build ends, it kills all processes of the command.
func (b *running) command(dir string, environ []string, text string) error {
	cmd := exec.CommandContext(b.ctx, "bash", "-c", text)
	cmd.Dir, cmd.Env = dir, environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = within
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	copied := make(chan error, 1)
	go func() { copied <- b.copyLines(r) }()
	err := cmd.Run()
	_ = w.Close()
	if lerr := <-copied; lerr != nil {
		b.s.t.Errorf("the log of a build: %v", lerr)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("executing command: %s. Reason: exit status %d", text, e.ExitCode())
	}
	return err
}

// copyLines writes lines to the log, in batches of those that are there.
func (b *running) copyLines(r *io.PipeReader) error {
	lines, batch := bufio.NewReaderSize(r, 64<<10), []string(nil)
	var failed error
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			batch = append(batch, strings.TrimSuffix(line, "\n"))
		}
		if (err != nil || lines.Buffered() == 0 || len(batch) >= 500) && len(batch) > 0 {
			if failed == nil { // after a failure, the process must still be able to write
				failed = b.log(batch...)
			}
			batch = nil
		}
		if err != nil {
			return failed
		}
	}
}

func (b *running) log(lines ...string) error {
	return b.s.machine.Log(b.s.project.ServiceRole, b.group, b.stream, lines)
}
