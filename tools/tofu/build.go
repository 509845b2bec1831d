package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	tofuPackage = "github.com/opentofu/opentofu/cmd/tofu"
	// buildFlags mark a release build; a development build reports another version.
	buildFlags = "-s -w -X github.com/opentofu/opentofu/version.dev=no"
	// reportEvery is the time between two progress messages.
	reportEvery = 5 * time.Second
	// tailLines is the number of lines of the compiler's output in an error.
	tailLines = 20
)

// build compiles the pinned OpenTofu to path.
func (f finder) build(ctx context.Context, path string) error {
	module, err := filepath.Abs(f.module)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.log, "building OpenTofu %s from Go modules; this happens only once and takes about four minutes on two cores\n", pinnedVersion)
	// CGO_ENABLED=0, so that no C compiler is needed. -v prints each package when it is
	// compiled.
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-ldflags", buildFlags, "-o", path, tofuPackage)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	output, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w

	started := time.Now()
	lines := make(chan string)
	done := make(chan error, 1)
	go scan(output, lines)
	go func() {
		err := cmd.Run()
		w.Close()
		done <- err
	}()
	p := progress{log: f.log, started: started}
	p.follow(lines)
	if err := <-done; err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("go build in %s: %w\n%s", module, err, strings.Join(p.tail, "\n"))
	}
	p.report("built OpenTofu")
	return nil
}

// scan sends each line of r and closes the channel at the end.
func scan(r io.Reader, lines chan<- string) {
	defer close(lines)
	s := bufio.NewScanner(r)
	for s.Scan() {
		lines <- s.Text()
	}
	_, _ = io.Copy(io.Discard, r) // the scanner stops at a line that is too long; read the rest, so that the compiler does not block
}

// progress counts the modules and packages in the output of `go build -v`.
type progress struct {
	log               io.Writer
	started           time.Time
	modules, packages int
	tail              []string
}

func (p *progress) follow(lines <-chan string) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			p.add(line)
		case <-ticker.C:
			p.report("building OpenTofu")
		}
	}
}

func (p *progress) add(line string) {
	if strings.HasPrefix(line, "go: downloading ") {
		p.modules++
		return
	}
	if !strings.ContainsAny(line, " \t:#") { // an import path, not a message
		p.packages++
		return
	}
	p.tail = append(p.tail, line)
	if len(p.tail) > tailLines {
		p.tail = p.tail[1:]
	}
}

func (p *progress) report(what string) {
	fmt.Fprintf(p.log, "%s: %d s, %d modules downloaded, %d packages compiled\n",
		what, int(time.Since(p.started).Seconds()), p.modules, p.packages)
}
