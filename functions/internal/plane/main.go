// Package plane wires the control plane to AWS for the functions, as pkg/local does on one machine.
// Each process makes its clients and use cases once, outside of the handlers. The package contains
// no decisions.
package plane

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/tracing"
)

// Process is the input of a function's wiring.
type Process[C any] struct {
	Config  C      // the function's environment
	Version string // of the release
	AWS     aws.Config
	Logger  *slog.Logger
}

// Main reads the environment, calls wire to make the handler, and serves Lambda's invocations until
// the function's environment ends. It does not return. If wire fails, the process exits with status
// 1, which Lambda reports as a failed start.
func Main[C any](wire func(ctx context.Context, p Process[C]) (handler any, err error)) {
	handler, err := start(context.Background(), os.Environ(), os.Stdout, wire)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
	lambda.Start(handler)
}

// lambdaHandler is a handler of encoded events and answers.
type lambdaHandler tracing.Invocation

// Invoke implements lambda.Handler.
func (h lambdaHandler) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	return h(ctx, event)
}

func start[C any](ctx context.Context, environ []string, out io.Writer, wire func(context.Context, Process[C]) (any, error)) (any, error) {
	var p Process[C]
	fs := flag.NewFlagSet("function", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if err := config.Load(&p.Config, fs, nil, environ); err != nil {
		return nil, err
	}
	var level slog.Level
	if text, ok := variable(environ, "FAIRLEAD_LOG_LEVEL"); ok {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("FAIRLEAD_LOG_LEVEL: %w", err)
		}
	}
	// CloudWatch Logs parses each line of the output as JSON.
	p.Logger = slog.New(tracing.Logs(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})))
	name, known := variable(environ, "AWS_LAMBDA_FUNCTION_NAME")
	if !known {
		name = "function" // a process outside of Lambda
	}
	if p.Version, known = variable(environ, "FAIRLEAD_VERSION"); !known {
		p.Version = "unknown"
	}
	tracer, err := tracing.New(environ, name, p.Version, p.Logger)
	if err != nil {
		return nil, err
	}
	if p.AWS, err = awsconfig.LoadDefaultConfig(ctx); err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	handler, err := wire(ctx, p)
	if err != nil || tracer == nil {
		return handler, err
	}
	return lambdaHandler(tracer.Invocations(name, lambda.NewHandler(handler).Invoke)), nil
}

func variable(environ []string, name string) (string, bool) {
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok && value != "" {
			return value, true
		}
	}
	return "", false
}
