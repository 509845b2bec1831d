// Command awsprovider builds the provider hashicorp/aws from its pinned source,
// with no more services than examples/aws-service needs, and prints the folder of
// a mirror that holds it, as `provider_installation` of OpenTofu and Terraform
// takes it.
//
// Whole, the provider is some 250 services: more than an hour and 10 GB of memory
// to compile on two cores. The ten that are kept, and the provider around them,
// are the pinned source as it is; left out are the others, from the list of
// services and from the list of clients. So what is tested with it is the real
// provider's schema, planning and calls, of a version that its registry has too.
//
// The source comes through the Go module proxy, from a public fork, because the
// registry and its releases cannot be reached everywhere; it is checked against
// the checksum in source/go.sum. It is fetched and built once per machine and kept
// in the user's cache folder, never committed and never shipped. Its licence is
// MPL 2.0.
//
// Where the source cannot be fetched, awsprovider says so and prints no folder;
// with FAIRLEAD_REQUIRE_AWS_PROVIDER=1 it fails instead. A build that fails always
// is a failure. The folder goes to stdout, all else to stderr.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// requireEnv, when "1", makes a provider that cannot be fetched a failure.
const requireEnv = "FAIRLEAD_REQUIRE_AWS_PROVIDER"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "awsprovider:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("awsprovider", flag.ExitOnError)
	source := flags.String("source", "tools/awsprovider/source", "the folder of the module that pins the provider's source")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder: %w", err)
	}
	mirror, err := provider{cache: cache, source: *source, log: stderr}.get(ctx)
	if unfetched, ok := errors.AsType[*fetchError](err); ok && ctx.Err() == nil && os.Getenv(requireEnv) != "1" {
		fmt.Fprintf(stderr, "WITHOUT THE PROVIDER hashicorp/aws: %v\n", unfetched)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the provider hashicorp/aws %s: %w", version, err)
	}
	_, err = fmt.Fprintln(stdout, mirror)
	return err
}
