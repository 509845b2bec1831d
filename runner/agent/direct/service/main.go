package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/direct"
)

// Options of Main. All are required.
type Options struct {
	Version   string
	Stderr    io.Writer
	Environ   []string
	Executors map[string]agent.OpenExecutor
}

// every is how often the service asks for the list of runners. An invocation costs a tenth of a
// millionth of a dollar, so a month of them costs less than ten cents.
const every = 15 * time.Second

// Exit codes of Main.
const (
	exitOK = iota
	exitError
	exitUsage
)

// Main runs the service until SIGTERM or SIGINT, and returns its exit code. Steps that run then
// continue, and the agents of the next process watch them.
func Main(ctx context.Context, args []string, o Options) int {
	fs := flag.NewFlagSet("direct", flag.ContinueOnError)
	fs.SetOutput(o.Stderr)
	var cfg config.DirectLaunch
	var level slog.Level
	err := config.Load(&cfg, fs, args, o.Environ)
	if err == nil {
		if err = level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
			err = fmt.Errorf("FAIRLEAD_LOG_LEVEL: %q is not one of debug, info, warn, error", cfg.LogLevel)
		}
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(o.Stderr, err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	aws, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		fmt.Fprintln(o.Stderr, "AWS configuration:", err)
		return exitError
	}
	direct.Serve(ctx, New(aws, cfg.URL, cfg.Function), direct.Options{Data: cfg.Data, Version: o.Version, Image: cfg.Image, Environ: o.Environ,
		Every: every, Log: slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: level})), Executors: o.Executors})
	return exitOK
}
